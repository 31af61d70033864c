//! Raw Ethernet by AF_XDP: packets come straight into memory of ours, in pages that can be kept, and lent to a disk, without a copy.
//!
//! A program at the interface, which goes with this process, sends the packets of our EtherTypes to sockets; all others pass as if it were
//! not there. Sending is not done by these sockets: `sendmsg` of a packet socket takes packets together from wherever their parts lie,
//! while AF_XDP sends only from its own memory.

mod bpf;
mod device;
mod driver;
mod memory;
mod program;
mod ring;
mod socket;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use sanwire_buffer::Arrival;
use sanwire_core::MacAddress;

use self::device::Device;
pub(crate) use self::device::Mode;
use self::memory::Packet;
use self::ring::ReceiveRing;
use crate::interface::Interface;
use crate::sys;

/// Packets that are taken from a ring at once.
const BATCH_PACKETS: usize = 64;

/// How packets are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) ethertype: u16,
    /// The big-endian u32 at this byte of a packet, modulo the number of shards, says whose it is.
    pub(crate) word_at: u16,
    pub(crate) shards: u16,
    /// Packets with any of these bits in their first byte are answers: they are for initiators of this host, and go their usual way.
    pub(crate) answer_bits: u8,
    /// Whoever has these packets in this process is about to go.
    pub(crate) is_reopened: bool,
    /// Memory for what arrives, in bytes.
    pub(crate) ring_bytes: usize,
    /// What begins at this byte of a packet is aligned for disks.
    pub(crate) data_at: usize,
    /// Only where the card puts packets into our memory itself.
    pub(crate) zero_copy_only: bool,
}

/// What one shard gets.
#[derive(Debug)]
pub(crate) struct Receiver {
    queues: Vec<Queue>,
    /// The queue that is looked at first, in turns.
    first: usize,
    batch: Vec<Packet>,
    /// Whether what is in the batch may be lent.
    may_lend: bool,
    /// Packets of several pieces, and what the kernel should not have named.
    refused: u64,
    shards: u16,
    share: Arc<Share>,
}

/// A socket for what comes by one receive queue.
#[derive(Debug)]
struct Queue {
    // Before the socket: it is unmapped first.
    ring: ReceiveRing,
    socket: OwnedFd,
}

/// The packets of an EtherType, as long as a shard has them.
#[derive(Debug)]
struct Share {
    device: Arc<Device>,
    /// Its first socket in the map.
    first: u16,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.device.forget(self.first);
    }
}

/// Opens a receiver for each shard, in their order; none hears anything before all are there.
///
/// # Errors
/// With a message that says why the interface's packets cannot be had so.
pub(crate) fn open(interface: &Interface, terms: &Terms) -> io::Result<Vec<Receiver>> {
    let mut device = Device::open(interface, terms)?;
    let mut opened = open_sockets(&device, terms.shards);
    if opened.is_err() {
        // It was opened before, and the interface has been away since then.
        device.disown();
        device = Device::open(interface, terms)?;
        opened = open_sockets(&device, terms.shards);
    }
    let (opened, shards) = (opened?, terms.shards);
    let first = device.steer(terms, opened.iter().map(|queue| queue.socket.as_fd()))?;
    let share = Arc::new(Share { device, first });
    let mut receivers: Vec<Vec<Queue>> = (0..shards).map(|_| Vec::new()).collect();
    for (queue, shard) in opened.into_iter().zip((0..usize::from(shards)).cycle()) {
        receivers[shard].push(queue);
    }
    let receiver = |queues| Receiver {
        queues,
        first: 0,
        batch: Vec::new(),
        may_lend: false,
        refused: 0,
        shards,
        share: Arc::clone(&share),
    };
    Ok(receivers.into_iter().map(receiver).collect())
}

/// For each queue one for each shard.
fn open_sockets(device: &Device, shards: u16) -> io::Result<Vec<Queue>> {
    let queues = (0..device.queues()).flat_map(|queue| (0..shards).map(move |_| queue));
    queues.map(|queue| device.socket(queue, shards).map(|(socket, ring)| Queue { ring, socket })).collect()
}

impl Receiver {
    /// The longest packet, with its Ethernet header.
    pub(crate) fn packet_max_bytes(&self) -> usize {
        self.share.device.packet_max_bytes()
    }

