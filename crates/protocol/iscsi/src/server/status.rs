//! How sessions are doing, for people.

use sanwire_core::NexusId;

use super::Server;
use super::session::Session;
use crate::digest::Digests;

/// One session as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionStatus {
    /// Its nexus.
    pub nexus: NexusId,
    /// Its connections.
    pub connections: usize,
    /// Whether its initiator has shown who it is.
    pub is_authenticated: bool,
    /// What all of its connections carry; without one, nothing.
    pub digests: Digests,
}

impl Server {
    /// How the sessions with targets are doing.
    pub fn session_statuses(&self) -> impl Iterator<Item = SessionStatus> {
        self.sessions.values().filter(|session| session.target().is_some()).map(Session::status)
    }
}

impl Session {
    fn status(&self) -> SessionStatus {
        let connections = &self.connections;
        let all = |has: fn(&Digests) -> bool| {
            !connections.is_empty() && connections.iter().all(|connection| has(&connection.parameters.digests))
        };
        let digests = Digests { header: all(|digests| digests.header), data: all(|digests| digests.data) };
        let is_authenticated = self.owner.has_shown_user();
        SessionStatus { nexus: self.nexus, connections: connections.len(), is_authenticated, digests }
    }
}
