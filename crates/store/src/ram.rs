//! Blocks in memory, allocated as they are written.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use arc_swap::ArcSwap;
use sanwire_buffer::Slice;

use crate::request::{Geometry, Outcome, Request, Started, Store};
use crate::resize::{GrowingGeometry, ResizeError};

/// The grain of locking: requests on different chunks never wait for each other.
const CHUNK_BYTES: usize = 256 << 10;
/// The grain in which discards are counted: a chunk all of whose pages were discarded is freed.
const PAGE_BYTES: usize = CHUNK_BYTES / u64::BITS as usize;
/// Chunks whose locks come into being together, on the first write to any of them.
const GROUP_CHUNKS: usize = 1024;
/// Shorter reads are copied: that costs less than what a write pays that finds its chunk shared.
const SHARED_MIN_BYTES: usize = 16 << 10;
/// A chunk that had to be copied for a write is not shared for so many reads: mixed work must not copy it each time.
const WARY_READS: u8 = 64;

/// A sparse disk in memory, never larger than its length (and about 0.03 % for its tables).
///
/// A chunk of 256 KiB takes memory when it is first written and gives it back when all of it was discarded. A request
/// within one chunk is atomic for others; one across chunks is not. Zeroes are not kept allocated: memory that fails
/// to come is the end of the process, not an error of the store. A long read within one chunk is not copied but shares the
/// chunk, which a later write then copies: each reply on its way may hold 256 KiB of the past.
pub struct RamStore {
    geometry: GrowingGeometry,
    /// Replaced as a whole when the disk grows; the groups themselves stay.
    groups: ArcSwap<Vec<Group>>,
}

/// Neighbouring chunks, once one of them was written.
type Group = Arc<OnceLock<Box<[Chunk]>>>;

/// One lock on a cache line of its own, so that readers of neighbours do not fight over it.
#[derive(Default)]
#[repr(align(64))]
struct Chunk(RwLock<Option<Pages>>);

struct Pages {
    /// Shared with replies that are on their way.
    bytes: Slice,
    /// Reads to come that are not shared.
    wary: AtomicU8,
    /// One bit for each page that was written since it was last discarded.
    written: u64,
}

impl RamStore {
    /// An empty store of `length_bytes`, cut down to whole blocks of `block_bytes`. It reads as zeroes.
    #[must_use]
    pub fn new(length_bytes: u64, block_bytes: u32) -> Self {
        let block_bytes = block_bytes.max(1);
        let length_bytes = length_bytes - length_bytes % u64::from(block_bytes);
        let geometry = Geometry {
            length_bytes,
            block_bytes,
            physical_block_bytes: block_bytes.max(4096),
            read_only: false,
            discards: true,
        };
        let groups = (0..groups_in(length_bytes)).map(|_| Group::default()).collect();
        RamStore { geometry: GrowingGeometry::new(geometry), groups: ArcSwap::from_pointee(groups) }
    }

    /// Bytes of memory that written chunks take now.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let groups = self.groups.load();
        let chunks = groups.iter().filter_map(|group| group.get()).flatten();
        let written = chunks.filter(|chunk| chunk.0.read().unwrap_or_else(PoisonError::into_inner).is_some());
        (written.count() * CHUNK_BYTES) as u64
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) {
        let groups = self.groups.load();
        let mut rest = buffer;
        for piece in pieces(offset_bytes, rest.len() as u64) {
            let (part, tail) = rest.split_at_mut(piece.length);
            rest = tail;
            let group = groups[piece.group].get();
            let chunk = group.map(|chunks| chunks[piece.chunk].0.read().unwrap_or_else(PoisonError::into_inner));
            match chunk.as_deref() {
                Some(Some(pages)) => part.copy_from_slice(&pages.bytes[piece.start..piece.start + piece.length]),
                _ => part.fill(0),
            }
        }
    }

    fn write(&self, offset_bytes: u64, data: &[u8]) {
        let groups = self.groups.load();
        let mut rest = data;
        for piece in pieces(offset_bytes, data.len() as u64) {
            let (part, tail) = rest.split_at(piece.length);
            rest = tail;
            let group = groups[piece.group].get_or_init(new_group);
            let mut chunk = group[piece.chunk].0.write().unwrap_or_else(PoisonError::into_inner);
            let pages = chunk.get_or_insert_with(Pages::new);
            pages.own()[piece.start..piece.start + piece.length].copy_from_slice(part);
            pages.written |= touched_pages(piece.start, piece.length);
        }
    }

    /// Makes zeroes of a range; with `give_back`, also frees the chunks in which nothing is left.
    fn clear(&self, offset_bytes: u64, length_bytes: u64, give_back: bool) {
        let groups = self.groups.load();
        for piece in pieces(offset_bytes, length_bytes) {
            let Some(group) = groups[piece.group].get() else { continue };
            let mut chunk = group[piece.chunk].0.write().unwrap_or_else(PoisonError::into_inner);
            let Some(pages) = chunk.as_mut() else { continue };
            if give_back {
                pages.written &= !covered_pages(piece.start, piece.length);
            }
            if pages.written == 0 {
                *chunk = None;
            } else {
                pages.own()[piece.start..piece.start + piece.length].fill(0);
            }
        }
    }
}

