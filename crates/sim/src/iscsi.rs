//! The test world of iSCSI: clients, a login listener for logins, a server with a real logical unit; between them streams that
//! come in pieces of any size, at any time, damaged where digests are agreed on, and that end anywhere.

pub mod fixed_directory;
pub mod host;
pub mod plan;
pub mod stream;
pub mod wire;
pub mod wires;
