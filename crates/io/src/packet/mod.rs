//! Raw Ethernet on one interface: `sendmmsg` out; in by a ring that the kernel copies packets into (packet(7)), or by AF_XDP.

mod frame;
mod path;
mod ring;

use std::cell::Cell;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libc::{c_int, sockaddr_ll, socklen_t};
use sanwire_buffer::{Arrival, Packet};
use sanwire_core::{MacAddress, Peer};

use crate::batch::{self, Fill, Messages, PACKET_BUFFERS};
use crate::interface::{self, Interface};
use crate::port::{BATCH_PACKETS, PortCounters};
use crate::{steering, sys, xdp};
use frame::parse;
pub use path::{ReceivePath, XdpWish};
use ring::Ring;

/// The receive ring that is enough for one port, in bytes.
pub const RING_BYTES_DEFAULT: usize = 8 << 20;

/// Destination, source, EtherType.
pub(crate) const ETHERNET_HEADER_BYTES: usize = 14;

/// What we ask for as send buffer: enough for the packets of a large window on a slow link.
const SEND_BUFFER_BYTES: c_int = 4 << 20;

/// A packet socket bound to one interface and one EtherType: nothing else ever wakes it.
///
/// Frames leave through the interface's queueing discipline (`PACKET_QDISC_BYPASS` is not used): a full transmit ring of a
/// network card then queues instead of dropping, other traffic gets its share, and `tc` rules hold.
#[derive(Debug)]
pub struct PacketPort {
    // Before the socket: it is unmapped first.
    source: Source,
    socket: OwnedFd,
    interface: Interface,
    ethertype: [u8; 2],
    batch: Vec<Outgoing>,
    fill: Fill,
    messages: Messages,
    counters: PortCounters,
    /// `PACKET_STATISTICS` starts anew at each reading.
    kernel_drops: Cell<u64>,
}

/// Where packets come from.
#[derive(Debug)]
enum Source {
    Ring(Ring),
    /// The descriptor is readable when packets are there, or the socket for sending has an error to tell.
    Xdp(Box<xdp::Receiver>, OwnedFd),
}

#[derive(Debug)]
struct Outgoing {
    header: [u8; ETHERNET_HEADER_BYTES],
    packet: Packet,
}

impl PacketPort {
    /// Opens a port for `ethertype` on the interface of that name, with a receive ring of about `ring_bytes`.
    ///
    /// # Errors
    /// `NotFound` when there is no such interface, `InvalidInput` when it is no Ethernet, `PermissionDenied` without
    /// the capability `CAP_NET_RAW`, else the kernel's.
    pub fn open(interface: &str, ethertype: u16, ring_bytes: usize) -> io::Result<Self> {
        let port = Self::unbound(&ethernet(interface)?, ethertype, ring_bytes)?;
        port.bind()?;
        Ok(port)
    }

    /// Opens a port for each of so many shards, in their order: the big-endian u32 at byte `word_at` of a packet, modulo `shards`, says
    /// whose it is; packets too short for that go to shard 0. None hears anything before all are there. `group` is a number that
    /// nobody else on this host uses for one interface and EtherType.
    ///
    /// # Errors
    /// As [`PacketPort::open`].
    pub fn open_shards(
        interface: &str,
        ethertype: u16,
        ring_bytes: usize,
        (word_at, shards): (usize, u32),
        group: u16,
    ) -> io::Result<Vec<Self>> {
        let interface = ethernet(interface)?;
        let mut ports = Vec::new();
        for _ in 0..shards {
            let port = Self::unbound(&interface, ethertype, ring_bytes)?;
            steering::deafen(port.as_fd())?;
            port.bind()?;
            steering::join_fanout(port.as_fd(), group)?;
            ports.push(port);
        }
        if let Some(port) = ports.last() {
            steering::choose_in_fanout(port.as_fd(), word_at, shards)?;
        }
        ports.iter().try_for_each(|port| steering::undeafen(port.as_fd()))?;
        Ok(ports)
    }

    /// Opens ports as [`PacketPort::open_shards`] does, by AF_XDP.
    ///
    /// # Errors
    /// As [`PacketPort::open`]; with a message that says why packets cannot be had so, where they could by AF_PACKET.
    pub fn open_xdp(
        interface: &str,
        ethertype: u16,
        ring_bytes: usize,
        (word_at, shards): (usize, u32),
        wish: XdpWish,
    ) -> io::Result<Vec<Self>> {
        let interface = ethernet(interface)?;
        let number = |value: usize| u16::try_from(value).map_err(io::Error::other);
        let terms = xdp::Terms {
            ethertype,
            word_at: number(word_at)?,
            shards: number(shards as usize)?,
            answer_bits: wish.answer_bits,
            is_reopened: wish.is_reopened,
            ring_bytes,
            data_at: wish.data_at,
            zero_copy_only: wish.zero_copy_only,
        };
        let open = |receiver| {
            let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
            // It sends only.
            steering::deafen(socket.as_fd())?;
            let readable = xdp::Receiver::watch(&receiver, socket.as_fd())?;
            let port = Self::with(&interface, ethertype, socket, Source::Xdp(Box::new(receiver), readable));
            port.bind()?;
            Ok(port)
        };
        xdp::open(&interface, &terms)?.into_iter().map(open).collect()
    }

