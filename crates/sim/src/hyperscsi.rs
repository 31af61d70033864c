//! The test world of HyperSCSI: both ends, and a real logical unit; between them links that lose, double, delay, damage and
//! cut, and an attacker.

pub mod attacker;
pub mod host;
mod initiator;
pub mod link;
mod meter;
mod packet_path;
mod participants;
pub mod plan;
mod processor;
mod shard;
pub mod stats;
pub mod steering;
pub mod strangers;
pub mod terms;
pub mod wire;
