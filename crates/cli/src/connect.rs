//! From what the user wrote to an open volume: the one place of this program that makes clients.

mod protocol_options;

use std::cell::RefCell;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use sanwire_core::{Movement, Outages};
use sanwire_hyperscsi::Identity;
use sanwire_initiator::{
    Claims, Client, ClientOptions, ConnectError, IscsiOptions, LinkStatus, Looker, OptionChanges, Pauser, Server, Url,
    Volume, VolumeInfo,
};
use sanwire_iscsi::{ChapSecret, Credential, DesiredParameters};

use crate::args::{ClientArgs, IscsiArgs, Patience, ReachArgs};
use crate::config::{read_password, state_directory};
use crate::failure::misuse;
use crate::known_servers::KnownServers;
use crate::{keys, rdma};

pub(crate) use self::protocol_options::check_protocol;

/// How long a server is sought at first: a wrong address should not take a minute to show.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long operations wait for a server that is away.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks for what a server is sought by: its name, or an interface.
const TRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long a program that ends waits for its connection to say goodbye, and where it has reserved something, to release that.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);
const RELEASE_TIMEOUT: Duration = Duration::from_millis(2500);

/// A client that is connected to one server.
pub(crate) struct Connection(RefCell<Client>);

impl Connection {
    /// Connects to the server of the URL.
    pub(crate) fn open(url: &Url, args: &ClientArgs) -> anyhow::Result<Self> {
        Connection::open_as(url, &options(args, &url.server)?)
    }

    /// Connects to the server of the URL, to ask it nothing but what is asked in band.
    pub(crate) fn open_to_manage(url: &Url, args: &ReachArgs) -> anyhow::Result<Self> {
        protocol_options::check_reach(args, &url.server)?;
        Connection::open_as(url, &reach_options(args, &url.server)?)
    }

    /// Connects as a client that is told this.
    pub(crate) fn open_as(url: &Url, options: &ClientOptions) -> anyhow::Result<Self> {
        Ok(Connection(RefCell::new(connect(url, options)?)))
    }

    /// A way to change the connection while it works.
    pub(crate) fn wishes(&self) -> Arc<OptionChanges> {
        self.0.borrow().wishes()
    }

