//! The test world of HDSP: both ends, between them a link that loses, doubles, reorders, damages and cuts, beside them an attacker who
//! hears everything, behind them a disk that is slow, fails, and loses its cache with the power.
//!
//! It compares all that clients see with the reference [`crate::model`], and watches that no command runs twice.

mod attacker;
mod disk;
mod initiator;
mod participants;
pub mod plan;
mod precedence;
pub mod world;
