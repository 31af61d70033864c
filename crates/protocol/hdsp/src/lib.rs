//! HDSP, the High Performance Disk Storage Protocol: commands of ATA, SATA and SCSI disks straight on Ethernet.
//!
//! The wire formats and the state machines of both ends, without I/O: bytes and time come in as arguments, packets and events go out.
//! `docs/protocols/hdsp.md` is the specification.
#![forbid(unsafe_code)]

mod channel;
mod client;
mod counters;
mod pieces;
mod server;
pub mod wire;

pub use client::{Client, ClientConfig, ClientEvent, Command, CommandId, Order, OrderError, Outcome, ServerInfo};
pub use counters::{ConnectionStatus, Counters, Handshakes, Traffic, WindowChanges};
pub use server::{
    Answer, CommandHandle, Directory, Disk, GivenAt, LinkLimits, Request, Server, ServerConfig, ServerEvent, Wanted,
};

pub use wire::offer::VolumeId;

/// The EtherType of HDSP, as the paper gives it. It is not registered.
pub const ETHERTYPE: u16 = 0x6666;

/// Where the data of a packet begins.
pub const DATA_AT: usize = wire::pdu::PDU_BYTES;