impl Store for RamStore {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    fn start(&self, request: Request) -> Started {
        if let Err(error) = self.geometry.get().check(&request) {
            return Started::Done(Err(error));
        }
        let outcome = match request {
            Request::Read { offset_bytes, mut buffer } => {
                self.read(offset_bytes, &mut buffer);
                Outcome::Read(buffer)
            }
            Request::Write { offset_bytes, data } => {
                self.write(offset_bytes, &data);
                Outcome::Done
            }
            Request::Flush => Outcome::Done,
            Request::Discard { offset_bytes, length_bytes } => {
                self.clear(offset_bytes, length_bytes, true);
                Outcome::Done
            }
            Request::WriteZeroes { offset_bytes, length_bytes } => {
                self.clear(offset_bytes, length_bytes, false);
                Outcome::Done
            }
        };
        Started::Done(Ok(outcome))
    }

    fn share(&self, offset_bytes: u64, length_bytes: usize) -> Option<Slice> {
        let end_bytes = offset_bytes.checked_add(length_bytes as u64)?;
        if length_bytes < SHARED_MIN_BYTES || end_bytes > self.geometry.get().length_bytes {
            return None;
        }
        let piece = pieces(offset_bytes, length_bytes as u64).next().filter(|piece| piece.length == length_bytes)?;
        let groups = self.groups.load();
        let chunk = groups[piece.group].get()?[piece.chunk].0.read().unwrap_or_else(PoisonError::into_inner);
        chunk.as_ref()?.share(piece.start..piece.start + length_bytes)
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        self.geometry.check(length_bytes)?;
        self.groups.rcu(|groups| {
            let missing = groups_in(length_bytes).saturating_sub(groups.len());
            groups.iter().cloned().chain((0..missing).map(|_| Group::default())).collect::<Vec<_>>()
        });
        self.geometry.grow(length_bytes);
        Ok(())
    }
}

impl fmt::Debug for RamStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RamStore({} bytes)", self.geometry.get().length_bytes)
    }
}

impl Pages {
    fn new() -> Self {
        Pages { bytes: vec![0; CHUNK_BYTES].into(), wary: AtomicU8::new(0), written: 0 }
    }

    /// A share of the range, unless writes have lately had to copy the chunk because of such shares.
    fn share(&self, range: Range<usize>) -> Option<Slice> {
        let wary = self.wary.load(Ordering::Relaxed);
        if wary > 0 {
            // Two readers may count as one: it is a guess anyhow.
            self.wary.store(wary - 1, Ordering::Relaxed);
            return None;
        }
        Some(self.bytes.slice(range))
    }

    /// The bytes, to be changed: a copy of them, while replies share the old ones.
    fn own(&mut self) -> &mut [u8] {
        if self.bytes.get_mut().is_none() {
            self.bytes = self.bytes.to_vec().into();
            self.wary = AtomicU8::new(WARY_READS);
        }
        self.bytes.get_mut().unwrap_or_default()
    }
}

fn groups_in(length_bytes: u64) -> usize {
    usize::try_from(length_bytes.div_ceil((CHUNK_BYTES * GROUP_CHUNKS) as u64)).unwrap_or(usize::MAX)
}

fn new_group() -> Box<[Chunk]> {
    (0..GROUP_CHUNKS).map(|_| Chunk::default()).collect()
}

/// The part of a request that lies in one chunk.
struct Piece {
    group: usize,
    chunk: usize,
    start: usize,
    length: usize,
}

/// Cuts a range that was checked against the geometry at the chunks' borders.
fn pieces(offset_bytes: u64, length_bytes: u64) -> impl Iterator<Item = Piece> {
    let end = offset_bytes + length_bytes;
    let mut next = offset_bytes;
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let number = (next / CHUNK_BYTES as u64) as usize;
        let start = (next % CHUNK_BYTES as u64) as usize;
        let length = (CHUNK_BYTES - start).min(usize::try_from(end - next).unwrap_or(usize::MAX));
        next += length as u64;
        Some(Piece { group: number / GROUP_CHUNKS, chunk: number % GROUP_CHUNKS, start, length })
    })
}

/// A bit for each page that the range reaches into.
fn touched_pages(start: usize, length: usize) -> u64 {
    page_bits(start / PAGE_BYTES, (start + length).div_ceil(PAGE_BYTES))
}

/// A bit for each page that lies wholly in the range.
fn covered_pages(start: usize, length: usize) -> u64 {
    page_bits(start.div_ceil(PAGE_BYTES), (start + length) / PAGE_BYTES)
}

fn page_bits(first: usize, end: usize) -> u64 {
    match end.saturating_sub(first) {
        0 => 0,
        count => (u64::MAX >> (u64::BITS as usize - count)) << first,
    }
}

#[cfg(test)]
mod tests;
