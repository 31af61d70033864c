//! An interface whose packets come by AF_XDP: one memory, one program, and for each receive queue a socket that owns its rings. All ports
//! of this process on the interface share them.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use libc::{sockaddr_xdp, socklen_t, xdp_mmap_offsets};
use sanwire_buffer::{Region, UNIT_BYTES};
use sanwire_core::MacAddress;

use super::bpf::{self, Link, Place};
use super::memory::{Layout, Memory};
use super::program::{Rule, program};
use super::ring::{FillRing, ReceiveRing, ask_for_completions};
use crate::interface::Interface;
use crate::sys;

/// Sockets at one interface, at the most.
const SOCKETS_MAX: u16 = 1024;

/// Pages that a receive queue needs to work at all.
const PAGES_MIN: u32 = 64;

/// A queue whose socket was just closed, or an interface whose program's process has died, is busy for some milliseconds.
const BUSY_WAIT: Duration = Duration::from_millis(10);
const BUSY_TRIES: u32 = 20;

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
    // In this order: no packet comes any more when the sockets are closed, and none is written when the memory goes.
    steering: Mutex<Steering>,
    queues: Vec<QueueSocket>,
    map: OwnedFd,
    memory: Mutex<Memory>,
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
    socket: OwnedFd,
    _ring: ReceiveRing,
}

/// What a device is opened for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// Memory for what arrives, in bytes.
    pub(super) ring_bytes: usize,
    /// What begins at this byte of a packet, with its Ethernet header, is to be aligned.
    pub(super) data_at: usize,
    /// Only where no copy is needed.
    pub(super) zero_copy_only: bool,
}

impl Device {
    /// The interface, as it is open already or opened now.
    pub(super) fn open(interface: &Interface, wish: Wish) -> io::Result<Arc<Device>> {
        let key = (namespace()?, interface.index);
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|(_, device)| device.strong_count() > 0);
        if let Some(device) = devices.iter().find(|(other, _)| *other == key).and_then(|(_, device)| device.upgrade()) {
            return if device.is_zero_copy || !wish.zero_copy_only { Ok(device) } else { Err(no_zero_copy()) };
        }
        let device = Arc::new(Device::new(interface, wish)?);
        devices.push((key, Arc::downgrade(&device)));
        Ok(device)
    }

    fn new(interface: &Interface, wish: Wish) -> io::Result<Device> {
        let queues = receive_queues(&interface.name)?;
        let pages = (wish.ring_bytes / UNIT_BYTES / usize::from(queues)).max(1).next_power_of_two();
        let pages = u32::try_from(pages).map_err(io::Error::other)?.max(PAGES_MIN);
        let layout = Layout::aligning(wish.data_at);
        let map = bpf::create_socket_map(SOCKETS_MAX.into()).map_err(|error| explain("a map", error))?;
        let open = |is_zero_copy| {
            let region = Memory::region(pages, queues)?;
            let (sockets, fill_rings) = open_queues(interface.index, queues, (&region, layout, pages), is_zero_copy)?;
            Ok((sockets, Memory::new(region, fill_rings, pages), is_zero_copy))
        };
        let (queues, memory, is_zero_copy) = match open(true) {
            Err(error) if wish.zero_copy_only => return Err(error),
            Err(_) => open(false)?,
            opened => opened?,
        };
        let address = interface.mac_address.unwrap_or(MacAddress::BROADCAST);
        let steering = Mutex::new(Steering { address, rules: Vec::new(), link: None });
        let (memory, interface) = (Mutex::new(memory), interface.index);
        Ok(Device { steering, queues, map, memory, layout, interface, is_zero_copy, pages })
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

    /// A socket for what one shard gets of a queue.
    pub(super) fn socket(&self, queue: usize) -> io::Result<(OwnedFd, ReceiveRing)> {
        let socket = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        let ring = ReceiveRing::new(socket.as_fd(), &offsets(socket.as_fd())?.rx, self.pages)?;
        let owner = self.queues[queue].socket.as_fd();
        bind(socket.as_fd(), self.interface, queue as u32, (libc::XDP_SHARED_UMEM, Some(owner)))?;
        Ok((socket, ring))
    }

    /// Sends the packets of an EtherType to these sockets, those of each queue in the order of the shards.
    pub(super) fn steer<'a>(
        &self,
        (ethertype, word_at, shards): (u16, u16, u16),
        sockets: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<()> {
        let mut steering = self.steering();
        if steering.rules.iter().any(|rule| rule.ethertype == ethertype) {
            let message =
                format!("this program has the packets of EtherType {ethertype:#06x} on this interface already");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        let count = shards.checked_mul(self.queues.len() as u16).filter(|count| *count <= SOCKETS_MAX);
        let count = count.ok_or_else(|| io::Error::other("there are too many receive queues and shards"))?;
        let first = free_run(&steering.rules, count, self.queues.len() as u16)
            .ok_or_else(|| io::Error::other("there are too many receive queues and shards"))?;
        for (number, socket) in (first.into()..).zip(sockets) {
            bpf::put_socket(self.map.as_fd(), number, socket).map_err(|error| explain("a socket in the map", error))?;
        }
        steering.rules.push(Rule { ethertype, word_at, shards, first });
        let result = self.load(&mut steering);
        if result.is_err() {
            steering.rules.pop();
        }
        result
    }

    /// The interface has this address now.
    pub(super) fn set_address(&self, address: MacAddress) -> io::Result<()> {
        let mut steering = self.steering();
        if std::mem::replace(&mut steering.address, address) == address {
            return Ok(());
        }
        self.load(&mut steering)
    }

    /// The packets of an EtherType go their usual way again.
    pub(super) fn forget(&self, ethertype: u16) {
        let mut steering = self.steering();
        steering.rules.retain(|rule| rule.ethertype != ethertype);
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
    (region, layout, pages): (&Region, Layout, u32),
    is_zero_copy: bool,
) -> io::Result<(Vec<QueueSocket>, Vec<FillRing>)> {
    let (mut sockets, mut fill_rings) = (Vec::<QueueSocket>::new(), Vec::new());
    for queue in 0..queues.into() {
        let socket = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(|error| explain("a socket", error))?;
        let offsets = offsets(socket.as_fd())?;
        let (flags, owner) = match sockets.first() {
            Some(first) => (libc::XDP_SHARED_UMEM, Some(first.socket.as_fd())),
            None => {
                register(socket.as_fd(), region, layout)?;
                let copy = if is_zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
                (copy | libc::XDP_USE_NEED_WAKEUP, None)
            }
        };
        fill_rings.push(FillRing::new(socket.as_fd(), &offsets.fr, pages)?);
        ask_for_completions(socket.as_fd())?;
        // The kernel binds none that neither receives nor sends.
        let ring = ReceiveRing::new(socket.as_fd(), &offsets.rx, 1)?;
        bind(socket.as_fd(), interface, queue, (flags, owner)).map_err(|error| match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EINVAL) if is_zero_copy => no_zero_copy(),
            _ => explain("a socket at its queue", error),
        })?;
        sockets.push(QueueSocket { socket, _ring: ring });
    }
    Ok((sockets, fill_rings))
}

