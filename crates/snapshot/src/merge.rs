//! Making one layer of two, in steps.
//!
//! The blocks of the upper layer are copied into the lower one. As nobody needs the lower one for itself, nobody looks there for a
//! block that the upper one has; so whatever is copied changes nothing for anybody, and a merge that was broken off, by a crash too,
//! begins anew. Only at its end, when all is stable, the catalogue says that the upper one is no more.

use std::sync::Arc;

use sanwire_buffer::Frame;
use sanwire_store::{ErrorKind, Outcome, Request, StoreError};

use crate::format::GROUP_BLOCKS;
use crate::layer::{Flushes, Perform, Source, Top};
use crate::{LayerId, SnapshotError};

/// What is read and written at once.
const COPY_BYTES: u64 = 1 << 20;
/// After so much what was copied is made stable.
const UNSTABLE_MAX_BYTES: u64 = 64 << 20;

/// A merge that is under way.
#[derive(Debug)]
pub(crate) struct Merge {
    pub(crate) lower: LayerId,
    pub(crate) upper: LayerId,
    /// The lower layer, being written.
    pub(crate) target: Arc<Top>,
    from: Arc<Source>,
    block_bytes: u64,
    /// Groups that have blocks in the upper layer; the next one is the last here.
    groups: Vec<u32>,
    groups_total: usize,
    unstable_bytes: u64,
}

/// How far a merge is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Parts of the upper layer that are in the lower one.
    pub done: u64,
    /// Parts that are to come there, of up to 16,384 blocks each.
    pub total: u64,
}

impl Merge {
    /// Begins to put all of `from` into `target`.
    pub(crate) fn begin(
        target: Arc<Top>,
        from: Arc<Source>,
        block_bytes: u32,
        perform: Perform<'_>,
    ) -> Result<Self, SnapshotError> {
        let lower = &target.source;
        let length_bytes = from.length_bytes();
        if lower.length_bytes() < length_bytes {
            let store_bytes = lower.layout.map_or(length_bytes, |layout| layout.store_bytes(length_bytes));
            let failed = |source| SnapshotError::Resize { layer: lower.id, source };
            lower.store.resize(store_bytes).map_err(failed)?;
        }
        let mut groups = Vec::new();
        from.read_maps(perform, |group, _| groups.push(group))?;
        groups.reverse();
        let (lower, upper, block_bytes) = (lower.id, from.id, block_bytes.into());
        Ok(Merge { lower, upper, target, from, block_bytes, groups_total: groups.len(), groups, unstable_bytes: 0 })
    }

    pub(crate) fn progress(&self) -> Progress {
        let total = self.groups_total as u64;
        Progress { done: total - self.groups.len() as u64, total }
    }

    /// Copies the next group; `true`: all is there, and stable.
    pub(crate) fn step(&mut self, perform: Perform<'_>) -> Result<bool, SnapshotError> {
        if let Some(group) = self.groups.last() {
            let bits = self.from.read_map(*group, perform)?;
            let first = u64::from(*group) * GROUP_BLOCKS;
            for (block, count) in bits.runs() {
                let first = first + u64::from(block);
                self.copy(first * self.block_bytes, u64::from(count) * self.block_bytes, perform)?;
                if let Some(map) = &self.target.map {
                    map.mark(first, count.into());
                }
            }
            self.unstable_bytes += bits.count() * self.block_bytes;
            self.groups.pop();
        }
        let is_over = self.groups.is_empty();
        if is_over || self.unstable_bytes >= UNSTABLE_MAX_BYTES {
            let lower = &self.target.source;
            let generation = if is_over { Some(lower.write_generation(perform)?) } else { None };
            let flushes = Flushes(Arc::clone(&self.target));
            let flushed = sanwire_store::run(&flushes, Request::Flush, perform);
            flushed.map_err(|source| SnapshotError::at(self.lower, source))?;
            generation.into_iter().for_each(|generation| lower.has_generation(generation));
            self.unstable_bytes = 0;
        }
        Ok(is_over)
    }

    /// Copies a run of blocks; what takes no space in the upper layer takes none in the lower one.
    fn copy(&self, offset_bytes: u64, length_bytes: u64, perform: Perform<'_>) -> Result<(), SnapshotError> {
        let (from, to) = (&self.from, &self.target.source);
        let (mut next, end) = (offset_bytes, offset_bytes + length_bytes);
        while next < end {
            let ask = Request::Allocation { offset_bytes: from.at(next), length_bytes: end - next };
            let (is_hole, run_bytes) = match from.run(ask, perform)? {
                Outcome::Allocated(run) => (!run.is_mapped, run.length_bytes / self.block_bytes * self.block_bytes),
                _ => (false, end - next),
            };
            let offset_bytes = to.at(next);
            if is_hole && run_bytes > 0 {
                let length_bytes = run_bytes.min(end - next);
                let clear = match to.store.geometry().discards {
                    true => Request::Discard { offset_bytes, length_bytes },
                    false => Request::WriteZeroes { offset_bytes, length_bytes },
                };
                to.run(clear, perform)?;
                next += length_bytes;
                continue;
            }
            let length_bytes = run_bytes.max(self.block_bytes).min(end - next).min(COPY_BYTES);
            let no_memory = || SnapshotError::at(from.id, StoreError::new(ErrorKind::Full, next));
            let buffer = Frame::zeroed(length_bytes as usize).ok_or_else(no_memory)?;
            let read = Request::Read { offset_bytes: from.at(next), buffer };
            if let Outcome::Read(frame) = from.run(read, perform)? {
                to.run(Request::Write { offset_bytes, data: frame.freeze() }, perform)?;
            }
            next += length_bytes;
        }
        Ok(())
    }
}
