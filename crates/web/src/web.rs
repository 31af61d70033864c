//! The API as a whole: its listeners, its thread, its end.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sanwire_server::WebLinkError;
use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::accounts::{Accounts, FileError};
use crate::address::WebAddress;
use crate::app::{self, App};
use crate::limits::THREADS_MAX;
use crate::listen::Connections;
use crate::management::Desk;
use crate::socket::{self, Socket};
use crate::tls::{CertificateError, Tls};

/// So long a thread is kept that has nothing to do.
const THREAD_KEPT: Duration = Duration::from_secs(10);

/// So long requests under way have when the server ends.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// What the API is told to be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WebConfig {
    /// Where it is reached.
    pub addresses: Vec<WebAddress>,
    /// Names by which the server is called there, beside its addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Where its accounts are kept; without it there are none.
    pub accounts_file: Option<PathBuf>,
    /// A certificate and its key, for all that comes by TCP.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Where the server keeps a certificate that it makes for itself, for what comes from other hosts.
    pub own_certificate: Option<PathBuf>,
    /// Whether other hosts are served without TLS.
    pub is_plaintext: bool,
}

/// Why the API cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// It cannot listen.
    #[error("cannot listen for HTTP on {address}: {source}")]
    Listen {
        /// Where.
        address: WebAddress,
        /// Why.
        source: io::Error,
    },
    /// Anybody could listen, and change what is sent.
    #[error(
        "HTTP on {0} would be open to everybody on the way, and there is no state directory for a certificate: use an address of this \
         host, like 127.0.0.1, or give http-certificate and http-key"
    )]
    Open(WebAddress),
    /// Its certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Its accounts cannot be used.
    #[error(transparent)]
    Accounts(#[from] FileError),
    /// The system has no thread, or no memory.
    #[error("cannot serve HTTP: {0}")]
    Start(#[from] io::Error),
    /// The description of the API cannot be written.
    #[error("cannot describe the HTTP API: {0}")]
    Document(#[from] serde_json::Error),
}

/// A server's API. It ends when this is dropped.
pub struct Web {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Where it is reached, and whether by TLS.
    places: Vec<(WebAddress, bool)>,
    fingerprint: Option<String>,
    accounts: Arc<Accounts>,
    app: Arc<App>,
    /// Sockets that are to go at the end.
    sockets: Vec<Socket>,
}

enum Listener {
    /// With TLS, if there is an acceptor.
    Tcp(TcpListener, Option<TlsAcceptor>),
    Unix(UnixListener),
}

impl WebConfig {
    /// Whether it can be served so, as far as that is known without opening anything.
    ///
    /// # Errors
    /// [`WebError::Open`].
    pub fn check(&self) -> Result<(), WebError> {
        match self.addresses.iter().find(|address| self.needs_own(address)) {
            Some(open) if self.own_certificate.is_none() => Err(WebError::Open(open.clone())),
            _ => Ok(()),
        }
    }

    /// Whether the server's own certificate is needed there.
    fn needs_own(&self, address: &WebAddress) -> bool {
        self.certificate.is_none() && !self.is_plaintext && !address.is_local()
    }

    /// The certificate, if there is need of one.
    fn tls(&self) -> Result<Option<Tls>, CertificateError> {
        match (&self.certificate, &self.own_certificate) {
            (Some((certificate, key)), _) => Tls::load(certificate, key).map(Some),
            (None, Some(path)) if self.addresses.iter().any(|address| self.needs_own(address)) => {
                let mut names = self.hosts.clone();
                names.push("localhost".to_owned());
                let addresses = self.addresses.iter().filter_map(|address| match address {
                    WebAddress::Tcp(address) if !address.ip().is_unspecified() => Some(address.ip().to_string()),
                    _ => None,
                });
                names.extend(addresses);
                Tls::own(path, &names).map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl Web {
    /// Opens the listeners, and serves.
    ///
    /// # Errors
    /// [`WebError`]; then nothing is open.
    pub fn start(config: &WebConfig, desk: Arc<dyn Desk>) -> Result<Self, WebError> {
        config.check()?;
        let accounts = Arc::new(Accounts::load(config.accounts_file.clone())?);
        let app = App::new(desk, config.hosts.clone(), Arc::clone(&accounts))?;
        let (places, sockets) = (Vec::new(), Vec::new());
        let mut web = Web { stop: None, thread: None, places, fingerprint: None, accounts, app, sockets };
        let tls = config.tls()?;
        let listeners = config.addresses.iter().map(|address| {
            let is_encrypted = config.certificate.is_some() || config.needs_own(address);
            web.open(address, tls.as_ref().filter(|_| is_encrypted).map(|tls| tls.acceptor.clone()))
        });
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        web.fingerprint = tls.map(|tls| tls.fingerprint);
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS_MAX)
            .thread_keep_alive(THREAD_KEPT)
            .thread_name("web-work")
            .build()?;
        let connections = Connections::new(app::router(Arc::clone(&web.app)));
        let (stop, stopped) = oneshot::channel();
        serve(&runtime, listeners, &connections)?;
        drop(connections);
        let thread = thread::Builder::new().name("web".into()).spawn(move || {
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(END_TIMEOUT);
        })?;
        (web.stop, web.thread) = (Some(stop), Some(thread));
        Ok(web)
    }

    /// Where it is reached: also which port it was given, when that was 0.
    #[must_use]
    pub fn addresses(&self) -> Vec<WebAddress> {
        self.places.iter().map(|(address, _)| address.clone()).collect()
    }

    /// The same as URLs.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.places.iter().map(|(address, is_encrypted)| address.url(*is_encrypted)).collect()
    }

    /// The SHA-256 of its certificate, by which a client knows that it speaks with this server.
    #[must_use]
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// A link by which somebody becomes the first administrator within ten minutes; `None` where there is one, where none could be
    /// kept, and where no page can be reached.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn log_in_link(&self) -> io::Result<Option<String>> {
        match self.links()(None) {
            Err(WebLinkError::Random) => Err(io::Error::other(WebLinkError::Random)),
            link => Ok(link.ok()),
        }
    }

    /// What makes links by which the first administrator, or a user by its name, chooses a password, once and within ten minutes. The code
    /// stands where no server and no log sees it.
    pub fn links(&self) -> impl Fn(Option<&str>) -> Result<String, WebLinkError> + Send + Sync + use<> {
        let mut places = self.places.iter().filter(|(address, _)| matches!(address, WebAddress::Tcp(_)));
        let url = places.next().map(|(address, is_encrypted)| address.url(*is_encrypted));
        let accounts = Arc::clone(&self.accounts);
        move |user| {
            let url = url.as_ref().ok_or(WebLinkError::Off)?;
            match accounts.new_code(user).map_err(|_| WebLinkError::Random)? {
                Some(code) => Ok(format!("{url}/#code={}", code.text())),
                None => Err(match user {
                    Some(name) => WebLinkError::NoUser(name.to_owned()),
                    None if accounts.contents().has_administrator() => WebLinkError::Begun,
                    None => WebLinkError::Off,
                }),
            }
        }
    }

    /// What the metrics tell of it, in the text of OpenMetrics.
    pub fn metrics(&self) -> impl Fn() -> String + Send + Sync + use<> {
        let app = Arc::clone(&self.app);
        move || app.counts.text(app.news.listeners())
    }

    fn open(&mut self, address: &WebAddress, tls: Option<TlsAcceptor>) -> Result<Listener, WebError> {
        let failed = |source| WebError::Listen { address: address.clone(), source };
        match address {
            WebAddress::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                self.places.push((WebAddress::Tcp(listener.local_addr().map_err(failed)?), tls.is_some()));
                Ok(Listener::Tcp(listener, tls))
            }
            WebAddress::Unix(path) => {
                let (listener, socket) = socket::open(path).map_err(failed)?;
                self.sockets.push(socket);
                self.places.push((address.clone(), false));
                Ok(Listener::Unix(listener))
            }
        }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        // The thread has ended when nobody hears it.
        let _ = self.stop.take().map(|stop| stop.send(()));
        // What has panicked there has told so.
        let _ = self.thread.take().map(JoinHandle::join);
        self.sockets.clear();
    }
}

/// Has the listeners served by the runtime, once it runs.
fn serve(runtime: &Runtime, listeners: Vec<Listener>, connections: &Connections) -> io::Result<()> {
    let _guard = runtime.enter();
    for listener in listeners {
        let connections = connections.clone();
        match listener {
            Listener::Tcp(listener, tls) => {
                runtime.spawn(connections.serve_tcp(tokio::net::TcpListener::from_std(listener)?, tls));
            }
            Listener::Unix(listener) => {
                runtime.spawn(connections.serve_unix(tokio::net::UnixListener::from_std(listener)?));
            }
        }
    }
    Ok(())
}
