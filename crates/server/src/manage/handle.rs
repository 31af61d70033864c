//! Where requests come together: several may ask, one after the other is served.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use sanwire_core::text::shortened;

use super::{Asker, Manager, NOT_PERMITTED, Refusal, Request, Response};
use crate::front::Offence;
use crate::management_queue::{Content, Letters, QueuedRequest};
use crate::messages::ShardMessage;
use crate::server::Server;

/// Of a request, so much stands in the log.
const LOGGED_MAX_BYTES: usize = 1024;

/// A server that several may manage, until it ends.
#[derive(Clone)]
pub struct ManagementHandle(Arc<Mutex<Option<Manager>>>);

impl ManagementHandle {
    /// The desk of this manager.
    #[must_use]
    pub fn new(manager: Manager) -> Self {
        let letters = manager.target().take_letters();
        let desk = ManagementHandle(Arc::new(Mutex::new(Some(manager))));
        if let Some(letters) = letters {
            // It does not keep the server: it ends with the shards.
            let weak = Arc::downgrade(&desk.0);
            let work = move || work(&letters, &weak);
            if let Err(error) = thread::Builder::new().name("management".into()).spawn(work) {
                tracing::error!("the server cannot be managed by its clients: {error}");
            }
        }
        desk
    }

    /// Does what is asked in JSON, when it is its turn.
    pub fn handle_json(&self, by: &Asker, json: &[u8]) -> Response {
        match serde_json::from_slice::<Request>(json) {
            Ok(request) => self.handle(by, request),
            Err(error) => self.refuse(by, Refusal::new("request-invalid", format!("this is no request: {error}"))),
        }
    }

    /// Does what is asked, when it is its turn.
    pub fn handle(&self, by: &Asker, request: Request) -> Response {
        tracing::info!("management by {by:?}: {}", shortened(&format!("{request:?}"), LOGGED_MAX_BYTES));
        self.with(|manager| manager.handle(by, request))
    }

    /// Refuses what is no request, or what somebody may not ask.
    fn refuse(&self, by: &Asker, refusal: Refusal) -> Response {
        self.with(|manager| manager.refuse(by, refusal))
    }

    fn note_offence(&self, by: &Asker, offence: &dyn Display, is_proven: bool, count: u64) {
        if let Some(manager) = self.lock().as_mut() {
            manager.note_offence(by, offence, is_proven, count);
        }
    }

    /// Whether all of the server still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.lock().as_ref().is_some_and(|manager| manager.target().is_alive())
    }

    /// The server, which is not managed any more.
    #[must_use]
    pub fn end(&self) -> Option<Server> {
        self.lock().take().map(Manager::into_target)
    }

    fn with(&self, serve: impl FnOnce(&mut Manager) -> Response) -> Response {
        self.lock()
            .as_mut()
            .map_or_else(|| Response::Refused(Refusal::new("stopping", "the server is stopping")), serve)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Manager>> {
        // A request that has panicked has told so; the next one sees what is there.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does what clients ask in band, one after the other.
fn work(letters: &Letters, desk: &Weak<Mutex<Option<Manager>>>) {
    while let Some(letter) = letters.next() {
        let Some(desk) = desk.upgrade().map(ManagementHandle) else { return };
        let QueuedRequest { client, address, content } = letter;
        let by = match client {
            Some(client) => Asker::Client { client, address },
            None => Asker::Stranger { address },
        };
        match content {
            Content::Attempt => drop(desk.refuse(&by, Refusal::new("not-permitted", NOT_PERMITTED))),
            Content::Refused(Offence { what, is_proven }, count) => desk.note_offence(&by, &what, is_proven, count),
            Content::Request { json, room_bytes, request, home } => {
                let response = desk.handle_json(&by, &json);
                home.send(ShardMessage::Administered(request, response.to_json(room_bytes)));
            }
        }
    }
}
