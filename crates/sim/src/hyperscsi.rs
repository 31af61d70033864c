//! The test world of HyperSCSI: both ends, and a real logical unit; between them links that lose, double, delay, damage and
//! cut, and an attacker.

pub mod attacker;
mod cast;
pub mod host;
pub mod link;
pub mod plan;
pub mod stats;
pub mod wire;
