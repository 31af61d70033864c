//! Handshakes under way at a server: few, short-lived, one for each client's attempt.

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_core::{ClientId, Instant, Path};

use crate::keys::Handshake;
use crate::options::Options;

/// Handshakes under way at once. A flood pushes out the oldest, never the memory.
const HALF_OPEN_MAX: usize = 64;

/// How long the third step may take.
const LIFETIME: Duration = Duration::from_secs(5);

/// A handshake after its second step.
pub(super) struct HalfOpen {
    pub(super) connection: u32,
    pub(super) path: Path,
    pub(super) client: ClientId,
    pub(super) session: u64,
    /// The client's attempt: the same discovery gets the same answer.
    pub(super) attempt: u64,
    pub(super) packet_max_bytes: u32,
    /// What the offer said.
    pub(super) options: Options,
    pub(super) handshake: Handshake,
    /// The second step, to be repeated when it was lost.
    pub(super) answer: Vec<u8>,
    has_failed: bool,
    /// The last third step that did not verify: its client says it again and again.
    failed: Vec<u8>,
    expires_at: Instant,
}

/// All of them, oldest first.
#[derive(Default)]
pub(super) struct HalfOpens(VecDeque<HalfOpen>);

impl HalfOpens {
    /// The second step of the same attempt, if it was made before.
    pub(super) fn repeat(&self, path: Path, client: ClientId, attempt: u64) -> Option<&[u8]> {
        let same = |half: &&HalfOpen| half.path == path && half.client == client && half.attempt == attempt;
        self.0.iter().find(same).map(|half| &half.answer[..])
    }

    pub(super) fn insert(&mut self, mut half_open: HalfOpen, now: Instant) {
        half_open.expires_at = now + LIFETIME;
        self.0.retain(|other| {
            other.expires_at > now && !(other.client == half_open.client && other.session == half_open.session)
        });
        if self.0.len() == HALF_OPEN_MAX {
            self.0.pop_front();
        }
        self.0.push_back(half_open);
    }

    /// The handshake that a third step belongs to. It stays until a third step has verified: anybody can send one.
    pub(super) fn get_mut(&mut self, connection: u32, path: Path, now: Instant) -> Option<&mut HalfOpen> {
        let is_meant =
            |half: &&mut HalfOpen| half.connection == connection && half.path == path && half.expires_at > now;
        self.0.iter_mut().find(is_meant)
    }

    /// Takes out the handshake that has verified.
    pub(super) fn take(&mut self, connection: u32) -> Option<HalfOpen> {
        let index = self.0.iter().position(|half| half.connection == connection)?;
        self.0.remove(index)
    }

    /// Ends what a client has begun.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.0.retain(|half| half.client != client);
    }

    pub(super) fn has(&self, connection: u32) -> bool {
        self.0.iter().any(|half| half.connection == connection)
    }
}

impl HalfOpen {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        connection: u32,
        path: Path,
        client: ClientId,
        session: u64,
        attempt: u64,
        packet_max_bytes: u32,
        options: Options,
        handshake: Handshake,
        answer: Vec<u8>,
    ) -> Self {
        HalfOpen {
            connection,
            path,
            client,
            session,
            attempt,
            packet_max_bytes,
            options,
            handshake,
            answer,
            has_failed: false,
            failed: Vec::new(),
            expires_at: Instant::ZERO,
        }
    }

    /// Whether this third step did not verify just before.
    pub(super) fn is_repeated(&self, body: &[u8]) -> bool {
        self.failed == body
    }

    /// After a third step that did not verify: whether its sender took part in the handshake, whose keys it then could tell us
    /// its own under, and did not fail before. Garbage, which anybody can send, gets no key to be read.
    pub(super) fn is_first_wrong_password(&mut self, body: &[u8]) -> bool {
        self.failed = body.to_vec();
        let is_first = !self.has_failed && self.handshake.remote_public().is_some();
        self.has_failed |= is_first;
        is_first
    }
}
