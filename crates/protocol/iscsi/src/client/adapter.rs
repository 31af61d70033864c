//! Connections that an RDMA adapter carries: they have no stream, and what has passed only their datamovers know.

use super::{Client, ClientAction, Connection, Stage};
use crate::ConnectionId;
use crate::datamover::{Carried, Datamover};

impl Client {
    /// What has passed over a connection; `None` over TCP, and for one that is not there.
    #[must_use]
    pub fn carried(&self, connection: ConnectionId) -> Option<Carried> {
        self.connections.iter().find(|known| known.id == connection)?.mover()?.carried()
    }

    /// The adapter that carries the session, for people; `None` over TCP, and before that is known.
    #[must_use]
    pub fn adapter(&self) -> Option<String> {
        self.connections.iter().find_map(|known| known.mover()?.adapter())
    }

    /// Why a connection was lost after its login, once: in words for the log, where its adapter knows more than that it has ended.
    pub fn take_trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// After the logout: whether the target has ended a connection, or nobody waits for that any more.
    pub fn is_parted(&mut self, connection: ConnectionId) -> bool {
        self.parting.iter_mut().find(|(parting, _)| *parting == connection).is_none_or(|(_, mover)| {
            mover.filled(0);
            mover.has_failed()
        })
    }

    /// The session is over: its connections are not ended here before the target has ended them (RFC 7143 11.14), or their driver
    /// tells that they are lost.
    pub(super) fn keep_parting(&mut self) {
        let of_adapters =
            |known: &mut Connection| matches!(&known.stage, Stage::Full(link) if link.mover.carried().is_some());
        for Connection { id, stage, .. } in self.connections.extract_if(.., of_adapters) {
            if let Stage::Full(link) = stage {
                self.actions.push_back(ClientAction::Close { connection: id });
                self.parting.push((id, link.mover));
            }
        }
    }
}

impl Connection {
    fn mover(&self) -> Option<&dyn Datamover> {
        match &self.stage {
            Stage::Opening => None,
            Stage::Login(entering) => Some(entering.mover()),
            Stage::Full(link) => Some(&*link.mover),
        }
    }
}
