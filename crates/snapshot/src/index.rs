//! Where the blocks of a volume are: of how many layers it may be made, a block is found by one look.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use arc_swap::ArcSwap;

use crate::format::GROUP_BLOCKS;

/// Bytes of a chunk: of such a one that lies in one layer the index knows nothing but the layer.
const CHUNK_BYTES: u32 = 64 << 10;

/// What stands for a chunk of which not all blocks lie in one layer.
const MIXED: u32 = u32::MAX;

/// For each block the slot of the layer that has it; slot 0 has what no other has.
///
/// It takes 4 bytes for each chunk of 64 KiB of the groups in which something was written (64 MiB for a TiB), and 8 for each run of
/// blocks within a chunk that lies in several layers.
#[derive(Debug)]
pub(crate) struct Index {
    chunk_blocks: u32,
    /// Replaced as a whole when the volume grows; the groups themselves stay.
    groups: ArcSwap<Vec<Arc<OnceLock<Group>>>>,
    /// Runs of mixed chunks.
    mixed_runs: AtomicU64,
}

#[derive(Debug)]
struct Group {
    chunks: Box<[AtomicU32]>,
    /// By their place in the group. A chunk changes only under this lock, so that nobody undoes what another one does to it.
    mixed: RwLock<BTreeMap<u32, Runs>>,
}

/// The blocks of a chunk: where each run ends, and its slot.
type Runs = Box<[(u16, u32)]>;

impl Group {
    fn new(chunk_blocks: u32) -> Self {
        let chunks = (0..GROUP_BLOCKS as u32 / chunk_blocks).map(|_| AtomicU32::new(0)).collect();
        Group { chunks, mixed: RwLock::default() }
    }

    fn mixed(&self) -> RwLockReadGuard<'_, BTreeMap<u32, Runs>> {
        // Nothing panics while it is changed.
        self.mixed.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot of a block of a chunk, and how many blocks from there on to the end of the chunk have the same.
    fn run(&self, chunk: u32, block: u32, chunk_blocks: u32) -> (u32, u32) {
        loop {
            let slot = self.chunks[chunk as usize].load(Ordering::Acquire);
            if slot != MIXED {
                return (slot, chunk_blocks - block);
            }
            let mixed = self.mixed();
            let run = mixed.get(&chunk).and_then(|runs| runs.iter().find(|(end, _)| u32::from(*end) > block));
            // Without one it has become one layer's in between.
            if let Some((end, slot)) = run {
                return (*slot, u32::from(*end) - block);
            }
        }
    }

    /// Some blocks of a chunk have this slot now. Gives how many runs of mixed chunks there were before and are now.
    fn mark(&self, chunk: u32, (block, count): (u32, u32), slot: u32, chunk_blocks: u32) -> (usize, usize) {
        let mut mixed = self.mixed.write().unwrap_or_else(PoisonError::into_inner);
        let entry = &self.chunks[chunk as usize];
        let before = mixed.remove(&chunk);
        let whole = [(chunk_blocks as u16, entry.load(Ordering::Relaxed))];
        let runs = overlay(before.as_deref().unwrap_or(&whole), (block, block + count), slot);
        let counts = (before.map_or(0, |runs| runs.len()), if runs.len() > 1 { runs.len() } else { 0 });
        match *runs {
            [(_, slot)] => entry.store(slot, Ordering::Release),
            _ => {
                mixed.insert(chunk, runs.into());
                entry.store(MIXED, Ordering::Release);
            }
        }
        counts
    }
}

/// The same runs, but for those of some blocks.
fn overlay(runs: &[(u16, u32)], (from, to): (u32, u32), slot: u32) -> Vec<(u16, u32)> {
    let mut made: Vec<(u16, u32)> = Vec::with_capacity(runs.len() + 2);
    let mut push = |start: u32, end: u32, slot: u32| match made.last_mut() {
        _ if start >= end => {}
        Some(last) if last.1 == slot => last.0 = end as u16,
        _ => made.push((end as u16, slot)),
    };
    let mut start = 0;
    let mut is_laid = false;
    for (end, old) in runs.iter().map(|(end, old)| (u32::from(*end), *old)) {
        push(start, end.min(from), old);
        if end > from && !is_laid {
            push(from, to, slot);
            is_laid = true;
        }
        push(start.max(to), end, old);
        start = end;
    }
    made
}

impl Index {
    /// The index of a volume of so many groups of such blocks, all of which lie in slot 0.
    pub(crate) fn new(block_bytes: u32, groups: u32) -> Self {
        let groups = (0..groups).map(|_| Arc::default()).collect::<Vec<_>>();
        let chunk_blocks = (CHUNK_BYTES / block_bytes.max(512)).max(1);
        Index { chunk_blocks, groups: ArcSwap::from_pointee(groups), mixed_runs: AtomicU64::new(0) }
    }

