//! How sessions are doing, for people.

use sanwire_core::{Movement, NexusId};

use super::Server;
use super::movement::Movements;
use super::session::Session;
use crate::ConnectionId;
use crate::digest::Digests;
use crate::login::Portal;

/// One session as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionStatus<'a> {
    /// Its nexus.
    pub nexus: NexusId,
    /// Its connections.
    pub connections: usize,
    /// The portal to which its first connection came.
    pub portal: Portal,
    /// The CHAP user that its initiator has shown to be.
    pub user: Option<&'a str>,
    /// What all of its connections carry; without one, nothing.
    pub digests: Digests,
    /// How the data that its initiator has sent came to its place, on the connections that it has now.
    pub movement: Movement,
    /// The RDMA adapter that carries its first connection, for people, if one does.
    pub adapter: Option<String>,
}

impl Server {
    /// How the sessions with targets are doing.
    pub fn session_statuses(&self) -> impl Iterator<Item = SessionStatus<'_>> {
        self.sessions.values().filter(|session| session.target().is_some()).map(Session::status)
    }

    /// The portal to which the first connection of a session came.
    #[must_use]
    pub fn portal(&self, nexus: NexusId) -> Option<Portal> {
        self.sessions.get(&nexus).map(|session| session.portal)
    }

    /// The segments of a connection's TCP have so many bytes: to be told once it is admitted.
    pub fn note_segment_bytes(&mut self, connection: ConnectionId, segment_bytes: usize) {
        if let Some(connection) = self.connection(connection) {
            connection.mover.note_segment_bytes(segment_bytes);
        }
    }

    /// How the data has come that initiators have sent since the server began.
    #[must_use]
    pub fn movements(&self) -> Movements {
        let mut sums = self.shared.movements;
        let connections = self.sessions.values().flat_map(|session| &session.connections);
        connections.for_each(|connection| sums.add(&connection.mover.movement()));
        sums
    }
}

impl Session {
    fn status(&self) -> SessionStatus<'_> {
        let connections = &self.connections;
        let all = |has: fn(&Digests) -> bool| {
            !connections.is_empty() && connections.iter().all(|connection| has(&connection.parameters.digests))
        };
        let digests = Digests { header: all(|digests| digests.header), data: all(|digests| digests.data) };
        let (portal, user) = (self.portal, self.owner.user());
        let mut movement = Movement::default();
        connections.iter().for_each(|connection| movement.add(&connection.mover.movement()));
        let adapter = connections.first().and_then(|connection| connection.mover.adapter());
        SessionStatus { nexus: self.nexus, connections: connections.len(), portal, user, digests, movement, adapter }
    }
}
