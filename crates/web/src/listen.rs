//! Listeners and connections: who may have how many, and how long they may take.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::{sleep, timeout};
use tokio_rustls::{Accept, TlsAcceptor};
use tower::ServiceExt;

use crate::caller::Peer;
use crate::limits::{
    CONNECTIONS_MAX, CONNECTIONS_OF_ADDRESS_MAX, HANDSHAKE_TIMEOUT, HEADERS_MAX_BYTES, HEADERS_TIMEOUT, STREAMS_MAX,
    WRITE_TIMEOUT,
};
use crate::patient::Patient;

/// A pause after the system has refused a connection: mostly there are no descriptors left.
const REFUSED_PAUSE: Duration = Duration::from_millis(200);

/// A server's connections.
#[derive(Clone)]
pub(crate) struct Connections {
    router: Router,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    all: usize,
    of_addresses: BTreeMap<IpAddr, usize>,
}

/// The place of one connection.
struct Place {
    held: Arc<Mutex<Held>>,
    address: Option<IpAddr>,
}

impl Connections {
    pub(crate) fn new(router: Router) -> Self {
        Connections { router, held: Arc::default() }
    }

    /// Serves who comes by TCP.
    pub(crate) async fn serve_tcp(self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    let peer = Peer::Tcp { address, is_encrypted: tls.is_some() };
                    let Some(place) = self.enter(Some(address.ip())) else { continue };
                    let _ = stream.set_nodelay(true);
                    match &tls {
                        None => self.spawn(stream, peer, place),
                        Some(tls) => self.spawn_tls(tls.accept(stream), peer, place),
                    }
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Serves who comes by a unix socket.
    pub(crate) async fn serve_unix(self, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let Ok(process) = stream.peer_cred() else { continue };
                    let peer = Peer::Unix { uid: process.uid(), pid: process.pid().unwrap_or_default() };
                    let Some(place) = self.enter(None) else { continue };
                    self.spawn(stream, peer, place);
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    /// A place for one more connection, if there is one.
    fn enter(&self, address: Option<IpAddr>) -> Option<Place> {
        let mut held = lock(&self.held);
        let of_address = address.map_or(0, |address| held.of_addresses.get(&address).copied().unwrap_or(0));
        if held.all >= CONNECTIONS_MAX || of_address >= CONNECTIONS_OF_ADDRESS_MAX {
            tracing::debug!("a connection by HTTP is refused: there are too many");
            return None;
        }
        held.all += 1;
        address.into_iter().for_each(|address| *held.of_addresses.entry(address).or_default() += 1);
        Some(Place { held: Arc::clone(&self.held), address })
    }

    fn spawn_tls(&self, accept: Accept<TcpStream>, peer: Peer, place: Place) {
        let connections = self.clone();
        tokio::spawn(async move {
            match timeout(HANDSHAKE_TIMEOUT, accept).await {
                Ok(Ok(stream)) => connections.serve(stream, peer, place).await,
                Ok(Err(error)) => tracing::debug!("a TLS handshake has failed: {error}"),
                Err(_) => tracing::debug!("a TLS handshake has taken too long"),
            }
        });
    }

    fn spawn(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer, place: Place) {
        let connections = self.clone();
        tokio::spawn(async move { connections.serve(stream, peer, place).await });
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer, _place: Place) {
        let router = self.router.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            router.clone().oneshot(request)
        });
        let stream = TokioIo::new(Patient::new(stream, WRITE_TIMEOUT));
        if let Err(error) = builder().serve_connection(stream, service).await {
            tracing::debug!("a connection by HTTP has ended: {error}");
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS_TIMEOUT).max_buf_size(HEADERS_MAX_BYTES);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX).keep_alive_interval(HEADERS_TIMEOUT);
    http2.max_header_list_size(u32::try_from(HEADERS_MAX_BYTES).unwrap_or(u32::MAX)).keep_alive_timeout(WRITE_TIMEOUT);
    builder
}

async fn pause(error: &io::Error) {
    tracing::warn!("a connection by HTTP cannot be taken: {error}");
    sleep(REFUSED_PAUSE).await;
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        held.all -= 1;
        let Some(address) = self.address else { return };
        if let Some(count) = held.of_addresses.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                held.of_addresses.remove(&address);
            }
        }
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    // It is whole between any two changes.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_does_not_take_all_connections() {
        let connections = Connections::new(Router::new());
        let enter = |last: u8| connections.enter(Some(IpAddr::from([10, 0, 0, last])));
        let of_one: Vec<Place> = std::iter::from_fn(|| enter(1)).collect();
        assert_eq!(of_one.len(), CONNECTIONS_OF_ADDRESS_MAX);
        let mut others: Vec<Place> = (2..=255).filter_map(enter).collect();
        others.extend((2..=255).filter_map(enter));
        assert_eq!(of_one.len() + others.len(), CONNECTIONS_MAX);
        drop(of_one);
        assert!(enter(1).is_some());
        drop(others);
        let held = lock(&connections.held);
        assert_eq!((held.all, held.of_addresses.len()), (0, 0));
    }
}
