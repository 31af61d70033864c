//! Further links of connections.

use sanwire_core::{Instant, Path};

use super::{SecurityEvent, Server};
use crate::wire::RawPacket;
use crate::wire::links::Address;

impl Server {
    /// The server can be reached at these addresses from now on. Clients are told, if there are others among them than before: how
    /// fast a link is may change all the time.
    pub fn set_addresses(&mut self, addresses: Vec<Address>, now: Instant) {
        let has = |all: &[Address], one: &Address| all.iter().any(|known| known.peer == one.peer);
        let before = &self.config.addresses;
        if before.len() == addresses.len() && addresses.iter().all(|one| has(before, one)) {
            return;
        }
        self.config.addresses = addresses;
        let ids: Vec<u32> = self.connections.keys().copied().collect();
        for id in ids {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.report_anew(now);
            }
            self.rouse(id);
        }
    }

    /// A client asks on a path whether it may be a link: the one kind of packet that is looked at wherever it comes from.
    pub(super) fn handle_report(&mut self, path: Path, packet: &RawPacket<'_>, now: Instant) {
        let id = packet.prefix.connection;
        let own = (self.link(path), self.random.u64());
        let Some(connection) = self.connections.get_mut(&id) else {
            self.unknown_connection(path, id, now);
            return;
        };
        connection.received_packets += 1;
        let before = connection.channel.capacity();
        let Some(plain) = connection.channel.open(packet, now) else {
            let nexus = connection.nexus;
            self.note_offence_of(nexus, SecurityEvent::NotAuthentic, path, now);
            return;
        };
        // Clients have no addresses to tell.
        drop(connection.channel.handle_report(&plain, path, own, now));
        // Another link takes more.
        if connection.channel.capacity() != before {
            let client = self.sessions.get(&connection.nexus).map(|session| session.client);
            client.into_iter().for_each(|client| self.sharing.note(client));
            self.settle_shares(now);
        }
        self.touch(id);
    }
}
