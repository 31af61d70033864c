//! What a server is told to be.

use std::path::PathBuf;

use sanwire_core::Lun;
use sanwire_hyperscsi::{Identity, Psk, Recovery};
use sanwire_io::file::EngineKind;
use sanwire_iscsi::Authentication;
use sanwire_store::VolumeSpec;

use crate::allow::AllowList;
use crate::export::ExportConfig;
use crate::wire::Wire;

/// One volume of a server.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Its logical unit number.
    pub lun: Lun,
    /// Its name and store.
    pub spec: VolumeSpec,
}

/// A server, before anything of it is opened.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// The name that clients see.
    pub name: String,
    /// The static key.
    pub identity: Identity,
    /// The shared secret; all zeroes without a password.
    pub psk: Psk,
    /// Where to listen.
    pub wires: Vec<Wire>,
    /// Who is served over HyperSCSI.
    pub allow: AllowList,
    /// The volumes.
    pub volumes: Vec<VolumeConfig>,
    /// The iSCSI targets.
    pub exports: Vec<ExportConfig>,
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
    /// How lost packets are recovered.
    pub recovery: Recovery,
    /// Where reservations are kept through restarts; `None` to offer initiators no such thing.
    pub state_directory: Option<PathBuf>,
}

impl TargetConfig {
    /// Data in transit on a server of the usual kind: a sixteenth of what all clients together could ask for at once;
    /// beyond it, commands wait.
    pub const MEMORY_BYTES_DEFAULT: usize = 24 << 20;
}
