//! A UDP socket whose datagrams leave and arrive in bulk (udp(7): `UDP_SEGMENT`, `UDP_GRO`).

mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libc::c_int;
use sanwire_buffer::{Arrival, Packet};
use sanwire_core::Peer;

use crate::interface::{self, Interface};
use crate::port::PortCounters;
use crate::{address, steering, sys};
use receive::Receiver;
use send::Sender;

/// The largest payload of one IPv4 datagram: 65,535 bytes less the IP and UDP headers. Also what we use over IPv6.
pub(crate) const DATAGRAM_MAX_BYTES: usize = 65_507;

/// What we ask for as socket buffers; the system may grant less.
const RECEIVE_BUFFER_BYTES: c_int = 8 << 20;
const SEND_BUFFER_BYTES: c_int = 4 << 20;

/// `SO_MEMINFO` (sock_diag(7)): nine counters, of which the last is that of drops.
const SO_MEMINFO: c_int = 55;
const MEMINFO_COUNT: usize = 9;
const MEMINFO_DROPS: usize = 8;

/// A bound UDP socket.
///
/// Datagrams are never fragmented (DF is set), unless [`UdpPort::let_ip_fragment`] says so, and the kernel's cache of path MTUs is not used: the protocol probes. ICMP
/// errors are ignored. An IPv6 socket takes IPv6 only. On a host with several addresses bind to one of them, so that
/// answers come from the address that was asked.
#[derive(Debug)]
pub struct UdpPort {
    socket: OwnedFd,
    local: SocketAddr,
    payload_max_bytes: usize,
    receiver: Receiver,
    sender: Sender,
    counters: PortCounters,
}

impl UdpPort {
    /// Binds a socket; port 0 lets the kernel choose one.
    ///
    /// # Errors
    /// The kernel's: `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`.
    pub fn open(bind: SocketAddr) -> io::Result<Self> {
        Self::bind(Self::unbound(bind)?, bind)
    }

    /// Binds a socket for each of so many shards, in their order, to one address: the big-endian u32 at byte 8 of a packet, modulo
    /// `shards`, says whose it is; packets too short for that go to shard 0. None hears anything before all are there.
    ///
    /// # Errors
    /// As [`UdpPort::open`]. Not `AddrInUse` where another process of the same user shares the address in this way.
    pub fn open_shards(bind: SocketAddr, shards: u32) -> io::Result<Vec<Self>> {
        let mut ports: Vec<UdpPort> = Vec::new();
        for _ in 0..shards {
            let socket = Self::unbound(bind)?;
            steering::share_port(socket.as_fd())?;
            steering::deafen(socket.as_fd())?;
            let address = ports.first().map_or(bind, UdpPort::local_address);
            ports.push(Self::bind(socket, address)?);
        }
        if let Some(port) = ports.last() {
            steering::choose_among_shared(port.as_fd(), shards)?;
        }
        ports.iter().try_for_each(|port| steering::undeafen(port.as_fd()))?;
        Ok(ports)
    }

