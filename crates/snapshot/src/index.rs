//! Where the blocks of a volume are: of how many layers it may be made, a block is found by one look.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use arc_swap::ArcSwap;

use crate::format::GROUP_BLOCKS;
use crate::page::Page;

/// Bytes of a chunk: of such a one that lies in one layer the index knows nothing but the layer.
const CHUNK_BYTES: u32 = 64 << 10;

/// What stands for a chunk of which not all blocks lie in one layer.
const MIXED: u32 = u32::MAX;

/// For each block the slot of the layer that has it; slot 0 has what no other has.
///
/// It takes 4 bytes for each chunk of 64 KiB of the groups in which something was written (64 MiB for a TiB), and a [`Page`] for each
/// group with a chunk that lies in several layers: 2 KiB where there are two of them, 32 KiB at the most, whatever was written.
#[derive(Debug)]
pub(crate) struct Index {
    chunk_blocks: u32,
    /// Replaced as a whole when the volume grows; the groups themselves stay.
    groups: ArcSwap<Vec<Arc<OnceLock<Group>>>>,
    /// What pages take.
    page_bytes: AtomicU64,
}

#[derive(Debug)]
struct Group {
    chunk_blocks: u32,
    chunks: Box<[AtomicU32]>,
    /// A chunk changes only under this lock, so that nobody undoes what another one does to it.
    mixed: RwLock<Mixed>,
}

#[derive(Debug, Default)]
struct Mixed {
    chunks: u32,
    /// Of the blocks of mixed chunks.
    page: Option<Page>,
}

impl Mixed {
    fn memory_bytes(&self) -> u64 {
        self.page.as_ref().map_or(0, Page::memory_bytes)
    }
}

impl Group {
    fn new(chunk_blocks: u32) -> Self {
        let chunks = (0..GROUP_BLOCKS as u32 / chunk_blocks).map(|_| AtomicU32::new(0)).collect();
        Group { chunk_blocks, chunks, mixed: RwLock::default() }
    }

    fn chunk(&self, block: u32) -> &AtomicU32 {
        &self.chunks[(block / self.chunk_blocks) as usize]
    }

    /// Where the chunk of a block ends.
    fn chunk_end(&self, block: u32) -> u32 {
        block - block % self.chunk_blocks + self.chunk_blocks
    }

    /// The slot of a block, and how many blocks from there on to the end of its chunk have the same.
    fn run(&self, block: u32) -> (u32, u32) {
        let (chunk, end) = (self.chunk(block), self.chunk_end(block));
        let slot = chunk.load(Ordering::Acquire);
        if slot != MIXED {
            return (slot, end - block);
        }
        // Nothing panics while it is changed.
        let mixed = self.mixed.read().unwrap_or_else(PoisonError::into_inner);
        match (chunk.load(Ordering::Acquire), &mixed.page) {
            (MIXED, Some(page)) => page.run(block, end),
            // It has become one layer's in between.
            (slot, _) => (slot, end - block),
        }
    }

    /// Some blocks of a chunk have this slot now, or those of them that had `before`. Gives how many bytes pages took and take.
    fn mark(&self, (from, to): (u32, u32), slot: u32, before: Option<u32>) -> (u64, u64) {
        let mixed = &mut *self.mixed.write().unwrap_or_else(PoisonError::into_inner);
        let bytes = mixed.memory_bytes();
        let mut at = from;
        while at < to {
            let end = match (before, &mixed.page, self.chunk(at).load(Ordering::Relaxed)) {
                (None, _, _) => to,
                (Some(before), Some(page), MIXED) => {
                    let (slot, count) = page.run(at, to);
                    if slot != before {
                        at += count;
                        continue;
                    }
                    at + count
                }
                (Some(before), _, slot) if slot == before => to,
                _ => break,
            };
            self.put((at, end), slot, mixed);
            at = end;
        }
        (bytes, mixed.memory_bytes())
    }

    /// Blocks of one chunk have this slot now.
    fn put(&self, (from, to): (u32, u32), slot: u32, Mixed { chunks, page }: &mut Mixed) {
        let (chunk, end) = (self.chunk(from), self.chunk_end(from));
        let (start, old) = (end - self.chunk_blocks, chunk.load(Ordering::Relaxed));
        if old == slot || old != MIXED && (from, to) == (start, end) {
            return chunk.store(slot, Ordering::Release);
        }
        let is_mixed = |block: u32| self.chunk(block).load(Ordering::Relaxed) == MIXED;
        let of_group = page.get_or_insert_with(|| Page::new(2));
        if old != MIXED {
            of_group.put((start, end), old, is_mixed);
            *chunks += 1;
            // Who looks from now on waits until this is done.
            chunk.store(MIXED, Ordering::Release);
        }
        of_group.put((from, to), slot, is_mixed);
        if let (slot, count) = of_group.run(start, end)
            && count == self.chunk_blocks
        {
            chunk.store(slot, Ordering::Release);
            *chunks -= 1;
        }
        if *chunks == 0 {
            *page = None;
        }
    }
}