    /// Packets that may be under way.
    pub(crate) fn capacity_packets(&self) -> u32 {
        self.share.device.socket_packets(self.shards)
    }

    /// A descriptor that is readable when packets are there, or `sender` has an error to tell: it is the one that hears of an interface
    /// that is gone.
    pub(crate) fn watch(&self, sender: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        // SAFETY: no memory is involved.
        let all = sys::check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: `all` was just opened and nobody else knows of it.
        let all = unsafe { OwnedFd::from_raw_fd(all) };
        let queues = self.queues.iter().map(|queue| (queue.socket.as_fd(), libc::EPOLLIN as u32));
        for (socket, events) in queues.chain([(sender, 0)]) {
            let mut event = libc::epoll_event { events, u64: 0 };
            // SAFETY: `event` lives during the call.
            sys::check(unsafe {
                libc::epoll_ctl(all.as_raw_fd(), libc::EPOLL_CTL_ADD, socket.as_raw_fd(), &raw mut event)
            })?;
        }
        Ok(all)
    }

    /// How packets come.
    pub(crate) fn mode(&self) -> Mode {
        self.share.device.mode()
    }

    /// The interface has this address and this MTU now: packets for another one are not ours.
    ///
    /// # Errors
    /// When its packets cannot come so any more.
    pub(crate) fn set_interface(&self, address: MacAddress, mtu_bytes: usize) -> io::Result<()> {
        let device = &self.share.device;
        if device.takes_mtu(mtu_bytes) { device.set_address(address) } else { Err(socket::too_long()) }
    }

    pub(crate) fn has_input(&self) -> bool {
        self.queues.iter().any(|queue| queue.ring.has_input())
    }

    /// Hands out packets, with their Ethernet headers, until `budget` were taken by the handler.
    pub(crate) fn receive(&mut self, budget: usize, handler: &mut dyn FnMut(Arrival<'_>) -> bool) -> usize {
        let mut taken = 0;
        let queues = self.queues.len();
        self.first = (self.first + 1) % queues;
        for index in (self.first..queues).chain(0..self.first) {
            while taken < budget && self.take_batch(index, budget - taken) {
                taken += self.hand_out(index, handler);
            }
        }
        taken
    }

    /// Takes packets that have come by a queue; whether there was any.
    fn take_batch(&mut self, index: usize, budget: usize) -> bool {
        let ring = &mut self.queues[index].ring;
        if !ring.has_input() {
            return false;
        }
        let mut memory = self.share.device.memory();
        for _ in 0..budget.min(BATCH_PACKETS) {
            let Some(descriptor) = ring.next() else { break };
            match memory.take(index, descriptor) {
                Some(packet) if !descriptor.goes_on => self.batch.push(packet),
                Some(packet) => {
                    self.refused += 1;
                    memory.give_back(index, packet.page);
                }
                None => self.refused += 1,
            }
        }
        ring.release();
        self.may_lend = memory.may_lend();
        true
    }

    /// Hands out what was taken, and gives the kernel as much memory as that took.
    fn hand_out(&mut self, index: usize, handler: &mut dyn FnMut(Arrival<'_>) -> bool) -> usize {
        let mut taken = 0;
        for Packet { page, range } in &self.batch {
            let arrival = match self.may_lend {
                true => Arrival::in_frame(page, range.clone()),
                false => Arrival::from(&page[range.clone()]),
            };
            taken += usize::from(handler(arrival));
        }
        let mut memory = self.share.device.memory();
        self.batch.drain(..).for_each(|packet| memory.give_back(index, packet.page));
        let wants_call = memory.fill(index);
        drop(memory);
        if wants_call {
            self.share.device.wake(index);
        }
        taken
    }

    /// Packets that were lost for want of memory, and those that were not handed out.
    pub(crate) fn losses(&self) -> (u64, u64) {
        let mut dropped = 0;
        for queue in &self.queues {
            // SAFETY: plain numbers, valid with any bits.
            let mut statistics: libc::xdp_statistics = unsafe { std::mem::zeroed() };
            let socket = queue.socket.as_fd();
            // SAFETY: as above.
            if unsafe { sys::get_option(socket, libc::SOL_XDP, libc::XDP_STATISTICS, &mut statistics) }.is_ok() {
                dropped += statistics.rx_dropped + statistics.rx_ring_full;
            }
        }
        (dropped, self.refused)
    }
}
