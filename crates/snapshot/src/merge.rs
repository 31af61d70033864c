//! Making one layer of two, in parts.
//!
//! The blocks of the upper layer are copied into the lower one. As nobody needs the lower one for itself, nobody looks there for a
//! block that the upper one has; so whatever is copied changes nothing for anybody, and a merge that was broken off, by a crash too,
//! begins anew. What is stable in the lower one is looked for there from then on (`moving.rs`), and its place in the upper one is given
//! back before more is copied: so a merge needs space for one part only, and none for what the lower one has, too.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use sanwire_buffer::Frame;
use sanwire_store::{ErrorKind, Outcome, Request, StoreError};

use crate::format::{Bits, GROUP_BLOCKS, RECORD_BYTES};
use crate::layer::{Flushes, Perform, Source, Top};
use crate::room::Room;
use crate::{LayerId, SnapshotError};

/// What is copied before it is made stable, and its place given back.
pub(crate) const PART_MAX_BYTES: u64 = 64 << 20;

/// A merge that is under way.
#[derive(Debug)]
pub(crate) struct Merge {
    pub(crate) lower: LayerId,
    /// The same: what a layer has is written once more.
    pub(crate) upper: LayerId,
    /// The lower layer, being written.
    pub(crate) target: Arc<Top>,
    pub(crate) from: Arc<Source>,
    block_bytes: u64,
    /// Groups that have blocks in the upper layer.
    groups: VecDeque<u32>,
    groups_total: usize,
    /// What is in both, and stable in the lower one.
    pub(crate) part: Vec<(u32, Bits)>,
    /// Who may still be reading that in the upper one; `None`: it is not looked for in the lower one yet.
    pub(crate) readers: Option<Vec<Weak<()>>>,
}

/// How far a merge is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Parts of the upper layer that are in the lower one.
    pub done: u64,
    /// Parts that are to come there, of up to 16,384 blocks each.
    pub total: u64,
}

