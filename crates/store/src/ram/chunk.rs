//! The chunks of a disk in memory: when they take memory, who shares it, what of it was written.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sanwire_buffer::{Arena, Slice};

/// The grain of locking: requests on different chunks never wait for each other.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
/// The grain in which discards are counted: a chunk all of whose pages were discarded is freed.
pub(super) const PAGE_BYTES: usize = CHUNK_BYTES / u64::BITS as usize;
/// So much memory must be left when a chunk takes some, for what else the process does.
pub(super) const RESERVE_BYTES: usize = 16 << 20;
/// Chunks whose locks come into being together, on the first write to any of them.
pub(super) const GROUP_CHUNKS: usize = 1024;
/// A chunk that had to be copied for a write is not shared for so many reads: mixed work must not copy it each time.
pub(super) const WARY_READS: u8 = u8::MAX;

/// Neighbouring chunks, once one of them was written.
pub(super) type Group = Arc<OnceLock<Box<[Chunk]>>>;

/// One lock on a cache line of its own, so that readers of neighbours do not fight over it.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Chunk(RwLock<Option<Pages>>);

pub(super) struct Pages {
    /// Shared with replies that are on their way.
    pub(super) bytes: Slice,
    /// Reads to come that are not shared.
    wary: AtomicU8,
    /// One bit for each page that was written since it was last discarded.
    pub(super) written: u64,
}

impl Chunk {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Option<Pages>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Option<Pages>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    /// A chunk of zeroes, as long as enough memory is left for the rest of the process.
    pub(super) fn new(memory: &Arena) -> Option<Self> {
        Some(Pages { bytes: memory.zeroed()?.freeze(), wary: AtomicU8::new(0), written: 0 })
    }

    /// A share of the range, unless writes have lately had to copy the chunk because of such shares.
    pub(super) fn share(&self, range: Range<usize>) -> Option<Slice> {
        let wary = self.wary.load(Ordering::Relaxed);
        if wary > 0 {
            // Two readers may count as one: it is a guess anyhow.
            self.wary.store(wary - 1, Ordering::Relaxed);
            return None;
        }
        Some(self.bytes.slice(range))
    }

    /// The bytes, to be changed: a copy of them, while replies share the old ones. `None` when there is no memory for one.
    pub(super) fn own(&mut self, memory: &Arena) -> Option<&mut [u8]> {
        if self.bytes.get_mut().is_none() {
            self.bytes = memory.copied(&self.bytes)?.freeze();
            self.wary = AtomicU8::new(WARY_READS);
        }
        self.bytes.get_mut()
    }
}

/// The chunks of a group, which come into being with its first one; `None` when there is no memory for them.
pub(super) fn chunks(group: &Group) -> Option<&[Chunk]> {
    if group.get().is_none() {
        // Whichever thread is quicker, it is the same group for all.
        let _ = group.set(new_group()?);
    }
    group.get().map(|chunks| &**chunks)
}

fn new_group() -> Option<Box<[Chunk]>> {
    let mut chunks = Vec::new();
    chunks.try_reserve_exact(GROUP_CHUNKS).ok()?;
    chunks.resize_with(GROUP_CHUNKS, Chunk::default);
    Some(chunks.into_boxed_slice())
}

/// A bit for each page that the range reaches into.
pub(super) fn touched_pages(start: usize, length: usize) -> u64 {
    page_bits(start / PAGE_BYTES, (start + length).div_ceil(PAGE_BYTES))
}

/// A bit for each page that lies wholly in the range.
pub(super) fn covered_pages(start: usize, length: usize) -> u64 {
    page_bits(start.div_ceil(PAGE_BYTES), (start + length) / PAGE_BYTES)
}

fn page_bits(first: usize, end: usize) -> u64 {
    match end.saturating_sub(first) {
        0 => 0,
        count => (u64::MAX >> (u64::BITS as usize - count)) << first,
    }
}
