//! The test world of VISA: both ends, and a real logical unit; between them UDP that loses, doubles, delays, damages and cuts, with an
//! attacker, or TCP connections that are cut.

mod attacker;
mod host;
mod participants;
pub mod plan;
pub mod wire;
