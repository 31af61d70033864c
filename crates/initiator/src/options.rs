//! What a client brings to every connection.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sanwire_core::Protection;
use sanwire_rdma::Rdma;
use sanwire_scsi::IscsiName;

use crate::claims::Claims;
use crate::endpoint::ConnectError;
use crate::random;
use crate::session::{
    ChapSecret, Credential, DesiredOptions, DesiredParameters, DiskType, Identity, LINKS_MAX, NO_PASSWORD, Psk,
    Recovery, VisaWishes,
};

/// What is kept of a volume's unflushed writes, as a rule.
pub const KEEP_WRITES_BYTES_DEFAULT: u64 = 64 << 20;

/// Which of this host's interfaces carry a HyperSCSI connection besides that of its URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Links {
    /// Links of a connection at the most, that of the URL included.
    pub max: usize,
    /// The interfaces that may be used; `None`: all that reach the server.
    pub interfaces: Option<Vec<String>>,
}

impl Links {
    /// Whether an interface may be used.
    pub(crate) fn permits(&self, interface: &str) -> bool {
        self.interfaces.as_ref().is_none_or(|names| names.iter().any(|name| name == interface))
    }
}

impl Default for Links {
    fn default() -> Self {
        Links { max: LINKS_MAX, interfaces: None }
    }
}

/// What a client brings to every connection.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// What servers may call this client.
    pub name: String,
    /// The static key; servers know the client by its id.
    pub identity: Identity,
    /// The shared secret; all zeroes without a password.
    pub psk: Psk,
    /// The static public key that a HyperSCSI server must have; `None`: any.
    pub server_key: Option<[u8; 32]>,
    /// How long to seek the server at first.
    pub connect_patience: Duration,
    /// How long to seek it when it was lost; `None`: without a limit.
    pub reconnect_patience: Option<Duration>,
    /// Memory for [`Volume::buffer`], in bytes.
    pub memory_bytes: usize,
    /// How much of the writes to each volume that are acknowledged and not flushed is kept, to be written again when the server's
    /// host was lost, in bytes; 0: the next flush fails then.
    pub keep_writes_bytes: u64,
    /// Packets of commands and answers are never guarded less, over HyperSCSI, HDSP and VISA.
    pub protection_min: Protection,
    /// Which commands HDSP disks are to take.
    pub disk_type: DiskType,
    /// What HyperSCSI connections are wished to be.
    pub connection: DesiredOptions,
    /// How lost packets are recovered.
    pub recovery: Recovery,
    /// Name servers to ask for hosts' names; empty: the system's.
    pub name_servers: Vec<SocketAddr>,
    /// Which interfaces carry a HyperSCSI connection.
    pub links: Links,
    /// What VISA connections are wished to be.
    pub visa: VisaWishes,
    /// What iSCSI needs beyond that.
    pub iscsi: IscsiOptions,
    /// By what iSER goes where it is to go by an RDMA adapter.
    pub rdma: Rdma,
    /// What keeps other programs of this client on this host away from volumes that one of them has for itself; `None`: nothing does.
    pub claims: Option<Arc<Claims>>,
}

/// What a client brings to iSCSI sessions.
#[derive(Clone, Debug)]
pub struct IscsiOptions {
    /// The client's name; made of its id when `None`.
    pub initiator: Option<IscsiName>,
    /// What goes with the user name of the URL.
    pub secret: Option<ChapSecret>,
    /// Whom the target must show to be.
    pub target: Option<Credential>,
    /// What we would like to agree on.
    pub wishes: DesiredParameters,
    /// How long a command may stand still at the target before it is aborted and fails; `None`: it never is.
    pub command_patience: Option<Duration>,
    /// By what iSER goes.
    pub iser_path: IserPath,
}

/// By what iSER goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IserPath {
    /// TCP, by iWARP in software.
    #[default]
    Tcp,
    /// An RDMA adapter of this host.
    Rdma,
}

impl IserPath {
    /// As they are written.
    const WORDS: [(&'static str, IserPath); 2] = [("tcp", IserPath::Tcp), ("rdma", IserPath::Rdma)];
}

impl fmt::Display for IserPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(IserPath::WORDS.iter().find(|(_, path)| path == self).map_or("tcp", |(word, _)| word))
    }
}

/// A text that is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is no path of iSER: use tcp, or rdma for an RDMA adapter")]
pub struct ParseIserPathError(String);

impl FromStr for IserPath {
    type Err = ParseIserPathError;

    fn from_str(text: &str) -> Result<Self, ParseIserPathError> {
        let found = IserPath::WORDS.iter().find(|(word, _)| *word == text);
        found.map(|(_, path)| *path).ok_or_else(|| ParseIserPathError(text.to_owned()))
    }
}

impl ClientOptions {
    /// The usual options, with a key that is made for this process alone and no password.
    ///
    /// # Errors
    /// [`ConnectError::Resource`] when the system has no randomness.
    pub fn anonymous() -> Result<Self, ConnectError> {
        let identity = Identity::from_private(random::bytes().map_err(no_randomness)?)
            .map_err(|error| no_randomness(io::Error::other(error)))?;
        Ok(ClientOptions {
            name: String::from("sanwire"),
            identity,
            psk: NO_PASSWORD,
            server_key: None,
            connect_patience: Duration::from_secs(5),
            reconnect_patience: None,
            memory_bytes: 64 << 20,
            keep_writes_bytes: KEEP_WRITES_BYTES_DEFAULT,
            protection_min: Protection::Checksum,
            disk_type: DiskType::Any,
            connection: DesiredOptions::default(),
            recovery: Recovery::default(),
            name_servers: Vec::new(),
            links: Links::default(),
            claims: None,
            visa: VisaWishes::default(),
            iscsi: IscsiOptions {
                initiator: None,
                secret: None,
                target: None,
                wishes: DesiredParameters { digests: false, error_recovery_level: 0, connections: 1 },
                command_patience: Some(Duration::from_secs(60)),
                iser_path: IserPath::default(),
            },
            rdma: Rdma::default(),
        })
    }
}

pub(crate) fn no_randomness(source: io::Error) -> ConnectError {
    ConnectError::Resource { what: "random numbers", source }
}
