//! One socket for packets, whatever the wire.

use std::io;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::os::fd::BorrowedFd;

use sanwire_buffer::{Arrival, Packet};
use sanwire_core::{MacAddress, Peer};

use crate::interface::Interface;
use crate::{PacketPort, ReceivePath, UdpPort};

/// Packets that one batch holds: after so many [`Port::queue`] refuses until [`Port::flush`].
pub const BATCH_PACKETS: usize = 64;

/// Bytes at which a batch is full, even with fewer packets: while a batch is filled, its receiver has nothing to do, and
/// goes to sleep if that takes long; and what has just been read for a checksum is still in the cache when the kernel copies
/// it. 512 KiB reads at MTU 9000 over a veth pair, 64, 28, 14 and 8 packets a batch: 4,650, 4,870, 4,940 and 4,250 a second.
pub(crate) const BATCH_BYTES: usize = 128 << 10;

/// A socket that packets come from and go to.
///
/// Receiving never blocks. Sending behaves like a wire: a packet that the link, the route or a full transmit queue does
/// not take is dropped and counted, and the protocol's own recovery deals with it.
#[derive(Debug)]
pub enum Port {
    /// Raw Ethernet on one interface.
    Packet(Box<PacketPort>),
    /// A UDP socket.
    Udp(Box<UdpPort>),
}

/// The address that a port is reached at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalAddress {
    /// The interface's.
    Ethernet(MacAddress),
    /// Where the UDP socket is bound.
    Udp(SocketAddr),
}

/// What a port has done since it was opened, in packets unless the name names another unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Handed to the receiver.
    pub received: u64,
    /// Bytes of these, without link headers.
    pub received_bytes: u64,
    /// Taken by the kernel for sending.
    pub sent: u64,
    /// Bytes of these, without link headers.
    pub sent_bytes: u64,
    /// Arrived, but the kernel had no room in the ring or the socket's buffer.
    pub kernel_drops: u64,
    /// Dropped instead of sent: larger than the link takes, no route, interface down, transmit queue full.
    pub send_errors: u64,
    /// Arrived and not handed out: truncated, or not for this station.
    pub filtered: u64,
}

impl AddAssign for PortCounters {
    fn add_assign(&mut self, other: PortCounters) {
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.kernel_drops += other.kernel_drops;
        self.send_errors += other.send_errors;
        self.filtered += other.filtered;
    }
}

macro_rules! each {
    ($self:ident, $port:ident => $call:expr) => {
        match $self {
            Port::Packet($port) => $call,
            Port::Udp($port) => $call,
        }
    };
}

impl Port {
    /// The largest packet, in bytes, that the local link takes: an Ethernet frame's payload, or a UDP datagram's.
    ///
    /// It is as old as the last [`Port::refresh`]. The path may take less.
    #[must_use]
    pub fn payload_max_bytes(&self) -> usize {
        each!(self, port => port.payload_max_bytes())
    }

    /// Takes over the MTU and the address of its interface from those that there are now.
    ///
    /// # Errors
    /// `NotFound` when the interface is gone. The port stays usable.
    pub fn refresh(&mut self, interfaces: &[Interface]) -> io::Result<()> {
        match self {
            Port::Packet(port) => port.refresh(interfaces),
            Port::Udp(port) => {
                port.refresh(interfaces);
                Ok(())
            }
        }
    }

    /// Hands out up to `budget` packets that have arrived, in place, and returns how many. Of some ports parts of them can be kept.
    ///
    /// Fewer than `budget` means that no more are there. An Ethernet packet may end in padding.
    ///
    /// # Errors
    /// The kernel's, when the socket no longer works at all.
    pub fn receive(&mut self, budget: usize, handler: &mut dyn FnMut(Peer, Arrival<'_>)) -> io::Result<usize> {
        each!(self, port => port.receive(budget, handler))
    }

    /// Whether a packet is known to be there, without a system call. A port without a ring mostly does not know.
    #[must_use]
    pub fn has_input(&self) -> bool {
        each!(self, port => port.has_input())
    }

    /// Who waited for this port was woken: takes an error that would end every later wait at once, where [`Port::as_fd`] does not tell it.
    pub(crate) fn take_error(&self) {
        if let Port::Packet(port) = self {
            port.take_error();
        }
    }

    /// Whether packets arrive in memory that both the kernel and this process see.
    pub(crate) fn has_ring(&self) -> bool {
        matches!(self, Port::Packet(_))
    }

    /// Puts a packet into the batch that the next [`Port::flush`] sends.
    ///
    /// # Errors
    /// Gives the packet back when the batch is full: flush first.
    #[expect(clippy::result_large_err, reason = "the packet itself comes back; boxing it would allocate")]
    pub fn queue(&mut self, to: Peer, packet: Packet) -> Result<(), Packet> {
        each!(self, port => port.queue(to, packet))
    }

    /// Sends the batch. Afterwards it is empty, whatever happened.
    ///
    /// When the socket's send buffer is full it waits for room, a millisecond at the most; packets that still find none
    /// are dropped and counted.
    ///
    /// # Errors
    /// The kernel's, when the socket no longer works at all (its interface was removed).
    pub fn flush(&mut self) -> io::Result<()> {
        each!(self, port => port.flush())
    }

    /// The socket, readable when packets are there.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        each!(self, port => port.as_fd())
    }

    /// What the port has done so far.
    #[must_use]
    pub fn counters(&self) -> PortCounters {
        each!(self, port => port.counters())
    }

    /// How many packets of `packet_bytes` may be under way towards this port without the kernel dropping any.
    #[must_use]
    pub fn receive_capacity_packets(&self, packet_bytes: usize) -> u32 {
        each!(self, port => port.receive_capacity_packets(packet_bytes))
    }

    /// How packets come.
    #[must_use]
    pub fn receive_path(&self) -> ReceivePath {
        match self {
            Port::Packet(port) => port.receive_path(),
            Port::Udp(_) => ReceivePath::Udp,
        }
    }

    /// The address of this end.
    #[must_use]
    pub fn local_address(&self) -> LocalAddress {
        match self {
            Port::Packet(port) => LocalAddress::Ethernet(port.mac_address()),
            Port::Udp(port) => LocalAddress::Udp(port.local_address()),
        }
    }
}

impl From<PacketPort> for Port {
    fn from(port: PacketPort) -> Self {
        Port::Packet(Box::new(port))
    }
}

impl From<UdpPort> for Port {
    fn from(port: UdpPort) -> Self {
        Port::Udp(Box::new(port))
    }
}
