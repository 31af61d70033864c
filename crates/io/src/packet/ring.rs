//! The receive ring: frames that the kernel writes and we read in place (`TPACKET_V2`).
//!
//! Version 3 of the ring is known as the fastest, but it hands over whole blocks, when they are full or after a
//! millisecond at the least, and wakes nobody in between: a single 4 KiB read, and the last packets of every window, would
//! wait for that. Version 2 hands over each frame at once and wakes for it; what it loses in bulk are those wake-ups,
//! which on a virtual link the sender pays. [`Poller`](crate::Poller) avoids them by watching the ring for some microseconds
//! before it sleeps, as long as that pays. Measured on a veth pair (two processors, one end pinned to each, `sendmmsg`
//! of 64, medians of 3, on a busy virtual machine: compare within a row):
//!
//! | MTU | V3, 256 KiB blocks | V2, sleeping at once | V2, watching 5 / 10 / 20 us | recvmmsg | this crate |
//! |---|---|---|---|---|---|
//! | 1500 | 572 kpps | 285 | 537 / 559 / 558 | 650 | 566 |
//! | 9000 | 341 kpps | 191 | 365 / 364 / 375 | 266 | 373 |
//!
//! One round trip of 64 bytes, waiting in `ppoll`: 41 and 33 us, where plain blocking `recv` took 39 and 34 in the same
//! minute; watching: 3.0 us against 27 to 50. What V3 does better is the receiver's processor time while it has nothing
//! else to do (0.05 against 1.0 of a processor at full blast), because it sleeps through whole blocks. The size of the
//! ring (1 to 8 MiB) makes no difference. `examples/rawlink.rs` measures the last column.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, sockaddr_ll, tpacket_req, tpacket2_hdr};

use crate::sys;

/// Bytes before the link header in each frame: the kernel's header, the sender's address and an alignment gap
/// (`tpacket_rcv`: `netoff = TPACKET_ALIGN(TPACKET2_HDRLEN + 16)`, the link header ends there).
const OVERHEAD_BYTES: usize =
    (size_of::<tpacket2_hdr>().next_multiple_of(16) + size_of::<sockaddr_ll>() + 16).next_multiple_of(16);

/// Frames start at cache lines.
const FRAME_ALIGNMENT_BYTES: usize = 64;

/// The least memory of one block. A frame never crosses a block, so blocks hold many frames to waste little.
const BLOCK_MIN_BYTES: usize = 64 << 10;

/// Frames below which a ring cannot do its work, whatever memory was asked for.
const FRAMES_MIN: usize = 64;

/// The mapped ring of one packet socket.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<u8>,
    layout: Layout,
    /// The frame that the kernel fills next, or has filled.
    next: usize,
    offset_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone (besides the kernel) and does not care which thread reads it.
unsafe impl Send for Ring {}
// SAFETY: with `&Ring` one can only load frame states, atomically.
unsafe impl Sync for Ring {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    frame_bytes: usize,
    block_bytes: usize,
    blocks: usize,
    frames_per_block: usize,
}

impl Layout {
    /// `packet_bytes`: the largest packet with its link header.
    fn new(packet_bytes: usize, ring_bytes: usize) -> Self {
        let frame_bytes = (OVERHEAD_BYTES + packet_bytes).next_multiple_of(FRAME_ALIGNMENT_BYTES);
        let block_bytes = BLOCK_MIN_BYTES.max(frame_bytes.next_power_of_two());
        let frames_per_block = block_bytes / frame_bytes;
        let blocks = (ring_bytes / block_bytes).max(FRAMES_MIN.div_ceil(frames_per_block));
        Layout { frame_bytes, block_bytes, blocks, frames_per_block }
    }

    fn frames(self) -> usize {
        self.blocks * self.frames_per_block
    }

    fn ring_bytes(self) -> usize {
        self.blocks * self.block_bytes
    }

    fn offset_bytes(self, frame: usize) -> usize {
        frame / self.frames_per_block * self.block_bytes + frame % self.frames_per_block * self.frame_bytes
    }

    fn request(self) -> io::Result<tpacket_req> {
        let number = |value: usize| u32::try_from(value).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        Ok(tpacket_req {
            tp_block_size: number(self.block_bytes)?,
            tp_block_nr: number(self.blocks)?,
            tp_frame_size: number(self.frame_bytes)?,
            tp_frame_nr: number(self.frames())?,
        })
    }
}

