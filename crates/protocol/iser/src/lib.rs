//! iSER: iSCSI Extensions for RDMA (RFC 7145), without I/O.
//!
//! Sessions, commands, task management and logins are those of `sanwire_iscsi`, unchanged. What differs is what carries their PDUs:
//! here are the two datamovers (RFC 5047) of a connection that is RDMA from its first byte on, as Linux has it.
//!
//! | part | what it is |
//! |---|---|
//! | [`wire`] | the header in front of every PDU, Hello and HelloReply, what both ends say when the connection is set up |
//! | [`target`] | the datamover of a target: give it to `sanwire_iscsi::ServerLogin::over` |
//! | [`initiator`] | that of an initiator: give it to `sanwire_iscsi::Client::over` |
//!
//! | iSCSI over TCP | here |
//! |---|---|
//! | a request, an answer | a Send, with the header of iSER in front |
//! | Data-In | an RDMA Write into the memory that the command has opened, then the answer |
//! | R2T, and the Data-Out that it asks for | an RDMA Read from the memory that the command has opened |
//! | data with the command, or after it unasked | the same: in Sends |
//!
//! The RDMA is that of `sanwire_iwarp`, over a TCP connection; or that of an adapter, which is a [`QueuePair`]. That one has no stream and
//! no packets: whoever drives its datamover ([`target_by`], [`initiator_by`]) says `filled(0)` when the adapter has something to tell, and asks
//! for packets as always, which hands down what was pushed.
#![forbid(unsafe_code)]

mod carrier;
mod incoming;
mod initiator;
mod message;
mod orders;
mod queue_pair;
mod target;
pub mod wire;

pub use initiator::{initiator, initiator_by};
pub use queue_pair::{Counts, QueuePair};
pub use target::{target, target_by};

/// The port of iSER, which is that of iSCSI.
pub const ISER_PORT: u16 = sanwire_iscsi::ISCSI_PORT;
