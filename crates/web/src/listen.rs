//! Listeners and connections: who may have how many, and how long they may take.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use futures_util::future::{Either, select};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use crate::activity::Activity;
use crate::answer::Answer;
use crate::caller::Peer;
use crate::handshakes::Handshakes;
use crate::limits::{GOODBYE_TIMEOUT, HANDSHAKE_TIMEOUT, HEADERS_MAX_BYTES, STREAMS_MAX, Times};
use crate::patient::Patient;
use crate::places::{Place, Places};
use crate::tls::Certificates;

/// A pause after the system has refused a connection: mostly there are no descriptors left.
const REFUSED_PAUSE: Duration = Duration::from_millis(200);

/// A server's connections.
#[derive(Clone)]
pub(crate) struct Connections {
    router: Router,
    places: Places,
    handshakes: Handshakes,
    /// So long those at the other end may take.
    times: Times,
}

impl Connections {
    pub(crate) fn new(router: Router, times: Times) -> Self {
        Connections { router, places: Places::default(), handshakes: Handshakes::default(), times }
    }

    /// Serves who comes by TCP.
    pub(crate) async fn serve_tcp(self, listener: TcpListener, tls: Option<Certificates>) {
        let port = listener.local_addr().map_or(0, |address| address.port());
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    let peer = Peer::Tcp { address, is_encrypted: tls.is_some(), port };
                    let Some(place) = self.enter(&peer) else { continue };
                    let _ = stream.set_nodelay(true);
                    match &tls {
                        None => self.spawn(stream, peer, place),
                        Some(tls) => self.spawn_tls(stream, tls.clone(), peer, place),
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
                    let Some(place) = self.enter(&peer) else { continue };
                    self.spawn(stream, peer, place);
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    fn enter(&self, peer: &Peer) -> Option<Arc<Place>> {
        let place = self.places.enter(peer.network());
        if place.is_none() {
            tracing::debug!("a connection by HTTP is refused: there are too many");
        }
        place
    }

    fn spawn_tls(&self, stream: TcpStream, tls: Certificates, peer: Peer, place: Arc<Place>) {
        let connections = self.clone();
        tokio::spawn(async move {
            let shake = connections.handshakes.shake(stream, peer.network(), || tls.config());
            match timeout(HANDSHAKE_TIMEOUT, shake).await {
                Ok(Ok(stream)) => connections.serve(stream, peer, place).await,
                Ok(Err(error)) => tracing::debug!("a TLS handshake has failed: {error}"),
                Err(_) => tracing::debug!("a TLS handshake has taken too long"),
            }
        });
    }

    fn spawn(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer, place: Arc<Place>) {
        let connections = self.clone();
        tokio::spawn(async move { connections.serve(stream, peer, place).await });
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer, place: Arc<Place>) {
        let (router, times) = (self.router.clone(), self.times);
        let activity = Activity::new(times.silence);
        let own = Arc::clone(&activity);
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            request.extensions_mut().insert(Arc::clone(&place));
            request.extensions_mut().insert(times);
            let (busy, place) = (own.begin(), Arc::clone(&place));
            let answered = router.clone().oneshot(request);
            async move { answered.await.map(|response| Answer::response(response, busy, &place)) }
        });
        let (builder, stream) = (builder(times), TokioIo::new(Patient::new(stream, times.silence)));
        let connection = pin!(builder.serve_connection(stream, service));
        let ended = match select(connection, pin!(activity.silence())).await {
            Either::Left((ended, _)) => ended,
            Either::Right(((), mut connection)) => {
                tracing::debug!("a connection by HTTP is closed: nothing goes on over it");
                connection.as_mut().graceful_shutdown();
                timeout(GOODBYE_TIMEOUT, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            tracing::debug!("a connection by HTTP has ended: {error}");
        }
    }
}

fn builder(times: Times) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(times.headers).max_buf_size(HEADERS_MAX_BYTES);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX).keep_alive_interval(times.headers);
    http2.max_header_list_size(u32::try_from(HEADERS_MAX_BYTES).unwrap_or(u32::MAX)).keep_alive_timeout(times.silence);
    builder
}

async fn pause(error: &io::Error) {
    tracing::warn!("a connection by HTTP cannot be taken: {error}");
    sleep(REFUSED_PAUSE).await;
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use axum::routing::get;

    use super::*;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    /// SETTINGS: nothing. SETTINGS: the window of a stream has so many bytes. HEADERS: GET http://a/ as stream 1.
    const NOTHING: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    const WINDOW_0: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    const WINDOW_1: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1];
    const GET: &[u8] = &[0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x84, 0x86, 0x41, 1, b'a'];

    /// What a client is sent that sends this and then nothing, until it is closed.
    fn told(sent: &[u8]) -> Vec<u8> {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(sent).unwrap();
        let serving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let router = Router::new().route("/", get(async || "x".repeat(100_000)));
                let times = Times { silence: Duration::from_millis(100), ..Times::default() };
                let connections = Connections::new(router, times);
                let peer = Peer::Unix { uid: 0, pid: 1 };
                let place = connections.enter(&peer).unwrap();
                server.set_nonblocking(true).unwrap();
                connections.serve(tokio::net::UnixStream::from_std(server).unwrap(), peer, place).await;
                assert!(connections.enter(&Peer::Unix { uid: 0, pid: 1 }).is_some());
            });
        });
        let mut told = Vec::new();
        // What was not read by the server resets it.
        let _ = client.read_to_end(&mut told);
        serving.join().unwrap();
        told
    }

    #[test]
    fn a_connection_on_which_nothing_goes_on_is_closed() {
        let h2 = |frames: &[&[u8]]| [PREFACE, &frames.concat()].concat();
        for silent in
            [&b""[..], b"PRI", b"PRI * HTTP/2.0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n", &h2(&[]), &h2(&[NOTHING])]
        {
            assert!(!told(silent).windows(3).any(|part| part == b"xxx"), "{silent:?}");
        }
        let whole = told(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(whole.ends_with(b"xxx") && whole.len() > 100_000, "and only then");
        assert!(told(&h2(&[NOTHING, GET])).len() > 65_000, "as much as fits into its window");
    }

    #[test]
    fn an_answer_of_http_2_that_nobody_takes_ends_its_connection() {
        for settings in [WINDOW_0, WINDOW_1] {
            let told = told(&[PREFACE, settings, GET].concat());
            assert!(told.iter().filter(|byte| **byte == b'x').count() < 10, "{settings:?}");
        }
    }

    #[test]
    fn what_an_answer_holds_comes_back_when_it_is_sent() {
        let connections = Connections::new(Router::new(), Times::default());
        let place = connections.enter(&Peer::Unix { uid: 0, pid: 1 }).unwrap();
        let activity = Activity::new(Duration::from_secs(1));
        let answer = |length: usize| {
            let response = axum::response::Response::new(Body::from(vec![b'x'; length]));
            Answer::response(response, activity.begin(), &place)
        };
        let all = answer(crate::limits::MEMORY_OF_NETWORK_MAX_BYTES);
        assert_eq!(all.status(), 200);
        assert_eq!(answer(1).status(), 503, "there is no room for another one");
        drop(all);
        assert_eq!(answer(1).status(), 200);
    }
}
