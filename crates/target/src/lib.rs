//! The server: volumes, wires, access rules, and the shards that bring them together.
//!
//! [`Target::start`] opens everything and starts one thread for each shard; each thread owns its ports, its sessions and
//! its I/O engine, and they share the logical units only.
#![forbid(unsafe_code)]

mod allow;
mod config;
mod link;
mod reservations;
mod runner;
mod shard;
mod target;
mod wire;

pub use allow::{AllowList, AllowRule, AllowRuleError, IpPrefix};
pub use config::{TargetConfig, VolumeConfig};
pub use target::{StartError, Target};
pub use wire::{Wire, WireError};