impl Index {
    /// The index of a volume of so many groups of such blocks, all of which lie in slot 0.
    pub(crate) fn new(block_bytes: u32, groups: u32) -> Self {
        let groups = (0..groups).map(|_| Arc::default()).collect::<Vec<_>>();
        let chunk_blocks = (CHUNK_BYTES / block_bytes.max(512)).max(1);
        Index { chunk_blocks, groups: ArcSwap::from_pointee(groups), page_bytes: AtomicU64::new(0) }
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
        let (slot, count) = group.run(in_group);
        (slot, count.into())
    }

    /// Blocks have this slot now.
    pub(crate) fn mark(&self, first: u64, count: u64, slot: u32) {
        self.change((first, count), slot, None);
    }

    /// Blocks that have been in one slot are in another one now.
    pub(crate) fn move_to(&self, first: u64, count: u64, (from, to): (u32, u32)) {
        self.change((first, count), to, Some(from));
    }

    fn change(&self, (first, count): (u64, u64), slot: u32, before: Option<u32>) {
        let groups = self.groups.load();
        let (mut at, end) = (first, first + count);
        while at < end {
            let Some(group) = usize::try_from(at / GROUP_BLOCKS).ok().and_then(|group| groups.get(group)) else {
                return;
            };
            let group = group.get_or_init(|| Group::new(self.chunk_blocks));
            let block = (at % GROUP_BLOCKS) as u32;
            let span = u64::from(group.chunk_end(block) - block).min(end - at);
            let (before, now) = group.mark((block, block + span as u32), slot, before);
            self.page_bytes.fetch_add(now, Ordering::Relaxed);
            self.page_bytes.fetch_sub(before, Ordering::Relaxed);
            at += span;
        }
    }

    /// Bytes of memory that it takes, but for what the allocator adds.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let groups = self.groups.load();
        let begun = groups.iter().filter(|group| group.get().is_some()).count() as u64;
        let group_bytes = GROUP_BLOCKS / u64::from(self.chunk_blocks) * size_of::<AtomicU32>() as u64;
        let fixed = groups.len() as u64 * (size_of::<OnceLock<Group>>() + 3 * size_of::<usize>()) as u64;
        fixed + begun * group_bytes + self.page_bytes.load(Ordering::Relaxed)
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
            marks in proptest::collection::vec((0u64..3 * GROUP_BLOCKS, prop_oneof![1u64..20, 1u64..400, 1u64..20_000], 0u32..40, 0u32..4), 0..80),
        ) {
            let index = Index::new(if large { 4096 } else { 512 }, 2);
            index.grow(3);
            let mut model = vec![0u32; 3 * GROUP_BLOCKS as usize];
            for (first, count, slot, kind) in marks {
                let end = (first + count).min(3 * GROUP_BLOCKS);
                let blocks = &mut model[first as usize..end as usize];
                // Some few are moved from where the first of them is.
                let from = blocks[0];
                if kind == 0 {
                    index.move_to(first, end - first, (from, slot));
                    blocks.iter_mut().filter(|now| **now == from).for_each(|now| *now = slot);
                } else {
                    index.mark(first, end - first, slot);
                    blocks.fill(slot);
                }
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
        assert!((1..4096).contains(&(index.memory_bytes() - empty - (64 << 20))));
        index.mark(0, 16, 2);
        assert_eq!(index.memory_bytes() - empty, 64 << 20);
        assert_eq!(index.run(0, 100), (2, 16));
    }

    #[test]
    fn no_pattern_of_writes_takes_more_than_two_bytes_for_a_block() {
        let index = Index::new(512, 1);
        let chunks = 128 * 4;
        let empty = index.memory_bytes() + chunks;
        let mut most = 0;
        // Each layer has every so manieth block.
        for (layer, step) in (1..).zip([2, 3, 5, 7].into_iter().chain(8..400)) {
            (0..GROUP_BLOCKS).step_by(step).for_each(|block| index.mark(block, 1, layer));
            most = most.max(index.memory_bytes() - empty);
            if layer == 1 {
                assert!(most <= GROUP_BLOCKS / 8 + 64, "{most} bytes for every second block");
            }
        }
        assert!(most <= 2 * GROUP_BLOCKS + 4 * 1024, "{most} bytes");
    }
}
