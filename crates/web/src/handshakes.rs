//! Handshakes of TLS. What they compute is done beside the thread of HTTP, one at a time ([`HANDSHAKES_MAX`]), and the networks take
//! turns: who begins many waits for itself.
//!
//! [`HANDSHAKES_MAX`]: crate::limits::HANDSHAKES_MAX

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex as Lock, PoisonError, Weak};

use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// The turns of all.
#[derive(Clone, Default)]
pub(crate) struct Handshakes {
    turn: Arc<Mutex<()>>,
    of_networks: Arc<Lock<Networks>>,
}

/// Those of the networks that have any.
type Networks = BTreeMap<Option<IpAddr>, Weak<Mutex<()>>>;

/// The turn of one.
struct Turn {
    _of_all: OwnedMutexGuard<()>,
    _of_network: OwnedMutexGuard<()>,
}

impl Handshakes {
    /// Makes a stream of TLS, with the configuration as it is when the client has said what it wants.
    pub(crate) async fn shake(
        &self,
        stream: TcpStream,
        network: Option<IpAddr>,
        config: impl FnOnce() -> Arc<ServerConfig>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let (turn, config) = (self.turn(network).await, config());
        let compute = move || {
            let accept = hello.into_stream(config);
            // Not sooner, also where nobody waits for it any more.
            drop(turn);
            accept
        };
        tokio::task::spawn_blocking(compute).await.map_err(io::Error::other)?.await
    }

    /// One of a network waits for the others, and the others of that network for it.
    async fn turn(&self, network: Option<IpAddr>) -> Turn {
        let own = {
            let mut of_networks = self.of_networks.lock().unwrap_or_else(PoisonError::into_inner);
            of_networks.retain(|_, turn| turn.strong_count() > 0);
            let known = of_networks.get(&network).and_then(Weak::upgrade);
            let own = known.unwrap_or_default();
            of_networks.insert(network, Arc::downgrade(&own));
            own
        };
        let of_network = own.lock_owned().await;
        Turn { _of_all: Arc::clone(&self.turn).lock_owned().await, _of_network: of_network }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_with_many_handshakes_waits_for_itself() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handshakes = Handshakes::default();
        let order = Arc::new(Lock::new(Vec::new()));
        let network = |last: u8| Some(IpAddr::from([192, 0, 2, last]));
        runtime.block_on(async {
            let first = handshakes.turn(network(9)).await;
            let mut all = Vec::new();
            for last in [1; 100].into_iter().chain([2, 3]) {
                let (handshakes, order) = (handshakes.clone(), Arc::clone(&order));
                all.push(tokio::spawn(async move {
                    let _turn = handshakes.turn(network(last)).await;
                    order.lock().unwrap().push(last);
                }));
                tokio::task::yield_now().await;
            }
            drop(first);
            for task in all {
                task.await.unwrap();
            }
            drop(handshakes.turn(None).await);
        });
        let order = order.lock().unwrap();
        assert_eq!((&order[..4], order.len()), (&[1, 2, 3, 1][..], 102));
        assert_eq!(handshakes.of_networks.lock().unwrap().len(), 1, "networks that have none are forgotten");
    }
}