/// Makes a layer as long as one that is put into it. Behind its end it reads as zeroes, as the upper layer does: a base may have held
/// something else there.
pub(crate) fn make_as_long(lower: &Source, length_bytes: u64, perform: Perform<'_>) -> Result<(), SnapshotError> {
    let has_bytes = lower.length_bytes();
    if has_bytes >= length_bytes {
        return Ok(());
    }
    let store_bytes = lower.layout.map_or(length_bytes, |layout| layout.store_bytes(length_bytes));
    let failed = |source| SnapshotError::Resize { layer: lower.id, source };
    if lower.store.geometry().length_bytes < store_bytes {
        lower.store.resize(store_bytes).map_err(failed)?;
    }
    if lower.layout.is_none() {
        // Nobody reads there before that is stable.
        lower.clear(has_bytes, length_bytes - has_bytes, perform)?;
        lower.run(Request::Flush, perform)?;
        lower.reach_to(length_bytes);
    }
    Ok(())
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
        make_as_long(lower, from.length_bytes(), perform)?;
        let mut groups = VecDeque::new();
        from.read_maps(perform, |group, _| groups.push_back(group))?;
        let (lower, upper, block_bytes, groups_total) = (lower.id, from.id, block_bytes.into(), groups.len());
        let (part, readers) = (Vec::new(), None);
        Ok(Merge { lower, upper, target, from, block_bytes, groups, groups_total, part, readers })
    }

    pub(crate) fn progress(&self) -> Progress {
        let total = self.groups_total as u64;
        Progress { done: total - self.groups.len() as u64, total }
    }

    /// Whether all is in the lower layer.
    pub(crate) fn is_copied(&self) -> bool {
        self.groups.is_empty()
    }

    /// There is not enough space for what is left.
    pub(crate) fn no_room(&self) -> SnapshotError {
        let space = self.target.source.store.space();
        let available_bytes = space.and_then(|space| space.available_bytes).unwrap_or(0);
        SnapshotError::NoRoom { upper: self.upper, available_bytes }
    }

    /// Copies a part, and makes it stable. Groups for which there is no space are left for later.
    pub(crate) fn copy(&mut self, perform: Perform<'_>) -> Result<(), SnapshotError> {
        let mut room = Room::of(&self.target.source);
        let (mut bytes, mut in_vain) = (0, 0);
        while bytes < PART_MAX_BYTES && in_vain < self.groups.len() {
            let Some(group) = self.groups.pop_front() else { break };
            let bits = self.from.read_map(group, perform)?;
            let done = self.copy_group(group, &bits, &mut room, perform)?;
            if done != bits {
                self.groups.push_back(group);
                in_vain += 1;
            }
            if done != Bits::default() {
                bytes += done.count() * self.block_bytes;
                self.part.push((group, done));
                in_vain = 0;
            }
            // What is left of it is tried when some space was given back.
            if room.is_used_up() && !self.part.is_empty() {
                break;
            }
        }
        if self.part.is_empty() && !self.groups.is_empty() {
            return Err(self.no_room());
        }
        let lower = &self.target.source;
        let generation = lower.write_generation(perform)?;
        let flushed = sanwire_store::run(&Flushes(Arc::clone(&self.target)), Request::Flush, perform);
        flushed.map_err(|source| SnapshotError::at(self.lower, source))?;
        lower.has_generation(generation);
        Ok(())
    }

    /// Copies those of some blocks of a group for which there is space; gives which.
    fn copy_group(
        &self,
        group: u32,
        bits: &Bits,
        room: &mut Room,
        perform: Perform<'_>,
    ) -> Result<Bits, SnapshotError> {
        let mut done = Bits::default();
        let map = self.target.map.as_ref();
        if map.is_some_and(|map| !map.has(group)) && !room.take(RECORD_BYTES as u64) {
            return Ok(done);
        }
        for (block, count) in bits.runs() {
            let (mut next, end) = (block, block + count);
            while next < end {
                let first = u64::from(group) * GROUP_BLOCKS + u64::from(next);
                let (offset_bytes, most_bytes) = (first * self.block_bytes, u64::from(end - next) * self.block_bytes);
                let (length_bytes, is_done) = self.copy_piece(offset_bytes, most_bytes, room, perform)?;
                let blocks = (length_bytes / self.block_bytes) as u32;
                if is_done {
                    done.set(next, blocks);
                    map.iter().for_each(|map| map.mark(first, blocks.into()));
                }
                next += blocks;
            }
        }
        Ok(done)
    }

    /// Copies some bytes, if there is space; gives how many. What takes no space in the upper layer takes none in the lower one.
    fn copy_piece(
        &self,
        offset_bytes: u64,
        most_bytes: u64,
        room: &mut Room,
        perform: Perform<'_>,
    ) -> Result<(u64, bool), SnapshotError> {
        let (from, to, at) = (&self.from, &self.target.source, self.target.source.at(offset_bytes));
        let ask = Request::Allocation { offset_bytes: from.at(offset_bytes), length_bytes: most_bytes };
        let (is_hole, run_bytes) = match from.run(ask, perform)? {
            Outcome::Allocated(run) => (!run.is_mapped, run.length_bytes / self.block_bytes * self.block_bytes),
            _ => (false, most_bytes),
        };
        if is_hole && run_bytes > 0 {
            let length_bytes = run_bytes.min(most_bytes);
            to.clear(at, length_bytes, perform)?;
            return Ok((length_bytes, true));
        }
        let length_bytes = run_bytes.max(self.block_bytes).min(most_bytes).min(room.piece_max_bytes());
        if !room.take_for(to, (at, length_bytes), perform)? {
            return Ok((length_bytes, false));
        }
        let no_memory = || SnapshotError::at(from.id, StoreError::new(ErrorKind::Full, offset_bytes));
        let buffer = Frame::zeroed(length_bytes as usize).ok_or_else(no_memory)?;
        let read = Request::Read { offset_bytes: from.at(offset_bytes), buffer };
        if let Outcome::Read(frame) = from.run(read, perform)? {
            to.run(Request::Write { offset_bytes: at, data: frame.freeze().into() }, perform)?;
        }
        Ok((length_bytes, true))
    }

    /// The upper layer says no more that it has the part. The lower one is asked for it already.
    pub(crate) fn clear_maps(&self, perform: Perform<'_>) -> Result<(), SnapshotError> {
        self.part.iter().try_for_each(|(group, gone)| self.from.clear_map(*group, gone, perform))?;
        self.from.run(Request::Flush, perform).map(drop)
    }

    /// Gives back the place of the part, if nobody reads it any more; gives whether that was so.
    pub(crate) fn give_back(&mut self, perform: Perform<'_>) -> Result<bool, SnapshotError> {
        if self.readers.iter().flatten().any(|reader| reader.strong_count() > 0) {
            return Ok(false);
        }
        for (group, gone) in std::mem::take(&mut self.part) {
            let first = u64::from(group) * GROUP_BLOCKS;
            for (block, count) in gone.runs() {
                let offset_bytes = (first + u64::from(block)) * self.block_bytes;
                self.from.clear(self.from.at(offset_bytes), u64::from(count) * self.block_bytes, perform)?;
            }
        }
        self.readers = None;
        Ok(true)
    }
}
