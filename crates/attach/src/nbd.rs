//! The volume as an NBD export: fixed newstyle, structured replies, several connections.

mod connection;
mod handshake;
mod reply;
mod request;
mod server;
mod socket;
mod window;

pub use server::{NbdClients, NbdError, NbdServer, serve_nbd};
pub use socket::NbdAddress;

#[cfg(test)]
mod tests;