    /// Runs a future to its end while the connection works. It must not use the connection itself, only its volumes.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.borrow_mut().block_on(future)
    }

    /// Lets another thread pause the server.
    pub(crate) fn pauser(&self) -> Pauser {
        self.0.borrow().pauser()
    }

    /// How often the server was gone.
    pub(crate) fn outages(&self) -> Arc<Outages> {
        self.0.borrow().outages()
    }

    /// Lets another thread see how the connection is.
    pub(crate) fn looker(&self) -> Looker {
        self.0.borrow().looker()
    }

    /// Opens a volume by its name.
    pub(crate) fn volume(&self, name: &str) -> anyhow::Result<Volume> {
        Ok(self.0.borrow_mut().open(name)?)
    }

    /// Has the volume for this client alone to write to, while the connection lives; `preempt`: also where another one has it.
    pub(crate) fn make_exclusive(&self, volume: &Volume, preempt: bool) -> anyhow::Result<()> {
        Ok(self.0.borrow_mut().make_exclusive(volume, preempt)?)
    }

    /// Another client that has written to the volume and is connected still.
    pub(crate) fn other_writer(&self, volume: &Volume) -> anyhow::Result<Option<String>> {
        Ok(self.0.borrow_mut().other_writer(volume)?)
    }

    /// Says who else writes to a volume that is about to be overwritten: no content tells whether it is in use, since a volume that a
    /// host has just attached may be empty, and one that may be overwritten may still be mounted.
    pub(crate) fn warn_of_overwriting(&self, volume: &Volume) -> anyhow::Result<()> {
        if let Some(other) = self.other_writer(volume)? {
            let info = volume.info();
            tracing::warn!(
                "{other} has volume {} of {} open for writing: what is written here destroys what it has there, such as a mounted file \
                 system; if that is not meant, stop this and detach the volume there first",
                info.name,
                info.server
            );
        }
        Ok(())
    }

    /// The links of the connection; none over iSCSI.
    pub(crate) fn links(&self) -> Vec<LinkStatus> {
        self.0.borrow_mut().links()
    }

    /// How the data of answers came to its place, over iSCSI and iSER.
    pub(crate) fn movement(&self) -> Option<Movement> {
        self.0.borrow().movement()
    }

    /// The RDMA adapter by which iSER goes.
    pub(crate) fn adapter(&self) -> Option<String> {
        self.0.borrow().adapter()
    }

    /// How packets come to this host, on raw Ethernet, in words for people.
    pub(crate) fn receive_path(&self) -> Option<String> {
        self.0.borrow().receive_path().map(|path| path.to_string())
    }

    /// What the server has for this client.
    pub(crate) fn list(&self) -> anyhow::Result<Vec<VolumeInfo>> {
        Ok(self.0.borrow_mut().volumes()?)
    }

    /// The server's static key; `None` over iSCSI and AoE.
    pub(crate) fn server_key(&self) -> Option<[u8; 32]> {
        self.0.borrow().server_key()
    }

    /// Asks the server to be managed: JSON in, JSON out.
    pub(crate) fn administer(&self, request: &[u8]) -> anyhow::Result<Vec<u8>> {
        Ok(self.0.borrow_mut().administer(request)?)
    }

    /// The same, and gives up after that time; nobody knows then whether it was done.
    pub(crate) fn administer_within(&self, patience: Duration, request: &[u8]) -> anyhow::Result<Vec<u8>> {
        Ok(self.0.borrow_mut().within(patience, |client| client.administer(request))?)
    }

    /// Lets the connection work on a thread of its own, until its last volume is dropped.
    pub(crate) fn run_in_background(self) -> anyhow::Result<Background> {
        let thread = self.0.into_inner().run_in_background().context("cannot start a thread for the connection")?;
        Ok(Background(thread))
    }
}

/// Connects. Who waits for longer than usual, as hosts do that start together, waits for names and interfaces too.
fn connect(url: &Url, options: &ClientOptions) -> Result<Client, ConnectError> {
    let waits = options.connect_patience > CONNECT_TIMEOUT;
    let start = Instant::now();
    let mut is_told = false;
    loop {
        let left = options.connect_patience.saturating_sub(start.elapsed());
        match Client::connect(url, &ClientOptions { connect_patience: left, ..options.clone() }) {
            Err(
                error @ (ConnectError::Resolve { .. }
                | ConnectError::Open { .. }
                | ConnectError::NoEthernet
                | ConnectError::NoRdma { .. }),
            ) if waits && left > TRY_INTERVAL => {
                if !is_told {
                    tracing::warn!("{error}; it is tried again");
                    is_told = true;
                }
                thread::sleep(TRY_INTERVAL);
            }
            result => return result,
        }
    }
}

/// A connection on a thread of its own.
pub(crate) struct Background(JoinHandle<()>);

