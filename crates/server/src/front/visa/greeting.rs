//! The first packet of a TCP connection, for the login listener: by it the connection comes to the shard that its client's sessions are in.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Peer};
use sanwire_visa::framing::{LENGTH_BYTES, PACKET_MAX_BYTES};
use sanwire_visa::wire::header::RawPacket;
use sanwire_visa::wire::setup::{Connect, steering_word};
use sanwire_visa::wire::{HEADER_BYTES, Kind};

use crate::front::hyperscsi::clients::Clients;
use crate::front::{Caller, LoginOutcome, LoginPhase, LoginService, Newcomer, PassedLogin, SessionPort, TallyFamily};

/// How long it may take.
const GREETING_MAX: Duration = Duration::from_secs(10);

/// What is refused.
const SILENT: &str = "it has said nothing for 10 s";
const NOT_VISA: &str = "it does not begin as VISA does";
const NOT_ALLOWED: &str =
    "it is not allowed: if it is to be served, add its address or id to `allow`, or `sanwire ctl add-client`";

pub(crate) static LOGIN_RESULTS: TallyFamily = TallyFamily {
    name: "sanwire_visa_greetings",
    help: "How the beginnings of connections over TCP have ended",
    label: "result",
};

/// The connections to a server.
pub(crate) struct Greetings {
    /// The place of the front end for which they are.
    pub(crate) front: u8,
    pub(crate) clients: Arc<Clients>,
    pub(crate) shards: usize,
}

impl LoginService for Greetings {
    fn name(&self) -> &'static str {
        "a VISA connection"
    }

    fn results(&self) -> &'static TallyFamily {
        &LOGIN_RESULTS
    }

    fn may_permit(&self, peer: IpAddr, _is_local: bool) -> bool {
        self.clients.permits(Peer::Udp(SocketAddr::new(peer, 0)), None)
    }

    fn begin(&self, caller: Caller, _seed: [u8; 32], now: Instant) -> Box<dyn LoginPhase> {
        let Caller { portal: (_, group_tag), peer, .. } = caller;
        // From where nobody may come there is nothing to wait for.
        let may_come = self.clients.permits(Peer::Udp(peer), None);
        Box::new(Greeting {
            front: self.front,
            clients: Arc::clone(&self.clients),
            shards: self.shards,
            group_tag,
            peer,
            bytes: Vec::new(),
            until: if may_come { now + GREETING_MAX } else { now },
            refusal: if may_come { SILENT } else { NOT_ALLOWED },
            outcome: None,
            is_over: false,
        })
    }
}

struct Greeting {
    front: u8,
    clients: Arc<Clients>,
    shards: usize,
    group_tag: u16,
    peer: SocketAddr,
    bytes: Vec<u8>,
    until: Instant,
    /// Why it is refused then.
    refusal: &'static str,
    outcome: Option<LoginOutcome>,
    is_over: bool,
}

impl Greeting {
    fn end(&mut self, outcome: LoginOutcome) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.outcome = Some(outcome);
        }
    }

    /// The first packet, once it is whole.
    fn packet(&self) -> Result<Option<&[u8]>, &'static str> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if !(HEADER_BYTES..=PACKET_MAX_BYTES).contains(&length) {
            return Err(NOT_VISA);
        }
        Ok(rest.get(..length))
    }

    fn newcomer(&self) -> Result<Option<Newcomer>, &'static str> {
        let Some(packet) = self.packet()? else { return Ok(None) };
        let raw = RawPacket::read(packet).map_err(|_| NOT_VISA)?;
        let connect = Connect::read(raw.payload).map_err(|_| NOT_VISA)?;
        if raw.header.kind != Kind::Connect || !raw.is_whole() {
            return Err(NOT_VISA);
        }
        // It would take a place that others need, and never hear anything.
        if !self.clients.permits(Peer::Udp(self.peer), Some(connect.client)) {
            return Err(NOT_ALLOWED);
        }
        let initiator = connect.client.to_string();
        let port = SessionPort {
            front: self.front,
            initiator,
            id: format!("{:x}", connect.session),
            target: Some(super::NAME.to_owned()),
        };
        Ok(Some(Newcomer {
            port,
            peer: self.peer.ip().to_canonical(),
            group_tag: self.group_tag,
            joined: 0,
            // What those take who have no session has a bound of its own, at their shard.
            is_stranger: false,
            // Where the datagrams of its client come to as well.
            shard: Some(steering_word(connect.client) as usize % self.shards.max(1)),
            login: Box::new(Greeted { peer: self.peer, bytes: self.bytes.clone() }),
        }))
    }
}

impl LoginPhase for Greeting {
    fn handle_input(&mut self, bytes: &[u8], _now: Instant) {
        if self.is_over {
            return;
        }
        if self.bytes.len() + bytes.len() > PACKET_MAX_BYTES {
            return self.end(LoginOutcome::Refused(NOT_VISA.to_owned()));
        }
        self.bytes.extend_from_slice(bytes);
        match self.newcomer() {
            Ok(None) => {}
            Ok(Some(newcomer)) => self.end(LoginOutcome::Passed(newcomer)),
            Err(what) => self.end(LoginOutcome::Refused(what.to_owned())),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.until <= now {
            self.end(LoginOutcome::Refused(self.refusal.to_owned()));
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.is_over).then_some(self.until)
    }

    fn has_spoken(&self) -> bool {
        self.is_over
    }

    fn poll_transmit(&mut self) -> Option<Packet> {
        None
    }

    fn poll_outcome(&mut self) -> Option<LoginOutcome> {
        self.outcome.take()
    }
}

/// A connection whose first packet has come, with all that has.
pub(super) struct Greeted {
    pub(super) peer: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

impl PassedLogin for Greeted {
    fn out_of_resources(self: Box<Self>) -> Vec<Packet> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
