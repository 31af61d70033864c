//! The test world: both ends of HyperSCSI, or of iSCSI ([`iscsi`]), and a real logical unit, between them links that lose, double, delay, damage
//! and cut, behind them a disk that is slow, fails and loses its cache; all of it from one seed, on a clock that jumps.
//!
//! [`seeds::live`] takes a [`plan::Plan`] through its life and compares all that clients see with the reference
//! [`model`]. The tests of this crate run thousands of seeds of each theme:
//!
//! ```text
//! SANWIRE_SEED=123 cargo test -p sanwire-sim loss      one seed again
//! SANWIRE_SEEDS=100000 cargo test -p sanwire-sim       more of each theme
//! ```
#![forbid(unsafe_code)]

pub mod attacker;
pub mod content;
pub mod disk;
pub mod host;
pub mod iscsi;
pub mod link;
pub mod model;
pub mod plan;
pub mod random;
pub mod runner;
pub mod seeds;
pub mod stats;
pub mod task;
pub mod workload;
pub mod world;
