//! Connections that an RDMA adapter carries: they have no stream, and what has passed only their datamovers know.

use sanwire_core::Instant;

use super::Server;
use crate::ConnectionId;
use crate::datamover::{Carried, Datamover};

impl Server {
    /// The adapter of a connection has something, perhaps, or room: to be called whenever its descriptor is readable, and after
    /// [`Server::poll_ready`] has told of it.
    pub fn handle_ready(&mut self, connection: ConnectionId, now: Instant) {
        if let Some(leaving) = self.shared.closing.get_mut(&connection) {
            return leaving.mover.filled(0);
        }
        let Some(&nexus) = self.shared.homes.get(&connection) else { return };
        let Some(session) = self.sessions.get_mut(nexus) else { return };
        let Some(at) = session.position(connection) else { return };
        let own = &mut session.connections[at];
        let before = received_bytes(&*own.mover);
        own.mover.filled(0);
        if received_bytes(&*own.mover) != before {
            own.heard_at = now;
        }
        if !own.is_waiting() {
            session.handle_input(connection, &mut self.shared, now);
        } else if own.mover.has_failed() {
            session.drop_connection(at, &mut self.shared, now);
        }
        session.answer_settled(&mut self.shared);
        self.settle(nexus);
        self.feed_starved(now);
    }

    /// What has passed over a connection; `None` over TCP, and for one that is not there.
    #[must_use]
    pub fn carried(&self, connection: ConnectionId) -> Option<Carried> {
        self.mover(connection)?.carried()
    }

    /// Whether nothing is left here of what was to be sent on a connection. Over TCP it may be in the hands of its driver.
    #[must_use]
    pub fn is_all_sent(&self, connection: ConnectionId) -> bool {
        self.mover(connection).is_none_or(|mover| mover.is_empty() && mover.queued_bytes() == 0)
    }

    fn mover(&self, connection: ConnectionId) -> Option<&dyn Datamover> {
        if let Some(leaving) = self.shared.closing.get(&connection) {
            return Some(&*leaving.mover);
        }
        let session = self.sessions.get(self.shared.homes.get(&connection)?)?;
        session.position(connection).map(|at| &*session.connections[at].mover)
    }
}

fn received_bytes(mover: &dyn Datamover) -> u64 {
    mover.carried().map_or(0, |carried| carried.received_bytes)
}
