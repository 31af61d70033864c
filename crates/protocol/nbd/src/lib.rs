//! NBD (NetworkBlockDevice/nbd, doc/proto.md): the wire format of both ends, and a client without I/O.
//!
//! | part | what it is |
//! |---|---|
//! | [`wire`] | numbers and layout, of servers too |
//! | [`Export`] | what a server says of what it exports |
//! | [`Client`] | the client's end: one connection or several, reconnection, what is given again after an outage |
//!
//! The client opens no socket and reads no clock. After every call that takes something in ([`Client::connected`],
//! [`Client::filled`], [`Client::order`], [`Client::lost`], [`Client::handle_timeout`]): drain [`Client::poll_event`] and
//! [`Client::poll_action`], then [`Client::poll_transmit`] of each connection that [`Client::connections`] names, then read
//! [`Client::poll_timeout`].
#![forbid(unsafe_code)]

mod chunk;
mod client;
mod connection;
mod coverage;
mod export;
mod handshake;
mod order;
mod outbox;
pub mod wire;

pub use client::{Action, Client, Config, ConnectionId, Event};
pub use export::{BlockSizes, Export, HandshakeError};
pub use order::{Answer, Extent, Failure, Order, OrderId};

/// The TCP port of NBD.
pub const NBD_PORT: u16 = 10809;
