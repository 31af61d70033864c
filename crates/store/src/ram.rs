//! Blocks in memory, allocated as they are written.

mod chunk;

use std::fmt;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use sanwire_buffer::{Arena, Slices};
use sanwire_core::limits::TRANSFER_MAX_BYTES;

use self::chunk::{
    CHUNK_BYTES, GROUP_CHUNKS, Group, PAGE_BYTES, Pages, RESERVE_BYTES, chunks, covered_pages, touched_pages,
};
use crate::completion::CompletionQueue;
use crate::error::{ErrorKind, StoreError};
use crate::memory;
use crate::request::{Allocation, Capabilities, Completion, Geometry, Outcome, Request, Space, Started, Store};
use crate::resize::{GrowingGeometry, ResizeError};

/// Runs looked at for one answer about allocation.
const RUNS_MAX: usize = 4096;
/// Shorter reads are copied: that costs less than what a write pays that finds its chunk shared.
const SHARED_MIN_BYTES: usize = 4 << 10;
/// Reads over several chunks are shared in one list of pieces; shorter ones are copied, which costs less than the list does.
const SHARED_LISTS_BYTES: RangeInclusive<usize> = 32 << 10..=(Slices::PIECES_MAX - 1) * CHUNK_BYTES;
/// Reads up to this length are fetched into the cache while the reply is made: the processor's own foresight begins anew
/// with each page, and needs no help with longer ones.
const FETCHED_MAX_BYTES: usize = 16 << 10;

