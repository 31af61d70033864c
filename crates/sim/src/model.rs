//! The reference model: what each block may hold, by the promises of a disk.
//!
//! A write is a candidate for its blocks from the moment it is asked. Once a write is acknowledged, no candidate that
//! had ended before it began may be read any more; a candidate that was still under way may. When the power goes, all
//! candidates return that no flush has ruled out.

use std::collections::BTreeMap;

use crate::content::{BLOCK_BYTES, version_of};

/// A moment of the model: it counts calls.
pub type Tick = u64;

/// A write that a block may hold.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    operation: u64,
    version: u64,
    /// When it was asked.
    begun: Tick,
    /// When it was answered: from then on it cannot land any more. `None` also for writes that nobody waits for.
    ended: Option<Tick>,
    /// Since when it must not be read.
    removed: Option<Tick>,
    /// A flush has made what replaced it stable.
    is_gone: bool,
}

/// What all blocks may hold.
#[derive(Debug)]
pub struct Model {
    blocks: Vec<Vec<Candidate>>,
    now: Tick,
    lost_at: Tick,
    /// Writes that their client, which is this one, keeps until they are stable: it may write them again.
    kept: BTreeMap<u64, usize>,
}

/// Blocks `lba..lba + blocks`.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The first.
    pub lba: u64,
    /// How many.
    pub blocks: u64,
}

impl Range {
    fn indexes(self) -> std::ops::Range<usize> {
        self.lba as usize..(self.lba + self.blocks) as usize
    }
}

impl Model {
    /// An empty disk.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        let empty = Candidate { operation: 0, version: 0, begun: 0, ended: Some(0), removed: None, is_gone: false };
        Model { blocks: (0..blocks).map(|_| vec![empty]).collect(), now: 1, lost_at: 0, kept: BTreeMap::new() }
    }

    /// A moment after all before.
    pub fn tick(&mut self) -> Tick {
        self.now += 1;
        self.now
    }

    /// A write is asked; `version` 0 is zeroes.
    pub fn begin_write(&mut self, operation: u64, version: u64, range: Range) -> Tick {
        let begun = self.tick();
        for block in &mut self.blocks[range.indexes()] {
            block.push(Candidate { operation, version, begun, ended: None, removed: None, is_gone: false });
        }
        begun
    }

    /// A write has been acknowledged as done.
    pub fn acknowledge_write(&mut self, operation: u64, range: Range, begun: Tick, is_stable: bool) {
        let now = self.end_write(operation, range);
        if self.lost_at > begun && !is_stable {
            return;
        }
        for block in &mut self.blocks[range.indexes()] {
            for candidate in block.iter_mut().filter(|c| c.ended.is_some_and(|ended| ended < begun)) {
                candidate.removed.get_or_insert(now);
                candidate.is_gone |= is_stable;
            }
        }
    }

    /// A write has been answered otherwise: it may have been done, it will not be done later.
    pub fn end_write(&mut self, operation: u64, range: Range) -> Tick {
        let now = self.tick();
        for block in &mut self.blocks[range.indexes()] {
            for candidate in block.iter_mut().filter(|candidate| candidate.operation == operation) {
                candidate.ended = Some(now);
            }
        }
        now
    }

    /// A write was refused by a server that lets nobody write: it never landed, and never will.
    pub fn refuse_write(&mut self, operation: u64, range: Range) {
        for block in &mut self.blocks[range.indexes()] {
            block.retain(|candidate| candidate.operation != operation);
        }
    }

    /// A flush that was asked at `begun` has been acknowledged.
    pub fn acknowledge_flush(&mut self, begun: Tick) {
        if self.lost_at > begun {
            return;
        }
        for candidate in self.blocks.iter_mut().flatten() {
            candidate.is_gone |= candidate.removed.is_some_and(|removed| removed < begun);
        }
    }

    /// The client of an acknowledged write, which is this one, answers for it from now on, through losses of the power: until
    /// [`Model::promise`] or [`Model::disclaim`].
    pub fn keep(&mut self, operation: u64, client: usize) {
        self.kept.insert(operation, client);
    }

    /// Its client was told that a write that was begun then is stable.
    pub fn promise(&mut self, operation: u64, range: Range, begun: Tick) {
        self.kept.remove(&operation);
        let now = self.tick();
        for candidate in self.blocks[range.indexes()].iter_mut().flatten() {
            if candidate.operation != operation && candidate.ended.is_some_and(|ended| ended < begun) {
                candidate.removed.get_or_insert(now);
                candidate.is_gone = true;
            }
        }
    }

    /// Its client was told that a write may be lost.
    pub fn disclaim(&mut self, operation: u64) {
        self.kept.remove(&operation);
    }

    /// When something was lost last.
    #[must_use]
    pub fn lost_at(&self) -> Tick {
        self.lost_at
    }

    /// What no flush has made stable may be lost, and what it has replaced is back: the power went, or what a failed flush had lost is
    /// not shown any more.
    pub fn lose(&mut self) {
        self.lost_at = self.tick();
        for candidate in self.blocks.iter_mut().flatten().filter(|candidate| !candidate.is_gone) {
            candidate.removed = None;
        }
    }

    /// Data has been read that was asked for at `begun`, by this client if it keeps writes.
    ///
    /// # Errors
    /// Says which block holds what it must not.
    pub fn check_read(&mut self, reader: Option<usize>, range: Range, begun: Tick, data: &[u8]) -> Result<(), String> {
        let now = self.tick();
        if data.len() as u64 != range.blocks * BLOCK_BYTES as u64 {
            return Err(format!("{} bytes were read of {range:?}", data.len()));
        }
        for (block, lba) in data.chunks_exact(BLOCK_BYTES).zip(range.lba..) {
            let version =
                version_of(block, lba).ok_or_else(|| format!("block {lba} holds what was never written there"))?;
            if self.lost_at > begun {
                continue;
            }
            let candidates = &mut self.blocks[lba as usize];
            let allowed = |c: &&Candidate| c.version == version && c.removed.is_none_or(|removed| removed > begun);
            let Some(read) = candidates.iter().filter(allowed).min_by_key(|candidate| candidate.begun).copied() else {
                return Err(format!(
                    "block {lba} holds version {version}, may hold {candidates:?}, read since {begun}"
                ));
            };
            // What had ended before the read began and was not read is overwritten, or was never done.
            for other in candidates.iter_mut().filter(|candidate| candidate.version != version) {
                let is_over = other.ended.is_some_and(|ended| ended < begun);
                if is_over && !may_come_back(&self.kept, other, &read, reader) {
                    other.removed.get_or_insert(now);
                }
            }
        }
        Ok(())
    }
}

