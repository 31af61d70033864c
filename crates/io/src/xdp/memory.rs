//! The memory that the kernel fills with packets: pages of a region, each the kernel's, ours, or lent to who keeps its packet.

use std::io;
use std::ops::Range;

use sanwire_buffer::{Region, Slice, UNIT_BYTES};

use super::ring::{Descriptor, FillRing};
use crate::packet::ETHERNET_HEADER_BYTES;

/// What the kernel leaves free before each packet, besides what it is told to (`XDP_PACKET_HEADROOM`).
const KERNEL_HEADROOM_BYTES: usize = 256;

/// Data of disks begins at a multiple of this, so that it goes to them as it is.
const ALIGNMENT_BYTES: usize = 512;

/// With fewer pages left none is lent: packets are then copied by who keeps them, and go on arriving.
const SPARE_PAGES: usize = 64;

/// How a page is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// What is to be left free before a packet, besides the kernel's own.
    pub(super) headroom_bytes: usize,
}

impl Layout {
    /// Such that what begins at this byte of a packet, with its Ethernet header, is aligned.
    pub(super) fn aligning(data_at: usize) -> Self {
        let begin = KERNEL_HEADROOM_BYTES + data_at;
        Layout { headroom_bytes: begin.next_multiple_of(ALIGNMENT_BYTES) - begin }
    }

    /// The longest packet, with its Ethernet header.
    pub(super) fn packet_max_bytes(self) -> usize {
        UNIT_BYTES - KERNEL_HEADROOM_BYTES - self.headroom_bytes
    }

    /// Whether packets of an interface with this MTU are no longer.
    pub(super) fn takes_mtu(self, mtu_bytes: usize) -> bool {
        mtu_bytes + ETHERNET_HEADER_BYTES <= self.packet_max_bytes()
    }
}

/// A packet in a page of ours.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) page: Slice,
    pub(super) range: Range<usize>,
}

/// The pages of one interface.
#[derive(Debug)]
pub(super) struct Memory {
    /// For each receive queue. Before the pages: they keep their sockets.
    fill_rings: Vec<FillRing>,
    /// By their places in the region: those that the kernel fills, or may fill.
    given: Box<[Option<Slice>]>,
    region: Region,
    /// So many pages each ring should have.
    wanted_pages: u32,
    given_pages: Vec<u32>,
}

impl Memory {
    /// So many pages for each queue, and as many again to lend, together.
    pub(super) fn make_region(pages: u32, queues: u16) -> io::Result<Region> {
        Region::new(2 * pages as usize * usize::from(queues) * UNIT_BYTES)
    }

    pub(super) fn new(region: Region, wanted_pages: u32) -> Self {
        let given = (0..region.length_bytes() / UNIT_BYTES).map(|_| None).collect();
        Memory { fill_rings: Vec::new(), given, region, wanted_pages, given_pages: Vec::new() }
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// Gives the kernel pages by the ring of one more queue.
    pub(super) fn add(&mut self, ring: FillRing) {
        self.fill_rings.push(ring);
        self.given_pages.push(0);
        self.fill(self.fill_rings.len() - 1);
    }

    /// Whether all that was taken may be lent, and the kernel be given as much: then no ring runs dry, whatever the others lend.
    pub(super) fn may_lend(&self) -> bool {
        let lacking: u32 = self.given_pages.iter().map(|given| self.wanted_pages - given.min(&self.wanted_pages)).sum();
        self.region.free_bytes() > (SPARE_PAGES + lacking as usize) * UNIT_BYTES
    }

    /// Takes a page back from the kernel, with the packet in it. `None`: the kernel names what it has not got.
    pub(super) fn take(&mut self, queue: usize, descriptor: Descriptor) -> Option<Packet> {
        let address = usize::try_from(descriptor.address).ok()?;
        let (number, start) = (address / UNIT_BYTES, address % UNIT_BYTES);
        let page = self.given.get_mut(number)?.take()?;
        self.given_pages[queue] = self.given_pages[queue].saturating_sub(1);
        let end = start + descriptor.length_bytes as usize;
        if end > UNIT_BYTES {
            return None;
        }
        Some(Packet { page, range: start..end })
    }

    /// Gives a page to the kernel again, unless somebody keeps what is in it.
    pub(super) fn give_back(&mut self, queue: usize, mut page: Slice) {
        if page.get_mut().is_some() {
            self.give(queue, page);
        }
    }

    /// Gives the kernel pages for those that were lent; whether it wants to be told by a call.
    pub(super) fn fill(&mut self, queue: usize) -> bool {
        while self.given_pages[queue] < self.wanted_pages
            && let Some(frame) = self.region.frame(UNIT_BYTES)
        {
            if !self.give(queue, frame.freeze()) {
                break;
            }
        }
        self.fill_rings[queue].publish()
    }

    fn give(&mut self, queue: usize, page: Slice) -> bool {
        let address = page.as_ptr().addr() - self.region.base().addr();
        let is_taken = self.fill_rings[queue].push(address as u64);
        if is_taken && let Some(place) = self.given.get_mut(address / UNIT_BYTES) {
            *place = Some(page);
            self.given_pages[queue] += 1;
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_a_packet_lies_at_a_sector_whatever_its_header() {
        for data_at in 0..1100 {
            let layout = Layout::aligning(data_at);
            assert_eq!((KERNEL_HEADROOM_BYTES + layout.headroom_bytes + data_at) % ALIGNMENT_BYTES, 0);
            assert!(layout.headroom_bytes < ALIGNMENT_BYTES && layout.packet_max_bytes() > 3328);
        }
        let usual = Layout::aligning(14 + 28);
        assert_eq!(usual.headroom_bytes, 214);
        assert!(usual.takes_mtu(1500) && usual.takes_mtu(3612) && !usual.takes_mtu(3613));
    }
}
