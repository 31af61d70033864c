//! The rings that an AF_XDP socket shares with the kernel: one side puts entries in, the other takes them out.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use libc::{c_int, off_t, xdp_ring_offset};

use crate::sys;

/// A ring of entries `T`, as mapped from the kernel.
#[derive(Debug)]
struct Ring<T> {
    base: NonNull<u8>,
    length_bytes: usize,
    offsets: Offsets,
    entries: u32,
    of: PhantomData<T>,
}

/// Where its parts lie.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
}

// SAFETY: the mapping belongs to this value alone (besides the kernel) and does not care which thread uses it.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: with `&Ring` one can only load the two counters and the flags, atomically.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Asks for a ring of so many entries, a power of two, by this option, and maps it from this place.
    fn new(
        socket: BorrowedFd<'_>,
        option: c_int,
        offsets: &xdp_ring_offset,
        (entries, page_offset): (u32, off_t),
    ) -> io::Result<Self> {
        sys::set_option(socket, libc::SOL_XDP, option, &entries)?;
        let number = |value: u64| usize::try_from(value).map_err(io::Error::other);
        let offsets = Offsets {
            producer: number(offsets.producer)?,
            consumer: number(offsets.consumer)?,
            flags: number(offsets.flags)?,
            entries: number(offsets.desc)?,
        };
        let length_bytes = offsets.entries + entries as usize * size_of::<T>();
        // SAFETY: a fresh mapping of the socket's ring; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                page_offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapping at address zero"))?;
        Ok(Ring { base, length_bytes, offsets, entries, of: PhantomData })
    }

    fn counter(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the kernel says that an aligned u32 lies there, which both sides use atomically; the mapping lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).cast().as_ptr()) }
    }

    fn producer(&self) -> &AtomicU32 {
        self.counter(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.counter(self.offsets.consumer)
    }

    /// Where the entry of this number lies; numbers go on beyond the ring's length.
    fn entry(&self, number: u32) -> NonNull<T> {
        let place = (number & (self.entries - 1)) as usize;
        // SAFETY: `place` is below the number of entries, all of which lie within the mapping.
        unsafe { self.base.add(self.offsets.entries).cast::<T>().add(place) }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length_bytes) };
    }
}

/// Memory that the kernel may fill: addresses within the memory of the socket.
#[derive(Debug)]
pub(super) struct FillRing {
    ring: Ring<u64>,
    /// Given so far.
    next: u32,
}

impl FillRing {
    pub(super) fn new(socket: BorrowedFd<'_>, offsets: &xdp_ring_offset, entries: u32) -> io::Result<Self> {
        let place = (entries, libc::XDP_UMEM_PGOFF_FILL_RING as off_t);
        Ok(FillRing { ring: Ring::new(socket, libc::XDP_UMEM_FILL_RING, offsets, place)?, next: 0 })
    }

    /// Entries that the kernel has not taken.
    pub(super) fn waiting(&self) -> u32 {
        self.next.wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }

    /// Puts an address in; `false`: it is full.
    pub(super) fn push(&mut self, address: u64) -> bool {
        if self.waiting() >= self.ring.entries {
            return false;
        }
        // SAFETY: the kernel has taken what was there before, and reads it only after `publish`.
        unsafe { self.ring.entry(self.next).write(address) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Lets the kernel see what was put in; whether it wants to be told by a call.
    pub(super) fn publish(&mut self) -> bool {
        // Release: the entries are there before the counter says so.
        self.ring.producer().store(self.next, Ordering::Release);
        // Either the kernel sees the entries before it goes to sleep, or we see that it has.
        fence(Ordering::SeqCst);
        self.ring.counter(self.ring.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A packet that the kernel has put into the socket's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) length_bytes: u32,
    /// More of the packet is in the next one.
    pub(super) goes_on: bool,
}

/// Packets that have arrived.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    ring: Ring<libc::xdp_desc>,
    next: u32,
}

impl ReceiveRing {
    pub(super) fn new(socket: BorrowedFd<'_>, offsets: &xdp_ring_offset, entries: u32) -> io::Result<Self> {
        let place = (entries, libc::XDP_PGOFF_RX_RING);
        Ok(ReceiveRing { ring: Ring::new(socket, libc::XDP_RX_RING, offsets, place)?, next: 0 })
    }

    pub(super) fn has_input(&self) -> bool {
        self.ring.producer().load(Ordering::Relaxed) != self.next
    }

    /// The next packet, if one has arrived. Its place in the ring is the kernel's again after [`ReceiveRing::release`].
    pub(super) fn next(&mut self) -> Option<Descriptor> {
        // Acquire: what the kernel wrote before it counted is visible.
        if self.ring.producer().load(Ordering::Acquire) == self.next {
            return None;
        }
        // SAFETY: the kernel has written this entry and leaves it alone until we count it as consumed.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        let goes_on = entry.options & libc::XDP_PKT_CONTD != 0;
        Some(Descriptor { address: entry.addr, length_bytes: entry.len, goes_on })
    }

    pub(super) fn release(&self) {
        // Release: our reads of the entries are over before the kernel writes them again.
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

/// Asks for the ring in which the kernel gives back what was sent, which a socket must have, and which nobody looks at: nothing is sent
/// by these sockets.
pub(super) fn ask_for_completions(socket: BorrowedFd<'_>) -> io::Result<()> {
    sys::set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, &1_u32)
}
