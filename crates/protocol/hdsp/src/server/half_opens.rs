//! Handshakes under way at a server, between the challenge and the proof.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::quota::{HALF_OPENS, HALF_OPENS_OF_SESSION};
use sanwire_core::{ClientId, Instant, Path};
use sanwire_security::handshake::{Proof, Responder};

use crate::wire::connection::{PROOF_MAX, Request, SessionName};
use crate::wire::{ErrorCode, Header};

/// When there are too many, one that had so long makes room.
const GRACE: Duration = Duration::from_secs(1);

/// A handshake after its challenge.
pub(super) struct HalfOpen {
    pub(super) path: Path,
    pub(super) client_port: u16,
    pub(super) session: SessionName,
    pub(super) attempt: u64,
    pub(super) responder: Responder,
    pub(super) first: [u8; 32],
    pub(super) challenge: Packet,
    pub(super) begun_at: Instant,
    /// The proof that was refused; its client has no other one.
    pub(super) refused: Option<Refused>,
}

/// A proof that was refused.
#[derive(Clone)]
pub(super) struct Refused {
    pub(super) noise: Vec<u8>,
    pub(super) reason: ErrorCode,
    pub(super) proof: Proof,
}

impl HalfOpen {
    pub(super) fn is_of(&self, (path, client_port): (Path, u16), attempt: u64, client: ClientId) -> bool {
        (self.path, self.client_port, self.attempt, self.session.client) == (path, client_port, attempt, client)
    }

    /// It is refused: by this its client sees that we have said so.
    pub(super) fn refuse(&mut self, reason: ErrorCode, noise: &[u8]) -> Proof {
        let proof = self.responder.refusal_key().prove(reason as u8, noise);
        self.refused = Some(Refused { noise: noise.to_vec(), reason, proof });
        proof
    }
}

/// All of them, by the server's port.
#[derive(Default)]
pub(super) struct HalfOpens(BTreeMap<u16, HalfOpen>);

impl HalfOpens {
    pub(super) fn insert(&mut self, port: u16, half_open: HalfOpen) {
        self.0.insert(port, half_open);
    }

    pub(super) fn get_mut(&mut self, port: u16) -> Option<&mut HalfOpen> {
        self.0.get_mut(&port)
    }

    pub(super) fn remove(&mut self, port: u16) {
        self.0.remove(&port);
    }

    pub(super) fn has(&self, port: u16) -> bool {
        self.0.contains_key(&port)
    }

    pub(super) fn repeat(&self, path: Path, header: &Header, request: &Request<'_>) -> Option<Packet> {
        let is_same = |half: &&HalfOpen| {
            half.path == path
                && half.client_port == header.client_port
                && (half.attempt, half.first) == (request.attempt, request.noise)
        };
        self.0.values().find(is_same).map(|half| half.challenge.clone())
    }

    /// Whether there is room for another one. One that had its time makes room, or the oldest of the same session and path.
    pub(super) fn make_room(&mut self, session: SessionName, path: Path, now: Instant) -> bool {
        self.expire(now);
        let own = |half: &HalfOpen| half.session.client == session.client && half.path == path;
        let of_session: Vec<(Instant, u16)> =
            self.0.iter().filter(|(_, half)| own(half)).map(|(port, half)| (half.begun_at, *port)).collect();
        if of_session.len() as u64 >= HALF_OPENS_OF_SESSION.limit {
            of_session.iter().min().inspect(|(_, port)| drop(self.0.remove(port)));
        }
        if (self.0.len() as u64) < HALF_OPENS.limit {
            return true;
        }
        let oldest = self.0.iter().map(|(port, half)| (half.begun_at, *port)).min();
        let oldest = oldest.filter(|(begun_at, _)| now.saturating_since(*begun_at) >= GRACE);
        oldest.is_some_and(|(_, port)| self.0.remove(&port).is_some())
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|_, half| now.saturating_since(half.begun_at) < PROOF_MAX);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.values().map(|half| half.begun_at + PROOF_MAX).min()
    }

    /// Takes out the one that has led to a connection, and those of its session that began before: none of them may replace it.
    pub(super) fn establish(&mut self, port: u16) {
        let Some(done) = self.0.remove(&port) else { return };
        let is_former = |half: &HalfOpen| {
            let is_of_session = (half.session.client, half.session.run) == (done.session.client, done.session.run);
            // An attempt goes out on several links: whatever comes of the others later is of this one.
            is_of_session && (half.begun_at <= done.begun_at || half.first == done.first)
        };
        self.0.retain(|_, half| !is_former(half));
    }
}