/// Makes a region the memory of a socket.
fn register(socket: BorrowedFd<'_>, region: &Region, layout: Layout) -> io::Result<()> {
    let length_bytes = region.length_bytes();
    let memory = libc::xdp_umem_reg {
        addr: region.base().addr() as u64,
        len: length_bytes as u64,
        chunk_size: UNIT_BYTES as u32,
        headroom: layout.headroom_bytes as u32,
        flags: 0,
        tx_metadata_len: 0,
    };
    sys::set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOBUFS) => {
            let mib = length_bytes >> 20;
            io::Error::other(format!(
                "{mib} MiB may not be locked in memory: raise RLIMIT_MEMLOCK (LimitMEMLOCK= of a unit)"
            ))
        }
        _ => explain("memory", error),
    })
}

fn offsets(socket: BorrowedFd<'_>) -> io::Result<xdp_mmap_offsets> {
    // SAFETY: plain numbers, valid with any bits.
    let mut offsets: xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { sys::get_option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut offsets) }?;
    Ok(offsets)
}

fn bind(
    socket: BorrowedFd<'_>,
    interface: u32,
    queue: u32,
    (flags, owner): (u16, Option<BorrowedFd<'_>>),
) -> io::Result<()> {
    let address = sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: owner.map_or(0, |owner| owner.as_raw_fd().cast_unsigned()),
    };
    let length = size_of::<sockaddr_xdp>() as socklen_t;
    while_busy(|| {
        // SAFETY: `address` lives and has that length.
        sys::check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
    })
}

/// Tries again for a while: what had a queue or an interface before may be on its way out.
fn while_busy<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..BUSY_TRIES {
        match attempt() {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => thread::sleep(BUSY_WAIT),
            result => return result,
        }
    }
    attempt()
}

fn no_zero_copy() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "its driver has no zero-copy mode")
}

/// What the kernel's refusal means.
fn explain(what: &str, error: io::Error) -> io::Error {
    let message = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            format!("the kernel refuses {what}: it takes the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF")
        }
        Some(libc::EBUSY | libc::EEXIST) => format!("the kernel refuses {what}: another program has the interface"),
        Some(libc::EAFNOSUPPORT) => "this kernel has no AF_XDP".into(),
        _ => format!("the kernel refuses {what}: {error}"),
    };
    io::Error::new(error.kind(), message)
}

/// A number for the network namespace of this thread.
fn namespace() -> io::Result<u64> {
    fs::metadata("/proc/thread-self/ns/net").map(|namespace| namespace.ino())
}

/// How many receive queues an interface has.
fn receive_queues(name: &str) -> io::Result<u16> {
    /// `struct ethtool_channels`.
    #[derive(Default)]
    #[repr(C)]
    struct Channels {
        command: u32,
        most: [u32; 4],
        receive: u32,
        send: u32,
        other: u32,
        combined: u32,
    }
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    let asker = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: an ifreq of zeroes is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *place = byte.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: the kernel writes a `struct ethtool_channels`, which lives.
    let result = sys::check(unsafe { libc::ioctl(asker.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) });
    match result {
        // A driver that does not say has one.
        Err(_) => Ok(1),
        Ok(_) => Ok(u16::try_from(channels.receive + channels.combined).unwrap_or(u16::MAX).max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_sockets_are_used_again_and_never_twice() {
        let rule = |first, shards| Rule { ethertype: 1, word_at: 0, shards, first };
        assert_eq!(free_run(&[], 8, 2), Some(0));
        assert_eq!(free_run(&[rule(0, 4)], 8, 2), Some(8));
        assert_eq!(free_run(&[rule(8, 4)], 8, 2), Some(0));
        assert_eq!(free_run(&[rule(4, 4)], 8, 2), Some(12));
        assert_eq!(free_run(&[rule(0, 4), rule(8, 500)], 8, 2), Some(1008));
        assert_eq!(free_run(&[rule(0, 4), rule(8, 508)], 8, 2), None);
    }
}