    /// The volume has so many groups now.
    pub(crate) fn grow(&self, groups: u32) {
        self.groups.rcu(|now| {
            let missing = (groups as usize).saturating_sub(now.len());
            now.iter().cloned().chain((0..missing).map(|_| Arc::default())).collect::<Vec<_>>()
        });
    }

    /// The slot of a block, and how many from there on have the same, at the most `most`.
    pub(crate) fn run(&self, block: u64, most: u64) -> (u32, u64) {
        let groups = self.groups.load();
        let (first, mut found) = self.run_in(&groups, block);
        while found < most {
            let (slot, more) = self.run_in(&groups, block + found);
            if slot != first {
                break;
            }
            found += more;
        }
        (first, found.min(most))
    }

    fn run_in(&self, groups: &[Arc<OnceLock<Group>>], block: u64) -> (u32, u64) {
        let in_group = (block % GROUP_BLOCKS) as u32;
        let group = usize::try_from(block / GROUP_BLOCKS).ok().and_then(|group| groups.get(group)?.get());
        let Some(group) = group else { return (0, GROUP_BLOCKS - u64::from(in_group)) };
        let (chunk, block) = (in_group / self.chunk_blocks, in_group % self.chunk_blocks);
        let (slot, count) = group.run(chunk, block, self.chunk_blocks);
        (slot, count.into())
    }

    /// Blocks have this slot now.
    pub(crate) fn mark(&self, first: u64, count: u64, slot: u32) {
        let groups = self.groups.load();
        let (mut at, end) = (first, first + count);
        while at < end {
            let Some(group) = usize::try_from(at / GROUP_BLOCKS).ok().and_then(|group| groups.get(group)) else {
                return;
            };
            let group = group.get_or_init(|| Group::new(self.chunk_blocks));
            let in_group = (at % GROUP_BLOCKS) as u32;
            let (chunk, block) = (in_group / self.chunk_blocks, in_group % self.chunk_blocks);
            let span = u64::from(self.chunk_blocks - block).min(end - at);
            let (before, now) = group.mark(chunk, (block, span as u32), slot, self.chunk_blocks);
            self.mixed_runs.fetch_add(now as u64, Ordering::Relaxed);
            self.mixed_runs.fetch_sub(before as u64, Ordering::Relaxed);
            at += span;
        }
    }

    /// Bytes of memory that it takes, but for what the allocator adds.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let groups = self.groups.load();
        let begun = groups.iter().filter(|group| group.get().is_some()).count() as u64;
        let group_bytes = GROUP_BLOCKS / u64::from(self.chunk_blocks) * size_of::<AtomicU32>() as u64;
        let runs = self.mixed_runs.load(Ordering::Relaxed);
        let fixed = groups.len() as u64 * (size_of::<OnceLock<Group>>() + 3 * size_of::<usize>()) as u64;
        fixed + begun * group_bytes + runs * size_of::<(u16, u32)>() as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_block_is_where_it_was_put_last(
            large in any::<bool>(),
            marks in proptest::collection::vec((0u64..3 * GROUP_BLOCKS, prop_oneof![1u64..20, 1u64..400, 1u64..20_000], 0u32..5), 0..60),
        ) {
            let index = Index::new(if large { 4096 } else { 512 }, 2);
            index.grow(3);
            let mut model = vec![0u32; 3 * GROUP_BLOCKS as usize];
            for (first, count, slot) in marks {
                let end = (first + count).min(3 * GROUP_BLOCKS);
                index.mark(first, end - first, slot);
                model[first as usize..end as usize].fill(slot);
            }
            let (mut at, end) = (0, model.len() as u64);
            while at < end {
                let (slot, count) = index.run(at, end - at);
                prop_assert!(count > 0);
                prop_assert!(model[at as usize..(at + count) as usize].iter().all(|expected| *expected == slot), "at {}", at);
                at += count;
            }
        }
    }

    #[test]
    fn what_lies_together_takes_little_memory() {
        let index = Index::new(4096, 16_384);
        let empty = index.memory_bytes();
        (0..16_384).for_each(|group| index.mark(group * GROUP_BLOCKS, GROUP_BLOCKS, 1));
        assert_eq!(index.memory_bytes() - empty, 64 << 20, "of a TiB");
        index.mark(3, 1, 2);
        assert_eq!(index.memory_bytes() - empty, (64 << 20) + 3 * 8);
        index.mark(0, 16, 2);
        assert_eq!(index.memory_bytes() - empty, 64 << 20);
        assert_eq!(index.run(0, 100), (2, 16));
    }
}
