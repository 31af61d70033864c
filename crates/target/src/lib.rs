//! The server: volumes, wires, access rules, and the shards that bring them together.
//!
//! [`Target::start`] opens everything and starts one thread for each shard; each thread owns its ports, its sessions and
//! its I/O engine, and they share the logical units only. One more thread, the front desk, takes TCP connections and hands
//! them to a shard when their login has passed.
#![forbid(unsafe_code)]

mod allow;
mod budget;
mod clients;
mod command;
mod config;
mod counting;
mod directory;
mod error;
mod export;
mod front_desk;
mod inbox;
mod levels;
mod link;
mod logging;
mod mail;
mod manage;
mod opener;
mod past_uses;
mod pattern;
mod persist;
mod reach;
mod records;
mod refusals;
mod registry;
mod removal;
mod reservations;
mod shard;
mod streams;
mod target;
mod volumes;
mod wire;
mod writes;

pub use allow::{AllowList, AllowRule, AllowRuleError, IpPrefix};
pub use clients::{
    ChangeError, ClientConfig, ClientError, ClientSettings, Compression, NoCompression, NoSecret, Secret, WEIGHT_MAX,
};
pub use config::{TargetConfig, VolumeConfig};
pub use error::StartError;
pub use export::{ExportConfig, ExportError};
pub use manage::{
    Answer, Asker, ClientStatus, ConnectionStatistics, Desk, GroupStatus, ManageError, Manager, PortState,
    QuotaStatistics, REQUEST_MAX_BYTES, Request, Response, Source, Statistics, Status, TargetStatus, VolumeStatistics,
    VolumeStatus,
};
pub use pattern::{InitiatorPattern, NoPattern, VolumePattern};
pub use registry::SessionStatus;
pub use removal::Removal;
pub use target::Target;
pub use wire::{Wire, WireError};