    /// A socket for addresses like this one.
    fn unbound(bind: SocketAddr) -> io::Result<OwnedFd> {
        let domain = if bind.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let socket = sys::socket(domain, libc::SOCK_DGRAM, libc::IPPROTO_UDP)?;
        let fd = socket.as_fd();
        if bind.is_ipv4() {
            sys::set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_PROBE)?;
        } else {
            sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1)?;
            sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &libc::IPV6_PMTUDISC_PROBE)?;
        }
        sys::raise_buffers(fd, RECEIVE_BUFFER_BYTES, SEND_BUFFER_BYTES);
        // Kernels before 5.0 refuse: then each datagram arrives on its own.
        let _ = sys::set_option(fd, libc::SOL_UDP, receive::UDP_GRO, &1);
        Ok(socket)
    }

    fn bind(socket: OwnedFd, bind: SocketAddr) -> io::Result<Self> {
        let (address, length) = address::to_raw(bind);
        // SAFETY: `address` lives and is at least `length` bytes long.
        sys::check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
        let local = address::local(socket.as_fd())?;
        let payload_max_bytes = payload_max_bytes(local, &interface::list()?);
        let counters = PortCounters::default();
        Ok(UdpPort { socket, local, payload_max_bytes, receiver: Receiver::new(), sender: Sender::new(), counters })
    }

    /// Has IP take datagrams apart that are longer than the path takes, and put them together at the other end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn let_ip_fragment(&self) -> io::Result<()> {
        let fd = self.socket.as_fd();
        match self.local.is_ipv4() {
            true => sys::set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_DONT),
            false => sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &libc::IPV6_PMTUDISC_DONT),
        }
    }

    /// Where the socket is bound.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// See [`Port::payload_max_bytes`](crate::Port::payload_max_bytes). A socket bound to no address in particular says
    /// the largest of all interfaces.
    #[must_use]
    pub fn payload_max_bytes(&self) -> usize {
        self.payload_max_bytes
    }

    /// See [`Port::refresh`](crate::Port::refresh).
    pub fn refresh(&mut self, interfaces: &[Interface]) {
        self.payload_max_bytes = payload_max_bytes(self.local, interfaces);
        self.sender.try_segmentation_again();
    }

    /// See [`Port::receive`](crate::Port::receive).
    ///
    /// # Errors
    /// The kernel's, when the socket no longer works at all.
    pub fn receive(&mut self, budget: usize, handler: &mut dyn FnMut(Peer, Arrival<'_>)) -> io::Result<usize> {
        self.receiver.receive(self.socket.as_fd(), budget, &mut self.counters, handler)
    }

    /// Whether datagrams that the kernel has handed over already wait for the next [`UdpPort::receive`].
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.receiver.has_input()
    }

    /// See [`Port::queue`](crate::Port::queue). A packet for an Ethernet peer is dropped and counted as a send error.
    ///
    /// # Errors
    /// Gives the packet back when the batch is full.
    #[expect(clippy::result_large_err, reason = "the packet itself comes back; boxing it would allocate")]
    pub fn queue(&mut self, to: Peer, packet: Packet) -> Result<(), Packet> {
        match to {
            Peer::Udp(address) if address.is_ipv4() == self.local.is_ipv4() => self.sender.queue(address, packet),
            _ => {
                self.counters.send_errors += 1;
                Ok(())
            }
        }
    }

    /// See [`Port::flush`](crate::Port::flush).
    ///
    /// # Errors
    /// The kernel's, when the socket no longer works at all.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sender.flush(self.socket.as_fd(), &mut self.counters)
    }

    /// See [`Port::counters`](crate::Port::counters).
    #[must_use]
    pub fn counters(&self) -> PortCounters {
        let mut memory = [0u32; MEMINFO_COUNT];
        // SAFETY: integers, valid with any bits. A refusal leaves them zero.
        let _ = unsafe { sys::get_option(self.as_fd(), libc::SOL_SOCKET, SO_MEMINFO, &mut memory) };
        PortCounters { kernel_drops: u64::from(memory[MEMINFO_DROPS]), ..self.counters }
    }

    /// See [`Port::receive_capacity_packets`](crate::Port::receive_capacity_packets): the receive buffer that was
    /// granted, over the memory that the kernel charges for one packet.
    #[must_use]
    pub fn receive_capacity_packets(&self, packet_bytes: usize) -> u32 {
        let granted = sys::get_option_int(self.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0);
        let granted = usize::try_from(granted).unwrap_or(0);
        u32::try_from(granted / charge_bytes(packet_bytes)).unwrap_or(u32::MAX).max(1)
    }

    /// See [`Port::as_fd`](crate::Port::as_fd).
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    #[cfg(test)]
    fn forbid_segmentation(&mut self) {
        self.sender.forbid_segmentation();
    }
}

/// What the kernel charges a receive buffer for one datagram: headers and bookkeeping, from the next power of two; large
/// ones take whole pages.
fn charge_bytes(packet_bytes: usize) -> usize {
    const HEADERS_BYTES: usize = 448;
    const DESCRIPTOR_BYTES: usize = 256;
    const PAGED_FROM_BYTES: usize = 16 << 10;
    let bytes = packet_bytes.saturating_add(HEADERS_BYTES);
    let memory = if bytes > PAGED_FROM_BYTES { bytes.next_multiple_of(4096) } else { bytes.next_power_of_two() };
    memory.max(512) + DESCRIPTOR_BYTES
}

fn payload_max_bytes(local: SocketAddr, interfaces: &[Interface]) -> usize {
    let ip = local.ip();
    let is_bound_to =
        |interface: &&Interface| interface.addresses.contains(&ip) || interface.is_loopback && ip.is_loopback();
    let mtu_bytes = match interfaces.iter().find(is_bound_to) {
        Some(interface) => interface.mtu_bytes,
        None => interfaces.iter().filter(|i| i.is_up).map(|i| i.mtu_bytes).max().unwrap_or(1280),
    };
    let headers_bytes = match ip {
        IpAddr::V4(_) => 20 + 8,
        IpAddr::V6(_) => 40 + 8,
    };
    mtu_bytes.saturating_sub(headers_bytes).min(DATAGRAM_MAX_BYTES)
}
