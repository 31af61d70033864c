//! VISA, the Virtual Internet SCSI Adapter: SCSI commands on plain UDP, or on TCP.
//!
//! The wire formats and the state machines of both ends, without I/O: bytes and time come in as arguments, packets and
//! events go out. `docs/protocols/visa.md` is the specification.
//!
//! The drain rule, for [`Server`] and [`Client`] alike: after every `handle_*` or call from above, drain the events,
//! then the transmits, then read the timeout.
#![forbid(unsafe_code)]

mod channel;
mod client;
mod counters;
pub mod framing;
mod server;
#[cfg(test)]
mod testing;
pub mod wire;

pub use client::{Client, ClientConfig, ClientEvent, Failure, ServerInfo, discovery, found};
pub use counters::{Counters, Handshakes, Traffic};
pub use sanwire_exchange::{Answer, Ask, CommandId, Function, Order};
pub use sanwire_security::keys::{Identity, Psk};
pub use server::{
    CommandHandle, ConnectionStatus, Doorkeeper, LinkLimits, Offence, ProtectionLookup, Server, ServerConfig,
    ServerEvent, Wishes,
};
pub use wire::offer::{Found, Mode, Terms};

/// The port of VISA, of UDP and of TCP. It is not registered.
pub const PORT: u16 = 5675;