/// A sparse disk in memory, never larger than its length (and about 0.03 % for its tables).
///
/// A chunk of 256 KiB takes memory when it is first written and gives it back when all of it was discarded. Where a store has
/// more than eight, they lie in large pages, as far as the kernel gives such. Reads and
/// writes hold all of their chunks at once, so that nobody sees a part of a write; zeroing and discarding go chunk by
/// chunk. Zeroes are not kept allocated. A request for which there is no memory fails with [`ErrorKind::Full`] and changes
/// nothing (zeroing and discarding: nothing more); the last of the memory is left to the rest of the process.
/// A read is not copied, unless it is very short, but shares its chunks, which a later write then copies: each reply on its way may
/// hold its chunks of the past ([`sanwire_buffer::Slice::lent_bytes`]).
pub struct RamStore {
    geometry: GrowingGeometry,
    /// Replaced as a whole when the disk grows; the groups themselves stay.
    groups: ArcSwap<Vec<Group>>,
    /// How many chunks take memory.
    written_chunks: AtomicU64,
    /// Where they have it from.
    memory: Arena,
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
            // Memory does not survive a crash, whole or torn.
            atomic_write_bytes: TRANSFER_MAX_BYTES as u32,
        };
        let groups = (0..groups_in(length_bytes)).map(|_| Group::default()).collect();
        RamStore {
            geometry: GrowingGeometry::new(geometry),
            groups: ArcSwap::from_pointee(groups),
            written_chunks: AtomicU64::new(0),
            memory: Arena::new(CHUNK_BYTES, RESERVE_BYTES),
        }
    }

    /// Bytes of memory that written chunks take now.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.written_chunks.load(Ordering::Relaxed) * CHUNK_BYTES as u64
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        let groups = self.groups.load();
        if let Some(piece) = only_piece(offset_bytes, buffer.len()) {
            let chunk = groups[piece.group].get().map(|chunks| chunks[piece.chunk].read());
            piece.read(chunk.as_deref().and_then(Option::as_ref), buffer);
            return Ok(());
        }
        // Locks are taken in ascending order, here and by writers: nobody waits in a circle. A group that is not there
        // yet is made, for without its locks a writer could come between.
        let held = pieces(offset_bytes, buffer.len() as u64)
            .map(|piece| {
                Ok((chunks(&groups[piece.group]).ok_or_else(|| no_memory(offset_bytes))?[piece.chunk].read(), piece))
            })
            .collect::<Result<Vec<_>, StoreError>>()?;
        let mut rest = buffer;
        for (chunk, piece) in &held {
            let (part, tail) = rest.split_at_mut(piece.length);
            rest = tail;
            piece.read(chunk.as_ref(), part);
        }
        Ok(())
    }

    fn write(&self, offset_bytes: u64, data: &Slices) -> Result<(), StoreError> {
        let groups = self.groups.load();
        let failed = || no_memory(offset_bytes);
        if let Some(piece) = only_piece(offset_bytes, data.len()) {
            let mut chunk = chunks(&groups[piece.group]).ok_or_else(failed)?[piece.chunk].write();
            self.prepare(&mut chunk).ok_or_else(failed)?;
            piece.write(&mut chunk, data.runs(0..data.len()));
            return Ok(());
        }
        let mut held = pieces(offset_bytes, data.len() as u64)
            .map(|piece| Ok((chunks(&groups[piece.group]).ok_or_else(failed)?[piece.chunk].write(), piece)))
            .collect::<Result<Vec<_>, StoreError>>()?;
        // All of it before any of it: nobody sees a part of a write.
        held.iter_mut().try_for_each(|(chunk, _)| self.prepare(chunk)).ok_or_else(failed)?;
        let mut from = 0;
        for (chunk, piece) in &mut held {
            piece.write(chunk, data.runs(from..from + piece.length));
            from += piece.length;
        }
        Ok(())
    }

    /// Gives a chunk memory, of its own, so that it can be written; `None` when there is none.
    fn prepare(&self, chunk: &mut Option<Pages>) -> Option<()> {
        match chunk {
            Some(pages) => pages.own(&self.memory).map(drop),
            None => {
                *chunk = Some(Pages::new(&self.memory)?);
                self.written_chunks.fetch_add(1, Ordering::Relaxed);
                Some(())
            }
        }
    }

    fn perform(&self, request: Request) -> Completion {
        match request {
            Request::Read { offset_bytes, mut buffer } => {
                self.read(offset_bytes, &mut buffer)?;
                return Ok(Outcome::Read(buffer));
            }
            Request::Write { offset_bytes, data } => self.write(offset_bytes, &data)?,
            Request::Flush => {}
            Request::Allocation { offset_bytes, length_bytes } => {
                return Ok(Outcome::Allocated(self.allocation(offset_bytes, length_bytes)));
            }
            Request::Discard { offset_bytes, length_bytes } => self.clear(offset_bytes, length_bytes, true)?,
            Request::WriteZeroes { offset_bytes, length_bytes } => self.clear(offset_bytes, length_bytes, false)?,
        }
        Ok(Outcome::Done)
    }

    fn allocation(&self, offset_bytes: u64, length_bytes: u64) -> Allocation {
        let end = offset_bytes + length_bytes;
        let groups = self.groups.load();
        let (is_mapped, mut place) = run(&groups, offset_bytes);
        for _ in 1..RUNS_MAX {
            if place >= end {
                break;
            }
            let (next, run_end) = run(&groups, place);
            if next != is_mapped {
                break;
            }
            place = run_end;
        }
        Allocation { is_mapped, length_bytes: place.min(end) - offset_bytes }
    }

    /// Makes zeroes of a range; with `give_back`, also frees the chunks in which nothing is left.
    fn clear(&self, offset_bytes: u64, length_bytes: u64, give_back: bool) -> Result<(), StoreError> {
        let groups = self.groups.load();
        for piece in pieces(offset_bytes, length_bytes) {
            let Some(group) = groups[piece.group].get() else { continue };
            let mut chunk = group[piece.chunk].write();
            let Some(pages) = chunk.as_mut() else { continue };
            if give_back {
                pages.written &= !covered_pages(piece.start, piece.length);
            }
            if pages.written == 0 {
                *chunk = None;
                self.written_chunks.fetch_sub(1, Ordering::Relaxed);
            } else {
                let bytes = pages.own(&self.memory).ok_or_else(|| no_memory(offset_bytes))?;
                bytes[piece.range()].fill(0);
            }
        }
        Ok(())
    }
}

