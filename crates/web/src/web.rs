//! The API as a whole: its listeners, its thread, its end.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use sanwire_io::unix::{self, SocketPlace};
use sanwire_server::WebLinkError;
use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;

use crate::accounts::{Accounts, FileError};
use crate::address::WebAddress;
use crate::app::{self, App};
use crate::config::WebConfig;
use crate::limits::{THREADS_MAX, Times};
use crate::listen::Connections;
use crate::management::Desk;
use crate::tls::{CertificateError, Certificates, DAY};

/// What [`stand_back`] adds to a thread's niceness.
const NICENESS: i32 = 10;
/// So long a thread is kept that has nothing to do.
const THREAD_KEPT: Duration = Duration::from_secs(10);

/// So long requests under way have when the server ends.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// Why the API cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// It cannot listen.
    #[error("cannot listen for HTTP on {address}: {source}{}", advice(address, source))]
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

fn advice(address: &WebAddress, source: &io::Error) -> &'static str {
    match address {
        WebAddress::Tcp(_) => sanwire_server::listening_advice(source),
        WebAddress::Unix(_) => "",
    }
}

/// A server's API. It ends when this is dropped.
pub struct Web {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Where it is reached, and whether by TLS.
    places: Vec<(WebAddress, bool)>,
    certificates: Option<Certificates>,
    /// As it was told to be.
    begun: WebConfig,
    accounts: Arc<Accounts>,
    app: Arc<App>,
    /// Sockets that are to go at the end.
    sockets: Vec<SocketPlace>,
}

enum Listener {
    /// With TLS, if there is a certificate.
    Tcp(TcpListener, Option<Certificates>),
    Unix(UnixListener),
}

impl Web {
    /// Opens the listeners, and serves.
    ///
    /// # Errors
    /// [`WebError`]; then nothing is open.
    pub fn start(config: &WebConfig, desk: Arc<dyn Desk>) -> Result<Self, WebError> {
        Web::start_with(config, desk, Times::default())
    }

    /// The same, where those at the other end may take so long.
    pub(crate) fn start_with(config: &WebConfig, desk: Arc<dyn Desk>, times: Times) -> Result<Self, WebError> {
        config.check()?;
        let accounts = Arc::new(Accounts::load(config.accounts_file.clone())?);
        let app = App::new(desk, config.hosts.clone(), Arc::clone(&accounts))?;
        let (places, sockets) = (Vec::new(), Vec::new());
        let begun = config.clone();
        let mut web = Web { stop: None, thread: None, places, begun, certificates: None, accounts, app, sockets };
        web.certificates = config.tls()?.map(Certificates::new);
        let certificates = web.certificates.clone();
        let listeners = config.addresses.iter().map(|address| {
            let is_encrypted = config.certificate.is_some() || config.needs_own(address);
            web.open(address, certificates.clone().filter(|_| is_encrypted))
        });
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS_MAX)
            .thread_keep_alive(THREAD_KEPT)
            .thread_name("web-work")
            .on_thread_start(stand_back)
            .build()?;
        let connections = Connections::new(app::router(Arc::clone(&web.app)), times);
        let (stop, stopped) = oneshot::channel();
        serve(&runtime, listeners, &connections)?;
        runtime.spawn(warn_daily(certificates));
        drop(connections);
        let thread = thread::Builder::new().name("web".into()).spawn(move || {
            stand_back();
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
    pub fn fingerprint(&self) -> Option<String> {
        self.certificates.as_ref().map(|certificates| certificates.now().fingerprint.clone())
    }

    /// What reads the certificate again, which stands in files, and takes it for connections from then on. What that has changed, or
    /// could not be changed while it runs, is told, a line for each thing.
    pub fn renewal(&self) -> impl Fn(&WebConfig) -> Vec<String> + Send + Sync + use<> {
        let (certificates, begun) = (self.certificates.clone(), self.begun.clone());
        move |now| begun.renew(now, certificates.as_ref())
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
        let certificates = self.certificates.clone();
        move || {
            let end = certificates.as_ref().and_then(|certificates| certificates.now().end());
            app.counts.text(app.news.listeners(), end)
        }
    }

    fn open(&mut self, address: &WebAddress, tls: Option<Certificates>) -> Result<Listener, WebError> {
        let failed = |source| WebError::Listen { address: address.clone(), source };
        match address {
            WebAddress::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                self.places.push((WebAddress::Tcp(listener.local_addr().map_err(failed)?), tls.is_some()));
                Ok(Listener::Tcp(listener, tls))
            }
            WebAddress::Unix(path) => {
                let (listener, place) = unix::listen(path).map_err(|error| failed(error.into()))?;
                listener.set_nonblocking(true).map_err(failed)?;
                self.sockets.push(place);
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

/// Says that the certificate ends soon, when the server starts and each day.
async fn warn_daily(certificates: Option<Certificates>) {
    let Some(certificates) = certificates else { return };
    loop {
        if let Some(warning) = certificates.now().warning(SystemTime::now()) {
            tracing::warn!("{warning}");
        }
        tokio::time::sleep(DAY).await;
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

/// Has this thread stand behind those that serve volumes when there are fewer cores than work. It is not starved: of a core that is
/// taken whole it keeps a tenth, so that who manages a host that is busy is let in before they give up.
fn stand_back() {
    // Where it is refused, requests for management cost those for data more.
    let _ = rustix::process::nice(NICENESS);
}
