//! What goes wrong with connections.

use sanwire_core::Instant;
use sanwire_iscsi::ConnectionId;

use super::wire::World;
use super::wires::ServerEnd;

impl World {
    /// Cuts one connection; who does not notice it sends into the void.
    pub(super) fn cut_one(&mut self, is_noticed_by_server: bool, is_noticed_by_client: bool) {
        let open: Vec<ConnectionId> =
            self.wire.connections.iter().filter(|(_, w)| w.is_clients).map(|(id, _)| *id).collect();
        if open.is_empty() {
            return;
        }
        let Some(wire) = self.wire.connections.get_mut(&self.random.choose(&open)) else { return };
        if let Some(line) = &wire.line {
            return line.cable.cut([is_noticed_by_client, is_noticed_by_server]);
        }
        wire.there.cut(is_noticed_by_server, &mut self.random, self.now);
        wire.back.cut(is_noticed_by_client, &mut self.random, self.now);
    }

    /// The server is gone, and its ends of all connections with it.
    pub(super) fn sever_all(&mut self) {
        for wire in self.wire.connections.values_mut() {
            wire.server = ServerEnd::Gone;
            wire.back.cut(true, &mut self.random, self.now);
        }
    }

    /// Nothing passes for a client until then.
    pub(super) fn stall(&mut self, client: usize, until: Instant) {
        self.wire.stalled.insert(client, until);
        for wire in self.wire.connections.values_mut().filter(|wire| wire.client == client) {
            wire.there.stall(until);
            wire.back.stall(until);
            wire.line.iter_mut().for_each(|line| line.turns_at = line.turns_at.max(until));
        }
    }
}
