//! What a server is told to be.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use sanwire_core::{Lun, Protection};
use sanwire_io::file::EngineKind;
use sanwire_rdma::Rdma;
use sanwire_store::{Acceptance, VolumeName, VolumeSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::allow::AllowList;
use crate::announce::Announced;
use crate::direct::DirectCopies;
use crate::front::hyperscsi::clients::{ClientConfig, ClientsConfig, Compression, Secret};
use crate::front::hyperscsi::{Identity, Psk, Recovery};
use crate::front::iscsi::Authentication;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::visa::Wishes as VisaWishes;
use crate::kept::{ChangesFile, Keeps, StateError, StateFile, StateLock};
use crate::pools::{PoolConfig, PoolError, Pools};
use crate::programs::Programs;
use crate::wire::Wire;

/// One volume of a server.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Its logical unit number.
    pub lun: Lun,
    /// Its name and store.
    pub spec: VolumeSpec,
    /// Who has said that it is to be served.
    pub origin: Origin,
}

/// Where something of a server is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// In the configuration file.
    #[default]
    File,
    /// On the command line.
    CommandLine,
    /// Nowhere: it is what is served when nothing is said.
    Default,
    /// By management, while it ran. If it cannot be opened when the server starts, the rest is served without it.
    Management,
}

/// A server, before anything of it is opened.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The name that clients see.
    pub name: String,
    /// The static key.
    pub identity: Identity,
    /// The shared secret; all zeroes without a password.
    pub psk: Psk,
    /// Where to listen.
    pub wires: Vec<Wire>,
    /// Which of its addresses clients are told.
    pub announced: Announced,
    /// How volumes are guarded on HyperSCSI's wires that do not say so themselves.
    pub protection: Protection,
    /// Whether data of HyperSCSI connections may be compressed.
    pub compression: Compression,
    /// How long the keys of a connection are used.
    pub rekey_interval: Duration,
    /// Who is served over HyperSCSI, besides the clients below.
    pub allow: AllowList,
    /// The clients that are known by their ids, with what they may do.
    pub clients: Vec<ClientConfig>,
    /// The directories in which volumes can be without naming a path.
    pub pools: Vec<PoolConfig>,
    /// The volumes.
    pub volumes: Vec<VolumeConfig>,
    /// Those of which something else than what is remembered is taken at this start.
    pub accepted: BTreeMap<VolumeName, Acceptance>,
    /// The iSCSI targets.
    pub exports: Vec<TargetNodeConfig>,
    /// How iSCSI discovery sessions show who they are.
    pub discovery: Authentication,
    /// Threads, each with sessions of its own.
    pub shards: u32,
    /// Memory for data in transit, of all shards together, in bytes.
    pub memory_bytes: usize,
    /// The receive ring of each Ethernet port, in bytes.
    pub ring_bytes: usize,
    /// How files and block devices are read and written.
    pub engine: EngineKind,
    /// What VISA connections should be, and what clients may ask for.
    pub visa: VisaWishes,
    /// How lost packets are recovered.
    pub recovery: Recovery,
    /// Where the volumes' identities and reservations, and what is changed while the server runs, are kept through restarts; `None` to
    /// offer no such thing.
    pub state_directory: Option<PathBuf>,
    /// Where changes by management are noted; without it, in the state directory.
    pub audit_log: Option<PathBuf>,
    /// Whether the metrics tell of each client and its links.
    pub metrics_of_clients: bool,
    /// By what it listens where connections are to come by an RDMA adapter.
    pub rdma: Rdma,
    /// Which copies from its volumes straight to other servers are made.
    pub direct_copies: DirectCopies,
}

impl ServerConfig {
    /// Data in transit on a server of the usual kind, of which a client that is alone has three quarters in its shard: a small part of
    /// what all clients together could ask for at once; beyond it, commands wait.
    pub const MEMORY_BYTES_DEFAULT: usize = 32 << 20;

    /// The keys of a connection are used for an hour.
    pub const REKEY_INTERVAL_DEFAULT: Duration = Duration::from_secs(3600);

    /// Where changes by management are noted; nowhere without any place for it.
    pub(crate) fn audit_file(&self) -> Option<PathBuf> {
        self.audit_log.clone().or_else(|| self.state_file("audit", "jsonl"))
    }

    /// Whether HyperSCSI clients that have no secret of their own must know a password, or a key in its place.
    pub(crate) fn has_password(&self) -> bool {
        self.psk != [0; 32]
    }

    /// Whether any clients must know a secret: beside those no target is open without one.
    pub(crate) fn has_secrets(&self) -> bool {
        self.has_password() || self.clients.iter().any(|client| client.psk.is_some())
    }

    /// What it says of clients.
    pub(crate) fn terms(&self) -> ClientsConfig {
        ClientsConfig {
            allow: self.allow.clone(),
            psk: Secret(self.psk),
            compression: self.compression,
            clients: self.clients.clone(),
        }
    }

    /// Takes the lock of this server's files in the state directory, if it has one.
    pub(crate) fn lock(&self) -> Result<Option<StateLock>, StateError> {
        self.state_file("server", "lock").map_or(Ok(None), |path| StateLock::take(&path, &self.name))
    }

    /// Opens its pools.
    pub(crate) fn open_pools(&self) -> Result<Pools, PoolError> {
        let known = self.state_file("pools", "json").map(|path| StateFile::new(path, Keeps::POOLS));
        Pools::open(&self.pools, known.as_ref())
    }

    /// The programs that judge commands of its volumes.
    pub(crate) fn programs(&self) -> Programs {
        Programs::new(self.state_file("programs", "d"))
    }

    /// Where what is changed while the server runs is kept, but for clients.
    pub(crate) fn changes_file(&self) -> Option<ChangesFile> {
        self.state_file("changes", "json").map(ChangesFile::new)
    }

    /// A file of this server in the state directory, which servers of several names may share.
    pub(crate) fn state_file(&self, kind: &str, extension: &str) -> Option<PathBuf> {
        let is_plain = |c: char| c.is_alphanumeric() || "-._".contains(c);
        let name: String = self.name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        Some(self.state_directory.as_ref()?.join(format!("{kind}-{name}.{extension}")))
    }
}