    fn unbound(interface: &Interface, ethertype: u16, ring_bytes: usize) -> io::Result<Self> {
        // Protocol 0: nothing arrives before `bind` says what.
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
        let frame_bytes = ETHERNET_HEADER_BYTES + interface.mtu_bytes;
        let ring = Ring::new(socket.as_fd(), frame_bytes, ring_bytes)?;
        Ok(Self::with(interface, ethertype, socket, Source::Ring(ring)))
    }

    fn with(interface: &Interface, ethertype: u16, socket: OwnedFd, source: Source) -> Self {
        sys::raise_buffers(socket.as_fd(), SEND_BUFFER_BYTES, SEND_BUFFER_BYTES);
        PacketPort {
            source,
            socket,
            interface: interface.clone(),
            ethertype: ethertype.to_be_bytes(),
            batch: Vec::with_capacity(BATCH_PACKETS),
            fill: Fill::default(),
            messages: Messages::new(BATCH_PACKETS, (1 + PACKET_BUFFERS) * BATCH_PACKETS),
            counters: PortCounters::default(),
            kernel_drops: Cell::new(0),
        }
    }

    fn bind(&self) -> io::Result<()> {
        // SAFETY: a sockaddr_ll of zeroes is a valid one.
        let mut address: sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = u16::from_ne_bytes(self.ethertype);
        address.sll_ifindex = self.interface.index.cast_signed();
        let length = size_of::<sockaddr_ll>() as socklen_t;
        // SAFETY: `address` lives and has that length.
        sys::check(unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
    }

    /// See [`Port::payload_max_bytes`](crate::Port::payload_max_bytes).
    #[must_use]
    pub fn payload_max_bytes(&self) -> usize {
        let frame_max_bytes = match &self.source {
            Source::Ring(ring) => ring.frame_max_bytes(),
            Source::Xdp(receiver, _) => receiver.packet_max_bytes(),
        };
        self.interface.mtu_bytes.min(frame_max_bytes - ETHERNET_HEADER_BYTES)
    }

    /// How packets come.
    #[must_use]
    pub fn receive_path(&self) -> ReceivePath {
        match &self.source {
            Source::Ring(_) => ReceivePath::Packet,
            Source::Xdp(receiver, _) => match receiver.mode() {
                xdp::Mode::ZeroCopy => ReceivePath::XdpZeroCopy,
                xdp::Mode::Copy => ReceivePath::XdpCopy { is_generic: false },
                xdp::Mode::Generic => ReceivePath::XdpCopy { is_generic: true },
            },
        }
    }

    /// The interface's address.
    #[must_use]
    pub fn mac_address(&self) -> MacAddress {
        self.interface.mac_address.unwrap_or(MacAddress([0; 6]))
    }

    /// The interface as it was at the last refresh.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// See [`Port::refresh`](crate::Port::refresh). A larger MTU than at the opening is used when the port is opened
    /// again: until then the ring's frames bound the payload.
    ///
    /// # Errors
    /// `NotFound` when the interface is gone, or another one has its name now; `Unsupported` when its MTU is too large by now for how its
    /// packets come: opened again, the port has them in another way.
    pub fn refresh(&mut self, interfaces: &[Interface]) -> io::Result<()> {
        let interface = interface::find(&self.interface.name, interfaces)?;
        if interface.index != self.interface.index || interface.mac_address.is_none() {
            let message = format!("interface {} was replaced by another one: open the port again", interface.name);
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        self.interface = interface.clone();
        match &self.source {
            Source::Ring(_) => Ok(()),
            Source::Xdp(receiver, _) => receiver.set_interface(self.mac_address(), self.interface.mtu_bytes),
        }
    }

    /// See [`Port::receive`](crate::Port::receive).
    ///
    /// # Errors
    /// None so far.
    pub fn receive(&mut self, budget: usize, handler: &mut dyn FnMut(Peer, Arrival<'_>)) -> io::Result<usize> {
        let (own, counters) = (self.mac_address(), &mut self.counters);
        let mut hand_out = |frame: Option<Arrival<'_>>| match frame.and_then(|frame| parse(frame, own)) {
            Some((peer, payload)) => {
                counters.received_bytes += payload.len() as u64;
                handler(peer, payload);
                true
            }
            None => {
                counters.filtered += 1;
                false
            }
        };
        let received = match &mut self.source {
            Source::Xdp(receiver, _) => receiver.receive(budget, &mut |frame| hand_out(Some(frame))),
            Source::Ring(ring) => {
                let mut received = 0;
                while received < budget {
                    let Some(arrival) = ring.next() else { break };
                    received += usize::from(hand_out(arrival.frame().map(Arrival::from)));
                }
                received
            }
        };
        self.counters.received += received as u64;
        Ok(received)
    }

    /// See [`Port::has_input`](crate::Port::has_input).
    #[must_use]
    pub fn has_input(&self) -> bool {
        match &self.source {
            Source::Ring(ring) => ring.has_input(),
            Source::Xdp(receiver, _) => receiver.has_input(),
        }
    }

    /// Takes the error that may have woken who waits for this port: that of the socket for sending, which is not the descriptor that is
    /// waited for.
    pub(crate) fn take_error(&self) {
        if let Source::Xdp(..) = self.source {
            let _ = sys::get_option_int(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR);
        }
    }

    /// See [`Port::queue`](crate::Port::queue). A packet for a UDP peer is dropped and counted as a send error.
    ///
    /// # Errors
    /// Gives the packet back when the batch is full.
    #[expect(clippy::result_large_err, reason = "the packet itself comes back; boxing it would allocate")]
    pub fn queue(&mut self, to: Peer, packet: Packet) -> Result<(), Packet> {
        let Peer::Ethernet(destination) = to else {
            self.counters.send_errors += 1;
            return Ok(());
        };
        if !self.fill.add(&packet) {
            return Err(packet);
        }
        let mut header = [0; ETHERNET_HEADER_BYTES];
        header[..6].copy_from_slice(&destination.0);
        header[6..12].copy_from_slice(&self.mac_address().0);
        header[12..].copy_from_slice(&self.ethertype);
        self.batch.push(Outgoing { header, packet });
        Ok(())
    }

    /// See [`Port::flush`](crate::Port::flush).
    ///
    /// # Errors
    /// The kernel's, when the interface was removed.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.messages.clear();
        for outgoing in &self.batch {
            let first_buffer = self.messages.buffers();
            self.messages.push(&outgoing.header);
            self.messages.push_packet(&outgoing.packet);
            // No address: the socket is bound to the interface, and the destination stands in the frame.
            self.messages.finish(first_buffer);
        }
        let (batch, counters) = (&self.batch, &mut self.counters);
        let mut fate =
            |index: usize, result: Result<(), &io::Error>| batch::count(counters, &batch[index].packet, result.is_ok());
        // SAFETY: every message points into `self.batch`, which is not touched until the call is over.
        let result = unsafe { self.messages.send(self.socket.as_fd(), &mut fate) };
        self.batch.clear();
        self.fill = Fill::default();
        result
    }

    /// See [`Port::counters`](crate::Port::counters).
    #[must_use]
    pub fn counters(&self) -> PortCounters {
        if let Source::Xdp(receiver, _) = &self.source {
            let (kernel_drops, refused) = receiver.losses();
            return PortCounters { kernel_drops, filtered: self.counters.filtered + refused, ..self.counters };
        }
        let mut statistics = Statistics::default();
        // SAFETY: two integers, valid with any bits.
        let read =
            unsafe { sys::get_option(self.socket.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut statistics) };
        if read.is_ok() {
            self.kernel_drops.set(self.kernel_drops.get() + u64::from(statistics.drops));
        }
        PortCounters { kernel_drops: self.kernel_drops.get(), ..self.counters }
    }

    /// See [`Port::receive_capacity_packets`](crate::Port::receive_capacity_packets): the frames of the ring.
    #[must_use]
    pub fn receive_capacity_packets(&self, _packet_bytes: usize) -> u32 {
        match &self.source {
            Source::Ring(ring) => ring.frames(),
            Source::Xdp(receiver, _) => receiver.capacity_packets(),
        }
    }

    /// See [`Port::as_fd`](crate::Port::as_fd).
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Ring(_) => self.socket.as_fd(),
            Source::Xdp(_, readable) => readable.as_fd(),
        }
    }
}

/// `struct tpacket_stats` of `linux/if_packet.h`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Statistics {
    packets: u32,
    drops: u32,
}

fn ethernet(name: &str) -> io::Result<Interface> {
    let interface = interface::by_name(name)?;
    if interface.mac_address.is_none() {
        let message = format!("interface {} is no Ethernet", interface.name);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(interface)
}
