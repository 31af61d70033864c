//! iWARP in software: RDMA over TCP, as MPA (RFC 5044, 6581), DDP (RFC 5041) and RDMAP (RFC 5040), without I/O.
//!
//! A [`Connection`] is one end of one stream, of the MPA initiator (who connected) or responder. It does no I/O and reads no clock.
//!
//! | goes in | comes out |
//! |---|---|
//! | bytes of the stream, into [`Connection::spaces`], counted by [`Connection::filled`]; its end, [`Connection::peer_closed`] | [`Connection::poll_event`] |
//! | orders: [`Connection::order`] (a Send, a Write), [`Connection::read`] | [`Connection::poll_transmit`]: packets, in order and whole |
//! | memory: [`Connection::post_receive`], [`Connection::register`] | [`Connection::deregister`], and in events; at the end [`Connection::reclaim`] |
//!
//! After every call that goes in: drain `poll_event`, then `poll_transmit`, then `poll_event` once more (what was sent is told there).
//! After [`Event::Closed`] nothing comes out any more, and the driver closes the stream.
//!
//! **Memory is moved, never shared with a writer.** Who lets the peer write gives a [`Frame`](sanwire_buffer::Frame) away, which is
//! the connection's until it is deregistered, its message has arrived or its read is done; who lets the peer read gives
//! [`Slices`](sanwire_buffer::Slices), which are shared and read-only. A key (an [`Stag`]) is good for the connection that made it
//! and for no other one. What the peer sends is received straight from the socket into these frames (long segments), or copied once
//! (short ones). Data that the peer may place can lie there before its CRC is known to be right: then the stream ends.
//!
//! The peer cannot make a connection take memory: it can fill frames that were posted or registered, and ask for as many reads at a
//! time as was agreed on (IRD). What is beyond that ends the stream with the Terminate message of the RFC.
#![forbid(unsafe_code)]

mod config;
mod connection;
mod crc;
mod event;
mod fault;
mod key;
mod memory;
mod mpa;
mod rdmap;
pub mod wire;

pub use config::{Config, ConfigError};
pub use connection::{Connection, Reclaimed};
pub use event::{Closed, Ended, Event, Message, Order, Refusal, Refused, Request, SendKind, Terms, WorkId};
pub use fault::Fault;
pub use memory::{Memory, Registration, Rights};
pub use wire::{Rtr, Stag};