impl Background {
    /// Waits until the server was told that the client leaves. The volumes must be dropped; a server that is away is not
    /// waited for.
    pub(crate) fn leave(self, has_reserved: bool) {
        let end = Instant::now() + if has_reserved { RELEASE_TIMEOUT } else { LEAVE_TIMEOUT };
        while !self.0.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What a client is told, with what stands in its files.
pub(crate) fn options(args: &ClientArgs, server: &Server) -> anyhow::Result<ClientOptions> {
    check_protocol(args, &[server])?;
    options_of_one(args, server)
}

/// The same for one of several servers, of which some have no use for some of the options: [`check_protocol`] has seen them.
pub(crate) fn options_of_one(args: &ClientArgs, server: &Server) -> anyhow::Result<ClientOptions> {
    let mut options = reach_options(&args.reach, server)?;
    add_iscsi(&mut options.iscsi, &args.iscsi)?;
    options.recovery = args.recovery.into();
    options.protection_min = args.security.0;
    options.disk_type = args.disk_type.map(Into::into).unwrap_or_default();
    options.visa = args.visa.wishes();
    options.connection.compression = args.compression.into();
    options.connection.medium_lock = args.lock_media;
    options.keep_writes_bytes = args.keep_writes.0;
    options.connection.rate_cap_bytes_per_second = args.cap.map(|cap| cap.0);
    Ok(options)
}

/// What every client is told.
fn reach_options(args: &ReachArgs, server: &Server) -> anyhow::Result<ClientOptions> {
    let mut options = ClientOptions::anonymous()?;
    options.identity = identity(args.key_file.as_deref())?;
    options.claims = claims();
    match (server, args.password_file.as_deref()) {
        (_, None) => {}
        (Server::HyperScsi(_) | Server::Hdsp(_) | Server::Visa(_), Some(path)) => {
            options.psk = keys::psk(&read_password(path)?)?
        }
        (Server::Iscsi(_), Some(path)) => options.iscsi.secret = Some(chap_secret(path)?),
        (Server::Aoe(_), Some(_)) => {
            return Err(misuse(format!("{server}: AoE has no passwords: leave --password-file out")));
        }
    }
    if let (Server::HyperScsi(_) | Server::Hdsp(_) | Server::Visa(_), Some(path)) = (server, &args.secret_file) {
        options.psk = keys::secret(path)?;
    }
    if let Server::HyperScsi(_) | Server::Hdsp(_) | Server::Visa(_) = server {
        options.server_key = KnownServers::load()?.key_of(server);
    }
    options.connect_patience = match args.wait {
        None => CONNECT_TIMEOUT,
        Some(Patience::For(time)) => time,
        Some(Patience::Forever) => Duration::MAX,
    };
    options.reconnect_patience = patience(args);
    options.links = args.links.0.clone();
    options.name_servers.clone_from(&args.name_server);
    options.rdma = rdma::adapters();
    Ok(options)
}

/// How long operations wait for a server that is away; `None`: for as long as it takes.
pub(crate) fn patience(args: &ReachArgs) -> Option<Duration> {
    match args.wait {
        None => Some(OPERATION_TIMEOUT),
        Some(Patience::For(time)) => Some(time),
        Some(Patience::Forever) => None,
    }
}

fn add_iscsi(options: &mut IscsiOptions, args: &IscsiArgs) -> anyhow::Result<()> {
    options.initiator = args.initiator_name.clone();
    options.target = match (&args.target_user, &args.target_password_file) {
        (Some(user), Some(path)) => Some(Credential { name: user.clone(), secret: chap_secret(path)? }),
        _ => None,
    };
    options.wishes = DesiredParameters {
        digests: args.digests,
        error_recovery_level: args.recovery_level,
        connections: args.connections,
    };
    options.command_patience = Some(args.command_timeout);
    options.iser_path = args.iser_path;
    Ok(())
}

fn chap_secret(path: &Path) -> anyhow::Result<ChapSecret> {
    let secret = read_password(path)?.as_bytes().to_vec();
    ChapSecret::new(secret).map_err(|error| misuse(format!("{}: {error}", path.display())))
}

/// What keeps programs of this user apart, for this whole process; none where there is no place for it.
fn claims() -> Option<Arc<Claims>> {
    static CLAIMS: OnceLock<Option<Arc<Claims>>> = OnceLock::new();
    let new = || state_directory().ok().map(|directory| Arc::new(Claims::new(directory.join("claims"))));
    CLAIMS.get_or_init(new).clone()
}

/// The client's static key: that of the file, else the user's.
pub(crate) fn identity(key_file: Option<&Path>) -> anyhow::Result<Identity> {
    match key_file {
        Some(path) => keys::load_or_make(path),
        None => keys::load_or_make(&state_directory()?.join("client.key")),
    }
}
