//! The ways by which the packets of a port can come.

use std::fmt;

/// How the packets of a port come into this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceivePath {
    /// The kernel copies them into a ring (AF_PACKET), from where they are copied once more by whoever keeps them.
    Packet,
    /// The kernel copies them into memory in which they may stay (AF_XDP in copy mode), from its own memory for packets where the driver
    /// has no place for a program (`is_generic`).
    XdpCopy {
        /// Behind the driver.
        is_generic: bool,
    },
    /// The network card puts them into memory in which they may stay (AF_XDP in zero-copy mode).
    XdpZeroCopy,
    /// By a UDP socket.
    Udp,
}

impl fmt::Display for ReceivePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReceivePath::Packet => "AF_PACKET",
            ReceivePath::XdpCopy { is_generic: false } => "AF_XDP, copied by the driver",
            ReceivePath::XdpCopy { is_generic: true } => "AF_XDP, copied behind the driver",
            ReceivePath::XdpZeroCopy => "AF_XDP, zero-copy",
            ReceivePath::Udp => "UDP",
        })
    }
}

/// What is wanted of AF_XDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XdpWish {
    /// What begins at this byte of a packet's payload is to lie at a sector's boundary, so that it goes to disks as it came.
    pub data_at: usize,
    /// Packets with any of these bits in the first byte of their payload are answers, for initiators of this host: they are not taken.
    pub answer_bits: u8,
    /// Ports of this process that have these packets are about to go: they hear nothing any more.
    pub is_reopened: bool,
    /// Only where the network card puts packets into our memory itself: elsewhere AF_PACKET is faster.
    pub zero_copy_only: bool,
}