impl Ring {
    /// Gives a packet socket a ring of about `ring_bytes` for packets of up to `packet_bytes` with their link header.
    pub(super) fn new(socket: BorrowedFd<'_>, packet_bytes: usize, ring_bytes: usize) -> io::Result<Self> {
        let layout = Layout::new(packet_bytes, ring_bytes);
        let version = libc::tpacket_versions::TPACKET_V2 as c_int;
        sys::set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        sys::set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &layout.request()?)?;
        let length = NonZeroUsize::new(layout.ring_bytes()).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a fresh mapping of the socket's ring; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length.get(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_fd().as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapping at address zero"))?;
        Ok(Ring { base, layout, next: 0, offset_bytes: 0 })
    }

    /// The largest packet with its link header that a frame takes.
    pub(super) fn frame_max_bytes(&self) -> usize {
        self.layout.frame_bytes - OVERHEAD_BYTES
    }

    /// Packets that the ring holds.
    pub(super) fn frames(&self) -> u32 {
        u32::try_from(self.layout.frames()).unwrap_or(u32::MAX)
    }

    pub(super) fn has_input(&self) -> bool {
        self.status().load(Ordering::Relaxed) & libc::TP_STATUS_USER != 0
    }

    /// The next packet, if one has arrived. It goes back to the kernel when the value is dropped.
    pub(super) fn next(&mut self) -> Option<Arrival<'_>> {
        // Acquire: what the kernel wrote before it set the status is visible.
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 { None } else { Some(Arrival { status, ring: self }) }
    }

    fn frame_start(&self) -> NonNull<u8> {
        // SAFETY: `offset_bytes` is that of a frame, so it lies within the mapping.
        unsafe { self.base.add(self.offset_bytes) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: each frame starts with `tp_status`, an aligned u32 that kernel and user take turns to write; the
        // mapping lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.frame_start().cast().as_ptr()) }
    }

    fn advance(&mut self) {
        self.next = if self.next + 1 == self.layout.frames() { 0 } else { self.next + 1 };
        self.offset_bytes = self.layout.offset_bytes(self.next);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `Ring::new` with this length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.layout.ring_bytes()) };
    }
}

/// A packet in the ring, ours until dropped.
pub(super) struct Arrival<'a> {
    status: u32,
    ring: &'a mut Ring,
}

impl Arrival<'_> {
    /// The frame with its link header; `None` when it is cut short, for another station (the interface may
    /// be promiscuous) or tagged for a VLAN.
    pub(super) fn frame(&self) -> Option<&[u8]> {
        let start = self.ring.frame_start();
        // SAFETY: the status says that the frame is ours, so the kernel has written its header, and the sender's address
        // after it, and leaves them alone.
        let (header, sender) = unsafe {
            let sender = start.add(size_of::<tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT));
            (start.cast::<tpacket2_hdr>().as_ref(), sender.cast::<sockaddr_ll>().as_ref())
        };
        let (offset, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let is_tagged = self.status & libc::TP_STATUS_VLAN_VALID != 0 && header.tp_vlan_tci & 0x0fff != 0;
        let is_whole =
            header.tp_snaplen == header.tp_len && offset.checked_add(length)? <= self.ring.layout.frame_bytes;
        let is_for_others = matches!(sender.sll_pkttype, libc::PACKET_OTHERHOST | libc::PACKET_OUTGOING);
        if is_for_others || is_tagged || !is_whole {
            return None;
        }
        // SAFETY: the bytes lie within the frame (checked above), which is ours until the status says that it is not, and
        // that happens in `drop` only.
        Some(unsafe { std::slice::from_raw_parts(start.add(offset).as_ptr(), length) })
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        // Release: our reads are over before the kernel writes again.
        self.ring.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.ring.advance();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_lie_within_blocks_and_take_the_mtu() {
        for (mtu, ring_bytes) in [(1500, 8 << 20), (9000, 8 << 20), (65_536, 8 << 20), (68, 0), (9000, 1)] {
            let layout = Layout::new(mtu + 14, ring_bytes);
            assert!(layout.frame_bytes >= OVERHEAD_BYTES + mtu + 14);
            assert_eq!(layout.frame_bytes % 16, 0, "TPACKET_ALIGNMENT");
            assert!(layout.frames() >= FRAMES_MIN, "{layout:?}");
            assert!(layout.ring_bytes() <= ring_bytes.max(FRAMES_MIN * 2 * layout.block_bytes));
            for frame in 0..layout.frames() {
                let (start, end) = (layout.offset_bytes(frame), layout.offset_bytes(frame) + layout.frame_bytes);
                assert_eq!(start / layout.block_bytes, (end - 1) / layout.block_bytes, "crosses a block");
                assert!(end <= layout.ring_bytes());
            }
        }
        assert_eq!(Layout::new(1514, 8 << 20).frames(), 5120);
        assert_eq!(Layout::new(9014, 8 << 20).frames(), 896);
    }
}
