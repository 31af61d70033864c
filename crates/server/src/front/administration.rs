//! Requests to manage the server that clients send in band: who may ask, and where they go. No shard works on one itself.

use std::sync::Arc;

use sanwire_buffer::Slice;
use sanwire_core::{ClientId, Principal};

use crate::command::CommandRef;
use crate::front::hyperscsi::clients::Clients;
use crate::manage::{NOT_PERMITTED, REQUEST_MAX_BYTES, Refusal, Response};
use crate::management_queue::{Content, ManagementQueue, QueuedRequest};
use crate::messages::Mailbox;

/// Requests of clients that may not manage the server, as they are counted.
const UNPERMITTED: &str = "management without permission";

/// [`crate::Request::CopyTerms`].
const COPY_TERMS: &[u8] = br#"{"do":"copy-terms"}"#;

/// What a client asks, in a session in which it has shown its key, and encrypted: nobody else has read or made it.
pub(super) struct InBandRequest {
    pub(super) client: ClientId,
    /// Where it is.
    pub(super) address: String,
    /// Who it is to volumes that it owns.
    pub(super) principal: Principal,
    pub(super) json: Option<Slice>,
    /// The longest answer that it has room for, in bytes.
    pub(super) room_bytes: u32,
    /// By what the answer finds its way.
    pub(super) request: CommandRef,
}

/// The management of the server, as one front end sees it.
pub(super) struct Administration {
    clients: Arc<Clients>,
    inbox: ManagementQueue,
    /// The way to this shard.
    home: Mailbox,
    /// Requests of clients that may not manage the server.
    unpermitted: u64,
}

impl Administration {
    pub(super) fn new(clients: &Arc<Clients>, inbox: &ManagementQueue, home: &Mailbox) -> Self {
        let (clients, inbox, home) = (Arc::clone(clients), ManagementQueue::clone(inbox), Mailbox::clone(home));
        Administration { clients, inbox, home, unpermitted: 0 }
    }

    /// Passes a request on, of a client that may: the answer comes by [`super::FrontEnd::administered`]. Gives the answer where it is
    /// known at once.
    pub(super) fn ask(&mut self, asked: InBandRequest) -> Option<Vec<u8>> {
        let InBandRequest { client, address, principal, json, room_bytes, request } = asked;
        let json = json.as_deref().unwrap_or_default();
        let may_manage = self.clients.may_manage(client);
        let as_owner = Some(principal).filter(|principal| !may_manage && self.clients.owners.include(principal));
        let refusal = if !may_manage && as_owner.is_none() {
            // Programs of clients ask by themselves whether they may have copies made.
            if json != COPY_TERMS {
                self.unpermitted += 1;
                // What cannot be written down was counted.
                self.inbox.put(QueuedRequest { client: Some(client), address, content: Content::Attempt });
            }
            let verb = if self.clients.is_listed(client) { "set-client" } else { "add-client" };
            Refusal::new(
                "not-permitted",
                format!("{NOT_PERMITTED}: `sanwire ctl {verb} {client} --manage` on its host permits it"),
            )
        } else if json.len() > REQUEST_MAX_BYTES {
            Refusal::new("request-too-long", "the request is too long")
        } else {
            let (json, home) = (json.to_vec(), self.home.clone());
            let content = Content::Request { json, room_bytes, request, home, as_owner };
            if self.inbox.put(QueuedRequest { client: Some(client), address, content }) {
                return None;
            }
            Refusal::new("busy", "the server has too many other requests to do, or is not managed: ask again")
        };
        Some(Response::Refused(refusal).to_json(room_bytes))
    }

    /// What was not taken, with the reason.
    pub(super) fn dropped(&self) -> (&'static str, u64) {
        (UNPERMITTED, self.unpermitted)
    }
}
