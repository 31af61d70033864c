//! What the protocol asks about clients.

use std::sync::Arc;

use sanwire_core::{ClientId, Peer};
use sanwire_hyperscsi::{Admission, DesiredOptions, Psk};

use super::Clients;

/// What the protocol asks, of the clients as they are at that moment.
pub(crate) struct Gate(pub(crate) Arc<Clients>);

impl Admission for Gate {
    fn permits(&self, peer: Peer, client: Option<ClientId>) -> bool {
        self.0.permits(peer, client)
    }

    fn is_listed(&self, client: ClientId) -> bool {
        self.0.is_listed(client)
    }

    fn psk(&self, client: ClientId) -> Option<Psk> {
        Some(self.0.psk(client))
    }

    fn window_max_packets(&self, client: ClientId) -> Option<u32> {
        self.0.table.load().get(client)?.window_packets
    }

    fn weight(&self, client: ClientId) -> u16 {
        self.0.table.load().get(client).map_or(1, |client| client.weight)
    }

    fn wishes(&self, client: ClientId) -> DesiredOptions {
        let table = self.0.table.load();
        let known = table.get(client);
        let compression = known.and_then(|client| client.compression).unwrap_or(table.compression);
        let Some(client) = known else {
            return DesiredOptions { compression: compression.into(), ..DesiredOptions::default() };
        };
        DesiredOptions {
            compression: compression.into(),
            read_only: client.read_only,
            medium_lock: client.lock_media,
            transfer_max_bytes: client.transfer_max_bytes,
            rate_cap_bytes_per_second: client.cap_bytes_per_second,
            priority: client.priority,
            ..DesiredOptions::default()
        }
    }
}
