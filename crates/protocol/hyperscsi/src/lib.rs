//! HyperSCSI: SCSI commands straight on Ethernet (HS/eth) or in UDP datagrams (HS/IP).
//!
//! The wire formats and the state machines of both ends, without I/O: bytes and time come in as arguments, packets and
//! events go out. `docs/protocols/hyperscsi.md` is the specification.
//!
//! The drain rule, for [`Server`] and [`Client`] alike: after every `handle_*` or call from above, drain the events,
//! then the transmits, then read the timeout.
#![forbid(unsafe_code)]

mod assembly;
mod channel;
mod client;
mod compression;
mod counters;
mod option_exchange;
mod options;
mod server;
mod vacancy;
pub mod wire;

use sanwire_core::Peer;
use sanwire_exchange::succession;
/// The handshake by itself, for programs that break the rules to test an end.
#[doc(hidden)]
pub use sanwire_security::handshake;
use sanwire_security::{keys, ring};

pub use channel::{LinkStatus, Recovery};
pub use client::{
    Announcement, Client, ClientConfig, ClientEvent, CommandId, Failure, Order, ServerInfo, announcement, discovery,
};
pub use counters::Counters;
#[doc(hidden)]
pub use keys::Randomness;
pub use keys::{Identity, KeyError, NO_PASSWORD, Psk, random};
pub use options::{
    Agreed, DesiredOptions, DeviceOption, Offered, OptionConflict, OptionNumber, Options, PRIORITY_MAX, Stance, TooMany,
};
pub use server::{
    Admission, CommandHandle, Compressible, ConnectionStatus, Handshakes, LinkLimits, LinkTally, ProtectionLookup,
    SecurityEvent, Server, ServerConfig, ServerEvent,
};

/// The EtherType of HS/eth, registered for HyperSCSI.
pub const ETHERTYPE: u16 = 0x889a;

/// The UDP port of HS/IP, registered as `hyperscsi-port`.
pub const UDP_PORT: u16 = 5674;

/// The packet size that a connection begins with: every path takes it. Ethernet carries 1,500 bytes; over UDP, the
/// smallest path of IPv6 carries 1,280 with 48 bytes of headers.
#[must_use]
pub fn packet_base_bytes(peer: Peer) -> usize {
    match peer {
        Peer::Ethernet(_) => 1500,
        Peer::Udp(_) => 1232,
    }
}
