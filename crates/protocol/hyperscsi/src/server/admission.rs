//! What a server must know of its clients.

use sanwire_core::{ClientId, Peer};

use crate::keys::Psk;
use crate::options::DesiredOptions;

/// Who may connect, and on which terms. Asked at handshakes and when windows are shared, never on the way of data; what it
/// says may change at any time.
///
/// A closure that answers [`Admission::permits`] is one, without terms of its own for anybody.
pub trait Admission: Send {
    /// Whether a client may connect. It is asked with the address alone before the peer has named itself.
    fn permits(&self, peer: Peer, client: Option<ClientId>) -> bool;

    /// Whether this very client is listed, so that nobody else can come under its id: it does not wait when others guess passwords.
    fn is_listed(&self, client: ClientId) -> bool {
        let _ = client;
        false
    }

    /// The secret that this client must know instead of the server's.
    fn psk(&self, client: ClientId) -> Option<Psk> {
        let _ = client;
        None
    }

    /// Packets that may be in flight to and from this client, each way, at the most.
    fn window_max_packets(&self, client: ClientId) -> Option<u32> {
        let _ = client;
        None
    }

    /// How much of what is shared this client gets, beside the others; at least 1.
    fn weight(&self, client: ClientId) -> u16 {
        let _ = client;
        1
    }

    /// What the server wants of connections with this client.
    fn wishes(&self, client: ClientId) -> DesiredOptions {
        let _ = client;
        DesiredOptions::default()
    }
}

impl<F: Fn(Peer, Option<ClientId>) -> bool + Send> Admission for F {
    fn permits(&self, peer: Peer, client: Option<ClientId>) -> bool {
        self(peer, client)
    }
}
