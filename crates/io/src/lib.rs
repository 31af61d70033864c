//! Sockets and rings for protocol machines that do no I/O of their own.
//!
//! A driver thread owns one or more [`Port`]s (an Ethernet interface or a UDP socket), any number of [`tcp::Stream`]s, a
//! [`Poller`] to sleep in and a [`Clock`] to make instants with; other threads reach it through a [`Waker`]. This crate knows
//! packets, streams of bytes, peers and deadlines, never a protocol.
//!
//! The loop of a driver:
//!
//! ```no_run
//! # use sanwire_io::{Clock, Poller, Port, Waker};
//! # fn work(port: &mut Port, waker: &Waker) -> std::io::Result<()> {
//! let (clock, mut poller) = (Clock::new(), Poller::new());
//! loop {
//!     port.receive(256, &mut |peer, bytes| { /* machine.handle_input(peer, bytes, now) */ })?;
//!     // messages of other threads, due timers, and what the machine wants to send: port.queue(..)
//!     port.flush()?;
//!     let deadline = None; // machine.poll_timeout()
//!     poller.wait(std::slice::from_ref(port), &[], Some(waker), deadline, &clock)?;
//! }
//! # }
//! ```

mod address;
mod batch;
mod clock;
pub mod code;
pub mod descriptors;
pub mod extents;
pub mod file;
pub mod heap;
pub mod interface;
mod packet;
mod poller;
mod port;
mod steering;
mod streams;
mod sys;
pub mod tcp;
pub mod turns;
mod udp;
pub mod unix;
mod waker;
mod xdp;

pub use clock::{Clock, process_time, thread_time};
pub use packet::{PacketPort, RING_BYTES_DEFAULT, ReceivePath, XdpWish};
pub use poller::{Poller, Ready};
pub use port::{BATCH_PACKETS, LocalAddress, Port, PortCounters};
pub use steering::STEERING_OFFSET_BYTES;
pub use streams::Interest;
pub use udp::UdpPort;
pub use waker::Waker;
