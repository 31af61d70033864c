//! An interface whose packets come by AF_XDP: one memory, one program, and for each receive queue a socket that owns its rings. All ports
//! of this process on the interface share them.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sanwire_buffer::UNIT_BYTES;
use sanwire_core::MacAddress;

use super::Terms;
use super::bpf::{self, Link, Place};
use super::driver::Asker;
use super::memory::{Layout, Memory};
use super::program::{Rule, program};
use super::ring::{FillRing, ReceiveRing, ask_for_completions};
use super::socket::{bind, explain, no_zero_copy, offsets, register, too_long, while_busy};
use crate::interface::Interface;
use crate::packet::ETHERNET_HEADER_BYTES;
use crate::sys;

/// Sockets at one interface, at the most.
const SOCKETS_MAX: u16 = 1024;

/// Pages that a receive queue needs to work at all.
const PAGES_MIN: u32 = 64;

/// The same where the card puts all packets of the queue into them, also those of others, which the kernel then copies.
const ZERO_COPY_PAGES_MIN: u32 = 2048;

/// The interfaces that are open in this process.
static DEVICES: Mutex<Vec<(Key, Weak<Device>)>> = Mutex::new(Vec::new());

/// Network namespace and index.
type Key = (u64, u32);

/// How packets get into our memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// By the card.
    ZeroCopy,
    /// By a copy in the driver's path.
    Copy,
    /// By a copy behind the kernel's own memory for packets.
    Generic,
}

/// An interface.
#[derive(Debug)]
pub(super) struct Device {
    // In this order: first no packet comes any more, then the sockets go, and then what they write to.
    steering: Mutex<Steering>,
    queues: Vec<QueueSocket>,
    memory: Mutex<Memory>,
    map: OwnedFd,
    layout: Layout,
    interface: u32,
    is_zero_copy: bool,
    /// Pages that the kernel has for each queue.
    pub(super) pages: u32,
}

#[derive(Debug)]
struct Steering {
    address: MacAddress,
    rules: Vec<Rule>,
    /// Once there is a rule.
    link: Option<Link>,
}

/// Has the rings of a receive queue by which the kernel gets memory. It receives nothing itself.
#[derive(Debug)]
struct QueueSocket {
    _ring: ReceiveRing,
    socket: OwnedFd,
}

