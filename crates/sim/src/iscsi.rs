//! The test world of iSCSI: clients, a login listener for logins, a server with a real logical unit; between them streams that
//! come in pieces of any size, at any time, damaged where digests are agreed on, and that end anywhere; or
//! RDMA adapters ([`crate::rdma`]).

mod faults;
pub mod fixed_directory;
pub mod host;
pub mod line;
mod lines;
pub mod plan;
pub mod stream;
pub mod wire;
pub mod wires;
