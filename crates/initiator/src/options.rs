//! What a client brings to every connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use sanwire_core::Protection;
use sanwire_core::limits::{COMMANDS_IN_TRANSIT_MAX, HYPERSCSI_TRANSFER_MAX_BYTES};
use sanwire_hyperscsi::wire::links::LINKS_MAX;
use sanwire_hyperscsi::{ClientConfig, DesiredOptions, Identity, LinkLimits, Psk, Recovery};
use sanwire_iscsi::{ChapSecret, ClientConfig as IscsiConfig, Credential, DesiredParameters, IscsiName, Isid};

use crate::endpoint::{self, ConnectError};
use crate::ports::EVERYWHERE;
use crate::resolve;
use crate::url::IscsiServer;

/// Commands of one iSCSI session in transit; the target's window may be smaller.
const ISCSI_COMMANDS_MAX: u16 = 128;

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
    /// How long to seek it when it was lost; `None`: for ever.
    pub reconnect_patience: Option<Duration>,
    /// Memory for [`Volume::buffer`], in bytes.
    pub memory_bytes: usize,
    /// How much of the writes to each volume that are acknowledged and not flushed is kept, to be written again when the server's
    /// host was lost, in bytes; 0: the next flush fails then.
    pub keep_writes_bytes: u64,
    /// HyperSCSI's packets of commands and answers are never guarded less.
    pub protection_min: Protection,
    /// What HyperSCSI connections are wished to be.
    pub connection: DesiredOptions,
    /// How lost packets are recovered.
    pub recovery: Recovery,
    /// Name servers to ask for hosts' names; empty: the system's.
    pub name_servers: Vec<SocketAddr>,
    /// Which interfaces carry a HyperSCSI connection.
    pub links: Links,
    /// What iSCSI needs beyond that.
    pub iscsi: IscsiOptions,
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
    /// How long a command may stand still at the target before it is aborted and fails; `None`: for ever.
    pub command_patience: Option<Duration>,
}

impl ClientOptions {
    /// The usual options, with a key that is made for this process alone and no password.
    ///
    /// # Errors
    /// [`ConnectError::Resource`] when the system has no randomness.
    pub fn anonymous() -> Result<Self, ConnectError> {
        let identity = Identity::from_private(random()?).map_err(|_| no_randomness())?;
        Ok(ClientOptions {
            name: String::from("sanwire"),
            identity,
            psk: [0; 32],
            server_key: None,
            connect_patience: Duration::from_secs(5),
            reconnect_patience: None,
            memory_bytes: 64 << 20,
            keep_writes_bytes: KEEP_WRITES_BYTES_DEFAULT,
            protection_min: Protection::Checksum,
            connection: DesiredOptions::default(),
            recovery: Recovery::default(),
            name_servers: Vec::new(),
            links: Links::default(),
            iscsi: IscsiOptions {
                initiator: None,
                secret: None,
                target: None,
                wishes: DesiredParameters { digests: false, error_recovery_level: 0, connections: 1 },
                command_patience: Some(Duration::from_secs(60)),
            },
        })
    }

    pub(crate) fn hyperscsi(&self, server_name: &str, link: LinkLimits) -> Result<ClientConfig, ConnectError> {
        Ok(ClientConfig {
            name: self.name.clone(),
            identity: self.identity.clone(),
            psk: self.psk,
            server_key: self.server_key,
            path: EVERYWHERE,
            server_name: server_name.to_owned(),
            link,
            commands_max: COMMANDS_IN_TRANSIT_MAX as u16,
            transfer_max_bytes: HYPERSCSI_TRANSFER_MAX_BYTES as u32,
            protection_min: self.protection_min,
            wishes: self.connection.clone(),
            recovery: self.recovery,
            connect_patience: self.connect_patience,
            reconnect_patience: self.reconnect_patience,
            seed: random()?,
        })
    }

    /// What a session with a target of the host needs; without a target it is a discovery session.
    pub(crate) fn iscsi(&self, server: &IscsiServer, target: Option<IscsiName>) -> Result<IscsiConfig, ConnectError> {
        let credential = match (&server.user, &self.iscsi.secret) {
            (Some(user), Some(secret)) => Some(Credential { name: user.clone(), secret: secret.clone() }),
            (Some(user), None) => return Err(ConnectError::NoSecret { user: user.clone() }),
            (None, _) => None,
        };
        Ok(IscsiConfig {
            initiator: self.initiator_name()?,
            isid: random_isid()?,
            target,
            portals: endpoint::addresses(&server.host, server.port, resolve::ISCSI, &self.name_servers)?,
            credential,
            target_credential: self.iscsi.target.clone(),
            wishes: self.iscsi.wishes,
            commands_max: ISCSI_COMMANDS_MAX,
            connect_patience: self.connect_patience,
            reconnect_patience: self.reconnect_patience,
            command_patience: self.iscsi.command_patience,
            seed: random()?,
        })
    }

    /// The name by which targets know this client.
    fn initiator_name(&self) -> Result<IscsiName, ConnectError> {
        match &self.iscsi.initiator {
            Some(name) => Ok(name.clone()),
            // A client id is hexadecimal: the name is always a legal one.
            None => format!("iqn.2026-11.org.sanwire:client-{}", self.identity.client_id())
                .parse()
                .map_err(|_| no_randomness()),
        }
    }
}

/// A random qualifier for this process (RFC 7143 11.12.5, type 10b): two clients on one host are two initiator ports.
fn random_isid() -> Result<Isid, ConnectError> {
    let [a, b, c, d, e] = random()?;
    Ok(Isid([0x80, a, b, c, d, e]))
}

fn random<const N: usize>() -> Result<[u8; N], ConnectError> {
    sanwire_hyperscsi::random().map_err(|_| no_randomness())
}

fn no_randomness() -> ConnectError {
    ConnectError::Resource { what: "random numbers", source: io::Error::other("generator failed") }
}