/// Whether a write is seen that was over and not read, because its client writes it again: a reader knows what it has written itself; and
/// of what is newer only that follows again which the same client keeps too.
fn may_come_back(kept: &BTreeMap<u64, usize>, other: &Candidate, read: &Candidate, reader: Option<usize>) -> bool {
    let Some(client) = kept.get(&other.operation).filter(|client| Some(**client) != reader) else { return false };
    let is_older = other.ended.is_some_and(|ended| ended < read.begun);
    !is_older || kept.get(&read.operation) == Some(client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::fill;

    const ONE: Range = Range { lba: 3, blocks: 1 };

    fn reads(model: &mut Model, version: u64) -> bool {
        reads_as(None, model, version)
    }

    fn reads_as(reader: Option<usize>, model: &mut Model, version: u64) -> bool {
        let mut data = [0; BLOCK_BYTES];
        fill(&mut data, 3, version);
        let begun = model.tick();
        model.check_read(reader, ONE, begun, &data).is_ok()
    }

    /// A write of the client that keeps it.
    fn keeps(model: &mut Model, client: usize, operation: u64) {
        let begun = model.begin_write(operation, operation, ONE);
        model.acknowledge_write(operation, ONE, begun, false);
        model.keep(operation, client);
    }

    #[test]
    fn an_acknowledged_write_rules_out_what_ended_before_it() {
        let mut model = Model::new(8);
        assert!(reads(&mut model, 0) && !reads(&mut model, 1));
        let first = model.begin_write(1, 1, ONE);
        let slow = model.begin_write(2, 2, ONE);
        model.acknowledge_write(1, ONE, first, false);
        assert!(!reads(&mut model.clone_for_test(), 0), "overwritten");
        assert!(reads(&mut model.clone_for_test(), 1));
        assert!(reads(&mut model, 2), "still under way");
        assert!(!reads(&mut model, 1), "overwritten by the slow write, as was seen");
        model.acknowledge_write(2, ONE, slow, false);
        assert!(reads(&mut model, 2));
    }

    #[test]
    fn only_a_flush_outlasts_the_power() {
        let mut model = Model::new(8);
        let begun = model.begin_write(1, 1, ONE);
        model.acknowledge_write(1, ONE, begun, false);
        let mut without = model.clone_for_test();
        without.lose();
        assert!(reads(&mut without.clone_for_test(), 0) && reads(&mut without, 1));
        let flush = model.tick();
        model.acknowledge_flush(flush);
        model.lose();
        assert!(!reads(&mut model, 0) && reads(&mut model, 1));
    }

    #[test]
    fn a_lost_write_is_seen_again_only_by_others_than_its_client() {
        let mut model = Model::new(8);
        keeps(&mut model, 1, 1);
        keeps(&mut model, 1, 2);
        model.lose();
        let mut own = model.clone_for_test();
        assert!(
            reads_as(Some(1), &mut own, 0) && !reads_as(Some(1), &mut own, 2),
            "its client has nothing to write again"
        );
        for version in [0, 1, 2] {
            assert!(reads(&mut model, version), "it writes them again, {version}");
        }
        assert!(reads(&mut model, 1), "and once more");
    }

    #[test]
    fn a_lost_write_does_not_come_over_what_somebody_else_has_written_since() {
        let mut model = Model::new(8);
        keeps(&mut model, 1, 1);
        keeps(&mut model, 2, 2);
        model.lose();
        assert!(reads(&mut model.clone_for_test(), 1));
        assert!(reads(&mut model, 2) && !reads(&mut model, 1));
    }

    impl Model {
        fn clone_for_test(&self) -> Model {
            Model { blocks: self.blocks.clone(), now: self.now, lost_at: self.lost_at, kept: self.kept.clone() }
        }
    }
}
