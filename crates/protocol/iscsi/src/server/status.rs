//! How sessions are doing, for people.

use sanwire_core::NexusId;

use super::Server;
use crate::digest::Digests;

/// One session as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionStatus {
    /// Its connections.
    pub connections: usize,
    /// What all of them carry; without one, nothing.
    pub digests: Digests,
}

impl Server {
    /// How a session is doing, if it is there.
    #[must_use]
    pub fn session_status(&self, nexus: NexusId) -> Option<SessionStatus> {
        let connections = &self.sessions.get(&nexus)?.connections;
        let all = |has: fn(&Digests) -> bool| {
            !connections.is_empty() && connections.iter().all(|connection| has(&connection.parameters.digests))
        };
        let digests = Digests { header: all(|digests| digests.header), data: all(|digests| digests.data) };
        Some(SessionStatus { connections: connections.len(), digests })
    }
}
