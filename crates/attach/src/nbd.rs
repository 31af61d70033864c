//! The volume as an NBD export: fixed newstyle, structured replies, several connections.

mod connection;
mod handshake;
mod request;
mod server;
mod socket;
mod window;

pub use server::{NbdClients, NbdError, NbdServer, serve_nbd};
pub use socket::NbdAddress;
pub(crate) use socket::remove_dead_socket;

#[cfg(test)]
mod tests;