impl Store for RamStore {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { shares: true, tells_space: true, grows: true, ..Capabilities::of(self.geometry()) }
    }

    fn start(&self, request: Request, _: &CompletionQueue) -> Started {
        Started::Done(self.geometry.get().check(&request).and_then(|()| self.perform(request)))
    }

    fn share(&self, offset_bytes: u64, length_bytes: usize) -> Option<Slices> {
        let end_bytes = offset_bytes.checked_add(length_bytes as u64)?;
        if length_bytes < SHARED_MIN_BYTES || end_bytes > self.geometry.get().length_bytes {
            return None;
        }
        let groups = self.groups.load();
        let Some(piece) = only_piece(offset_bytes, length_bytes) else {
            return share_several(&groups, offset_bytes, length_bytes);
        };
        let chunk = groups[piece.group].get()?[piece.chunk].read();
        let shared = chunk.as_ref()?.share(piece.range())?;
        if length_bytes <= FETCHED_MAX_BYTES {
            shared.prefetch();
        }
        Some(shared.into())
    }

    /// What memory is still to be had is the host's, not the store's: nobody knows.
    fn space(&self) -> Option<Space> {
        Some(Space { used_bytes: self.allocated_bytes(), available_bytes: None })
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        self.geometry.check(length_bytes)?;
        if memory::total_bytes().is_some_and(|total_bytes| length_bytes > total_bytes) {
            return Err(ResizeError::Fixed("this machine has less memory, also with its swap space"));
        }
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

/// Shares of all chunks of a range. Their locks are held together, as for a read that copies: so it shows each write wholly or not at
/// all. Where a chunk was never written, or is not to be shared, nothing is.
fn share_several(groups: &[Group], offset_bytes: u64, length_bytes: usize) -> Option<Slices> {
    if !SHARED_LISTS_BYTES.contains(&length_bytes) {
        return None;
    }
    let held = pieces(offset_bytes, length_bytes as u64)
        .map(|piece| Some((groups[piece.group].get()?[piece.chunk].read(), piece)))
        .collect::<Option<Vec<_>>>()?;
    // All are asked: each that is wary counts this read.
    let shares: Vec<_> = held.iter().map(|(chunk, piece)| chunk.as_ref()?.share(piece.range())).collect();
    Slices::join(shares.into_iter().collect::<Option<Vec<_>>>()?.into_iter())
}

fn no_memory(offset_bytes: u64) -> StoreError {
    StoreError { kind: ErrorKind::Full, offset_bytes, source: Some(io::ErrorKind::OutOfMemory.into()) }
}

fn groups_in(length_bytes: u64) -> usize {
    usize::try_from(length_bytes.div_ceil((CHUNK_BYTES * GROUP_CHUNKS) as u64)).unwrap_or(usize::MAX)
}

/// The part of a request that lies in one chunk.
struct Piece {
    group: usize,
    chunk: usize,
    start: usize,
    length: usize,
}

impl Piece {
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.length
    }

    fn read(&self, pages: Option<&Pages>, part: &mut [u8]) {
        match pages {
            Some(pages) => part.copy_from_slice(&pages.bytes[self.range()]),
            None => part.fill(0),
        }
    }

    /// Writes to a chunk that was prepared: runs of bytes that are as long as the part together.
    fn write<'r>(&self, chunk: &mut Option<Pages>, runs: impl Iterator<Item = &'r [u8]>) {
        let Some(pages) = chunk else { return };
        if let Some(bytes) = pages.bytes.get_mut() {
            let mut rest = &mut bytes[self.range()];
            for run in runs {
                let (place, behind) = rest.split_at_mut(run.len());
                place.copy_from_slice(run);
                rest = behind;
            }
        }
        pages.written |= touched_pages(self.start, self.length);
    }
}

/// Whether the page at this place was written, and how far that goes within its chunk or, without one, its group.
fn run(groups: &[Group], offset_bytes: u64) -> (bool, u64) {
    let number = (offset_bytes / CHUNK_BYTES as u64) as usize;
    let Some(group) = groups[number / GROUP_CHUNKS].get() else {
        return (false, ((number / GROUP_CHUNKS + 1) * GROUP_CHUNKS * CHUNK_BYTES) as u64);
    };
    let chunk = group[number % GROUP_CHUNKS].read();
    let Some(pages) = chunk.as_ref() else { return (false, ((number + 1) * CHUNK_BYTES) as u64) };
    let page = (offset_bytes % CHUNK_BYTES as u64) as usize / PAGE_BYTES;
    let bits = pages.written >> page;
    let is_written = bits & 1 != 0;
    let count = if is_written { bits.trailing_ones() } else { bits.trailing_zeros() } as usize;
    let end_page = (page + count).min(u64::BITS as usize);
    (is_written, (number * CHUNK_BYTES + end_page * PAGE_BYTES) as u64)
}

/// The range, when it lies within one chunk: most do.
fn only_piece(offset_bytes: u64, length: usize) -> Option<Piece> {
    pieces(offset_bytes, length as u64).next().filter(|piece| piece.length == length)
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

#[cfg(test)]
mod tests;
