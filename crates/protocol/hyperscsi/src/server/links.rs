//! Further links of connections.

use sanwire_core::{Instant, Path};

use super::{Offence, Server};
use crate::wire::RawPacket;

impl Server {
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
            self.note_offence_of(nexus, Offence::NotAuthentic, path, now);
            return;
        };
        // Clients have no addresses to tell.
        drop(connection.channel.handle_report(&plain, path, own, now));
        // Another link takes more.
        if connection.channel.capacity() != before {
            self.share_windows(now);
        }
        self.touch(id);
    }
}
