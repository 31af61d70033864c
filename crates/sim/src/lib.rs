//! The test world: both ends of a protocol and a real logical unit, between them a [`world::Wire`] that loses, doubles,
//! delays, damages and cuts ([`hyperscsi`]: packets, [`iscsi`]: streams; [`visa`]: datagrams and streams; [`hdsp`] has a world of its own), behind them a disk that is slow, fails and loses its
//! cache; all of it from one seed, on a clock that jumps.
//!
//! [`world::World::live`] takes a [`plan::Plan`] through its life and compares all that clients see with the reference
//! [`model`]. The tests of this crate run thousands of seeds of each theme:
//!
//! ```text
//! SANWIRE_SEED=123 cargo test -p sanwire-sim loss      one seed again
//! SANWIRE_SEEDS=10000 cargo test -p sanwire-sim loss   more of them
//! SANWIRE_TIMES=20 cargo test -p sanwire-sim           more of each theme
//! ```
#![forbid(unsafe_code)]

pub mod content;
pub mod derived;
pub mod disk;
pub mod engine;
pub mod executor;
pub mod hdsp;
pub mod hearing;
pub mod hyperscsi;
pub mod iscsi;
pub mod managers;
pub mod memory_watch;
pub mod model;
pub mod plan;
pub mod post;
pub mod power;
pub mod random;
pub mod rdma;
pub mod seeds;
pub mod task;
pub mod visa;
pub mod workload;
pub mod world;