impl Device {
    /// The interface, as it is open already or opened now.
    pub(super) fn open(interface: &Interface, wish: &Terms) -> io::Result<Arc<Device>> {
        let key = (namespace()?, interface.index);
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|(_, device)| device.strong_count() > 0);
        if let Some(device) = devices.iter().find(|(other, _)| *other == key).and_then(|(_, device)| device.upgrade()) {
            return match device.is_zero_copy {
                true if !device.takes_mtu(interface.mtu_bytes) => Err(too_long()),
                false if wish.zero_copy_only => Err(no_zero_copy()),
                _ => Ok(device),
            };
        }
        let device = Arc::new(Device::new(interface, wish)?);
        devices.push((key, Arc::downgrade(&device)));
        Ok(device)
    }

    /// It is of no use any more: who opens the interface next opens it anew.
    pub(super) fn disown(self: &Arc<Device>) {
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|(_, device)| device.as_ptr() != Arc::as_ptr(self));
        // Its program would keep the next one out.
        self.steering().link = None;
    }

    fn new(interface: &Interface, wish: &Terms) -> io::Result<Device> {
        let asker = Asker::of(&interface.name)?;
        let (queues, layout) = (asker.receive_queues(), Layout::aligning(ETHERNET_HEADER_BYTES + wish.data_at));
        if wish.zero_copy_only && !layout.takes_mtu(interface.mtu_bytes) {
            return Err(too_long());
        }
        let pages = (wish.ring_bytes / UNIT_BYTES / usize::from(queues)).max(1).next_power_of_two();
        let pages = u32::try_from(pages).map_err(io::Error::other)?.max(PAGES_MIN);
        let map = bpf::create_socket_map(SOCKETS_MAX.into()).map_err(|error| explain("a map", error))?;
        let open = |is_zero_copy| {
            let pages = if is_zero_copy { pages.max(ZERO_COPY_PAGES_MIN) } else { pages };
            let mut memory = Memory::new(Memory::make_region(pages, queues)?, pages);
            let sockets = open_queues(interface.index, queues, (&mut memory, layout, pages), is_zero_copy)?;
            Ok((sockets, memory, pages, is_zero_copy))
        };
        let (sockets, memory, pages, is_zero_copy) = match open(true) {
            Err(error) if wish.zero_copy_only => return Err(error),
            Err(_) => open(false)?,
            opened => opened?,
        };
        if asker.takes_tags_out() {
            let message = format!(
                "its driver takes VLAN tags out of packets: let it leave them by `ethtool -K {} rxvlan off`",
                interface.name
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let address = interface.mac_address.unwrap_or(MacAddress::BROADCAST);
        let steering = Mutex::new(Steering { address, rules: Vec::new(), link: None });
        let (memory, interface) = (Mutex::new(memory), interface.index);
        let device = Device { steering, queues: sockets, memory, map, layout, interface, is_zero_copy, pages };
        (0..device.queues.len()).for_each(|queue| device.wake(queue));
        Ok(device)
    }

    /// How packets come, while there is a rule.
    pub(super) fn mode(&self) -> Mode {
        let place = self.steering().link.as_ref().map(|link| link.place);
        match (self.is_zero_copy, place) {
            (true, _) => Mode::ZeroCopy,
            (false, Some(Place::Generic)) => Mode::Generic,
            (false, _) => Mode::Copy,
        }
    }

    fn steering(&self) -> MutexGuard<'_, Steering> {
        self.steering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest packet, with its Ethernet header.
    pub(super) fn packet_max_bytes(&self) -> usize {
        self.layout.packet_max_bytes()
    }

    /// Whether packets of this MTU may come. In zero-copy mode those of others come into our pages too, and drivers may drop what is longer
    /// than one.
    pub(super) fn takes_mtu(&self, mtu_bytes: usize) -> bool {
        !self.is_zero_copy || self.layout.takes_mtu(mtu_bytes)
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        // Nothing panics between two changes that belong together.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Has the kernel look at the memory that it was given for a queue.
    pub(super) fn wake(&self, queue: usize) {
        let socket = self.queues[queue].socket.as_raw_fd();
        // SAFETY: no memory is involved. What it answers does not matter: the kernel has looked.
        _ = unsafe {
            libc::recvfrom(
                socket,
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    /// A socket for what one of so many shards gets of a queue. What it has not looked at is not all memory that the queue has: others get
    /// some, whatever comes for it.
    pub(super) fn socket(&self, queue: usize, shards: u16) -> io::Result<(OwnedFd, ReceiveRing)> {
        let socket = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        let ring = ReceiveRing::new(socket.as_fd(), &offsets(socket.as_fd())?.rx, self.socket_packets(shards))?;
        let owner = self.queues[queue].socket.as_fd();
        bind(socket.as_fd(), self.interface, queue as u32, (libc::XDP_SHARED_UMEM, Some(owner)))?;
        Ok((socket, ring))
    }

    /// Packets that may wait in a queue for one of so many shards.
    pub(super) fn socket_packets(&self, shards: u16) -> u32 {
        let packets = (self.pages / 2 / u32::from(shards.max(1))).max(PAGES_MIN / 2);
        // A power of two, and no more than that.
        1 << packets.ilog2()
    }

    /// Sends the packets of an EtherType to these sockets, those of each queue in the order of the shards; gives the number of the first.
    pub(super) fn steer<'a>(&self, terms: &Terms, sockets: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<u16> {
        let &Terms { ethertype, word_at, shards, answer_bits, .. } = terms;
        let mut steering = self.steering();
        let former = steering.rules.iter().position(|rule| rule.ethertype == ethertype);
        if former.is_some() && !terms.is_reopened {
            let message =
                format!("this program has the packets of EtherType {ethertype:#06x} on this interface already");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        let queues = self.queues.len() as u16;
        let count = shards.checked_mul(queues).filter(|count| *count <= SOCKETS_MAX);
        let first = count.and_then(|count| free_run(&steering.rules, count, queues)).ok_or_else(|| {
            io::Error::other(format!(
                "{queues} receive queues and {shards} shards take more than {SOCKETS_MAX} sockets"
            ))
        })?;
        for (number, socket) in (first.into()..).zip(sockets) {
            bpf::put_socket(self.map.as_fd(), number, socket).map_err(|error| explain("a socket in the map", error))?;
        }
        let before = steering.rules.clone();
        steering.rules.extend([Rule { ethertype, word_at, shards, answer_bits, first }]);
        if let Some(former) = former {
            steering.rules.remove(former);
        }
        match self.load(&mut steering) {
            Ok(()) => Ok(first),
            Err(error) => {
                steering.rules = before;
                Err(error)
            }
        }
    }

    /// The interface has this address now.
    pub(super) fn set_address(&self, address: MacAddress) -> io::Result<()> {
        let mut steering = self.steering();
        let former = std::mem::replace(&mut steering.address, address);
        if former == address {
            return Ok(());
        }
        self.load(&mut steering).inspect_err(|_| steering.address = former)
    }

    /// The packets of a rule, which has this number first, go their usual way again.
    pub(super) fn forget(&self, first: u16) {
        let mut steering = self.steering();
        let before = steering.rules.len();
        steering.rules.retain(|rule| rule.first != first);
        if steering.rules.len() == before {
            return;
        }
        match steering.rules.is_empty() {
            true => steering.link = None,
            // Otherwise its packets go to sockets that are closed, and from there on their usual way.
            false => _ = self.load(&mut steering),
        }
    }

    fn load(&self, steering: &mut Steering) -> io::Result<()> {
        let program = program(&steering.rules, steering.address, self.queues.len() as u16, self.map.as_fd());
        let program = bpf::load(&program).map_err(|error| explain("its program", error))?;
        if let Some(link) = &steering.link {
            return bpf::replace(link, program.as_fd()).map_err(|error| explain("its program", error));
        }
        let link = |place| while_busy(|| bpf::link(program.as_fd(), self.interface, place));
        let link = match link(Place::Driver) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) && !self.is_zero_copy => link(Place::Generic),
            link => link,
        };
        steering.link = Some(link.map_err(|error| explain("its program", error))?);
        Ok(())
    }
}

/// The first of so many numbers in a row that no rule has.
fn free_run(rules: &[Rule], count: u16, queues: u16) -> Option<u16> {
    let taken = |rule: &Rule| rule.first..rule.first + rule.shards * queues;
    let ends = rules.iter().map(|rule| taken(rule).end);
    let is_free = |first: &u16| {
        let end = first + count;
        end <= SOCKETS_MAX && rules.iter().all(|rule| taken(rule).end <= *first || end <= rule.first)
    };
    std::iter::once(0).chain(ends).filter(is_free).min()
}

fn open_queues(
    interface: u32,
    queues: u16,
    (memory, layout, pages): (&mut Memory, Layout, u32),
    is_zero_copy: bool,
) -> io::Result<Vec<QueueSocket>> {
    let mut sockets: Vec<QueueSocket> = Vec::new();
    for queue in 0..queues.into() {
        let socket = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(|error| explain("a socket", error))?;
        let offsets = offsets(socket.as_fd())?;
        let (flags, owner) = match sockets.first() {
            Some(first) => (libc::XDP_SHARED_UMEM, Some(first.socket.as_fd())),
            None => {
                register(socket.as_fd(), memory.region(), layout)?;
                let copy = if is_zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
                (copy | libc::XDP_USE_NEED_WAKEUP, None)
            }
        };
        // It has pages before packets come.
        memory.add(FillRing::new(socket.as_fd(), &offsets.fr, pages)?);
        ask_for_completions(socket.as_fd())?;
        // The kernel binds none that neither receives nor sends.
        let ring = ReceiveRing::new(socket.as_fd(), &offsets.rx, 1)?;
        bind(socket.as_fd(), interface, queue, (flags, owner)).map_err(|error| match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EINVAL) if is_zero_copy => no_zero_copy(),
            _ => explain("a socket at its queue", error),
        })?;
        sockets.push(QueueSocket { _ring: ring, socket });
    }
    Ok(sockets)
}

/// A number for the network namespace of this thread.
fn namespace() -> io::Result<u64> {
    fs::metadata("/proc/thread-self/ns/net").map(|namespace| namespace.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_sockets_are_used_again_and_never_twice() {
        let rule = |first, shards| Rule { ethertype: 1, word_at: 0, shards, answer_bits: 0, first };
        assert_eq!(free_run(&[], 8, 2), Some(0));
        assert_eq!(free_run(&[rule(0, 4)], 8, 2), Some(8));
        assert_eq!(free_run(&[rule(8, 4)], 8, 2), Some(0));
        assert_eq!(free_run(&[rule(4, 4)], 8, 2), Some(12));
        assert_eq!(free_run(&[rule(0, 4), rule(8, 500)], 8, 2), Some(1008));
        assert_eq!(free_run(&[rule(0, 4), rule(8, 508)], 8, 2), None);
    }
}
