//! RDMA adapters (InfiniBand, RoCE, iWARP) as a carrier of iSER, through rdma-core.
//!
//! Its libraries are loaded when the first of this is used: who has no RDMA needs none of them, and [`available`] says what is missing.
//!
//! | part | what it is |
//! |---|---|
//! | [`Listener`] | an address at which initiators ask for connections |
//! | [`Connector`] | the way to others |
//! | [`Connection`] | one end of a connection, a [`sanwire_iser::QueuePair`]: the end of a request, or one that connects |
//!
//! Both have one descriptor, which is readable when there is something to tell. Nothing blocks, and nobody polls: the adapter is asked
//! when the descriptor says so, and when the owner of the connection has done something.
//!
//! One adapter makes an exception: siw, iWARP in software, connects by TCP before the kernel's call returns, as long as TCP tries. On iWARP
//! that call is made by a thread of its own, which also lets go of the connection if nobody waits for it any more.
//!
//! **Memory.** The keys of many adapters are easy to guess. So a connection has a protection domain of its own, outside of which its keys
//! are of no use, wherever it gives the other end keys that are good for others, too: at initiators without memory windows, and on iWARP.
//! Data moves to and from where it is: each window, each long read, and each long piece of data that is written is registered for as long,
//! and by exactly as many bytes, as it is needed. A listener on InfiniBand or RoCE gives no keys away, and memory windows have keys for one
//! queue pair alone: there a [`Region`](sanwire_buffer::Region) is registered as a whole, for this end alone, as long as there are
//! connections; whatever lies in it is sent from there and read to there, and a window to it is one request to the adapter, which goes
//! with the message that tells of it. Messages and other short data are copied, to and from memory that belongs to the connection; or, of
//! messages that come to a listener on InfiniBand or RoCE, to all its connections by that adapter, which share a receive queue. What was
//! given to a connection is let go of when its request has ended, or behind the queue pair, which is destroyed first.
//!
//! **Children.** From Linux 5.12 on a child of this process gets copies of memory that is registered, and this process keeps the pages that
//! the adapter knows; so nothing is done about that here (`ibv_fork_init`).

mod adapter;
mod address;
mod completions;
mod connection;
mod connector;
mod domain;
mod endpoint;
mod errand;
mod error;
mod ffi;
mod last_receives;
mod listener;
mod manager;
mod memory;
mod memory_window;
mod options;
mod orders;
mod queue;
mod readiness;
mod reads;
mod receives;
mod shared_receives;
mod slots;
mod windows;

pub use adapter::{Adapter, Transport, available};
pub use connection::Connection;
pub use connector::Connector;
pub use error::{Error, Unavailable};
pub use listener::Listener;
pub use memory::{COPIED_MAX_BYTES, kept_out_bytes};
pub use options::{ConnectOptions, ListenOptions, Opening};
