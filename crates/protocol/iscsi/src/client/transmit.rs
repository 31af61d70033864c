//! What is to be sent, connection by connection.

use sanwire_buffer::Packet;

use super::{Client, Connection, Stage};
use crate::ConnectionId;

impl Client {
    /// A connection that has something to send: told once, until [`Client::poll_transmit`] has nothing more for it.
    pub fn poll_ready(&mut self) -> Option<ConnectionId> {
        let ready = self.connections.iter_mut().find(|known| !known.is_announced && known.has_output())?;
        ready.is_announced = true;
        Some(ready.id)
    }

    /// The next bytes to send on a connection.
    pub fn poll_transmit(&mut self, connection: ConnectionId) -> Option<Packet> {
        let known = self.connections.iter_mut().find(|known| known.id == connection)?;
        let packet = match &mut known.stage {
            Stage::Opening => None,
            Stage::Login(entering) => entering.poll_transmit(),
            Stage::Full(link) => link.poll_transmit(),
        };
        known.is_announced = packet.is_some();
        packet
    }
}

impl Connection {
    fn has_output(&self) -> bool {
        match &self.stage {
            Stage::Opening => false,
            Stage::Login(entering) => entering.has_output(),
            Stage::Full(link) => link.has_output(),
        }
    }
}
