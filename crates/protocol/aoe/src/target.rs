//! The target's end: units served at addresses, on any number of links.

mod counters;
mod limits;
mod nexus;
mod recent;
mod server;
mod settings;
mod types;

pub use counters::Counters;
pub use server::Target;
pub use types::{TargetConfig, TargetEvent};
