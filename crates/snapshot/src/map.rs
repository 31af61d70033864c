//! Which blocks a layer has that is being written, and which of that its store has been told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_store::{Completer, CompletionQueue};

use crate::format::{Bits, GROUP_BLOCKS};
use crate::losses::Losses;
use crate::reserving::Place;

/// Changed by ends of writes, and made stable by flushes. It takes 2 KiB for each group in which something was written, and as much
/// again while that is not stable.
#[derive(Debug, Default)]
pub(crate) struct Map {
    state: Mutex<State>,
    /// Blocks may be seen in this layer that its map does not have, or that nobody knows to be on the medium.
    is_wary: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    pages: BTreeMap<u32, Page>,
    /// The groups of which the store does not have all.
    dirty: Vec<u32>,
    /// Groups for whose pages room is being taken, and who waits for that.
    taking: BTreeMap<u32, Vec<Completer>>,
}

impl State {
    fn mark(&mut self, first: u64, count: u64) {
        let State { pages, dirty, .. } = self;
        let (mut at, end) = (first, first + count);
        while at < end {
            let (group, block) = ((at / GROUP_BLOCKS) as u32, at % GROUP_BLOCKS);
            let span = (GROUP_BLOCKS - block).min(end - at);
            let page = pages.entry(group).or_default();
            at += span;
            let (block, span) = (block as u32, span as u32);
            if !page.is_doubtful && page.present.has(block, span) {
                continue;
            }
            if page.stable.is_none() {
                page.stable = Some(page.present.clone());
            }
            page.present.set(block, span);
            if !std::mem::replace(&mut page.is_dirty, true) {
                dirty.push(group);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Page {
    present: Bits,
    /// What the store has, where that may be less.
    stable: Option<Bits>,
    is_dirty: bool,
    /// What the store shows of it may have been lost by a flush that failed before this was read, and is to be told again.
    is_doubtful: bool,
}

impl Map {
    /// The map as the store shows it.
    pub(crate) fn new(groups: impl IntoIterator<Item = (u32, Bits)>) -> Self {
        let page = |(group, present)| (group, Page { present, is_doubtful: true, ..Page::default() });
        let state = State { pages: groups.into_iter().map(page).collect(), ..State::default() };
        let is_wary = AtomicBool::new(!state.pages.is_empty());
        Map { state: Mutex::new(state), is_wary }
    }

    /// Blocks have been written.
    pub(crate) fn mark(&self, first: u64, count: u64) {
        self.lock().mark(first, count);
    }

    /// Blocks have been written since there were so many losses. `false`: there are more, and nothing is marked.
    #[must_use]
    pub(crate) fn mark_kept(&self, first: u64, count: u64, (losses, since): (&Losses, u64)) -> bool {
        let mut state = self.lock();
        // Whoever loses something says so under this lock.
        let is_kept = losses.count() == since;
        if is_kept {
            state.mark(first, count);
        }
        is_kept
    }

    /// Whether there is room for the page of a group; if there is none, and nobody is taking it, whoever asks is to take it, and to say
    /// when that has ended.
    pub(crate) fn place(&self, group: u32, completions: &CompletionQueue) -> Place {
        let State { pages, taking, .. } = &mut *self.lock();
        if pages.contains_key(&group) {
            return Place::There;
        }
        let Some(waiting) = taking.get_mut(&group) else {
            taking.insert(group, Vec::new());
            return Place::Missing;
        };
        let (pending, completer) = completions.pend();
        waiting.push(completer);
        Place::Coming(pending)
    }

    /// Gives who has waited for that.
    pub(crate) fn end_taking(&self, group: u32, is_taken: bool) -> Vec<Completer> {
        let State { pages, taking, .. } = &mut *self.lock();
        if is_taken {
            pages.entry(group).or_default();
        }
        taking.remove(&group).unwrap_or_default()
    }

    /// Whether there is a page for a group.
    pub(crate) fn has(&self, group: u32) -> bool {
        self.lock().pages.contains_key(&group)
    }

    /// Whether there are more blocks than so many.
    pub(crate) fn has_more_than(&self, blocks: u64) -> bool {
        let state = self.lock();
        let mut counts = state.pages.values().map(|page| page.present.count());
        let within = |sum: u64, count: u64| Some(sum + count).filter(|sum| *sum <= blocks);
        counts.try_fold(0, within).is_none()
    }

    /// Whether also a block that is seen in this layer is to be marked.
    pub(crate) fn is_wary(&self) -> bool {
        self.is_wary.load(Ordering::Acquire)
    }

    /// The groups of which the store is to be told; who asks tells it, or gives them back.
    pub(crate) fn take_dirty(&self) -> Vec<u32> {
        std::mem::take(&mut self.lock().dirty)
    }

    /// They were not told after all.
    pub(crate) fn give_back(&self, groups: impl IntoIterator<Item = u32>) {
        let State { pages, dirty, .. } = &mut *self.lock();
        for group in groups {
            // What was lost is not to be told any more.
            if let Some(page) = pages.get_mut(&group).filter(|page| page.stable.is_some()) {
                page.is_dirty = true;
                dirty.push(group);
            }
        }
        dirty.sort_unstable();
        dirty.dedup();
    }

    /// What is to be told of a group that was taken. All of it has been written when this is asked.
    pub(crate) fn image(&self, group: u32) -> Bits {
        let mut state = self.lock();
        let Some(page) = state.pages.get_mut(&group) else { return Bits::default() };
        page.is_dirty = false;
        page.present.clone()
    }

    /// The store has this of a group.
    pub(crate) fn told(&self, group: u32, image: Bits) {
        if let Some(page) = self.lock().pages.get_mut(&group) {
            page.is_doubtful = false;
            page.present.unite(&image);
            page.stable = (page.present != image).then_some(image);
        }
    }

    /// What was written since the last flush may be lost: of blocks that were not here before nothing is told until they are written again.
    pub(crate) fn lose(&self, losses: &Losses) {
        let State { pages, dirty, .. } = &mut *self.lock();
        losses.add();
        self.is_wary.store(true, Ordering::Release);
        dirty.clear();
        for page in pages.values_mut() {
            (page.is_dirty, page.is_doubtful) = (false, true);
            page.present = page.stable.take().unwrap_or_else(|| std::mem::take(&mut page.present));
        }
    }

    /// Bytes of memory that it takes, but for what the allocator adds.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let state = self.lock();
        let double = state.pages.values().filter(|page| page.stable.is_some()).count();
        (state.pages.len() + double) as u64 * GROUP_BLOCKS / 8
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(map: &Map) -> Vec<(u32, u64)> {
        map.take_dirty().into_iter().map(|group| (group, map.image(group).count())).collect()
    }

    #[test]
    fn what_is_marked_is_told_once() {
        let map = Map::default();
        map.mark(GROUP_BLOCKS - 1, 2);
        map.mark(GROUP_BLOCKS, 1);
        assert_eq!((count(&map), count(&map), map.memory_bytes()), (vec![(0, 1), (1, 1)], vec![], 4 * 2048));
        let image = map.image(0);
        map.mark(5, 1);
        map.told(0, image);
        assert_eq!(count(&map), [(0, 2)], "what came after the image is told too");
        map.give_back([0, 1]);
        assert_eq!(count(&map), [(0, 2), (1, 1)]);
    }

    #[test]
    fn what_may_be_lost_is_told_only_when_it_is_written_again() {
        let map = Map::default();
        map.mark(0, 1);
        let told = map.take_dirty().into_iter().map(|group| (group, map.image(group))).collect::<Vec<_>>();
        told.into_iter().for_each(|(group, image)| map.told(group, image));
        map.mark(1, 1);
        let losses = Losses::default();
        map.lose(&losses);
        assert!(!map.mark_kept(1, 1, (&losses, 0)), "it was written before");
        assert_eq!(count(&map), []);
        map.give_back([0]);
        assert_eq!(count(&map), []);
        assert!(map.mark_kept(1, 1, (&losses, 1)));
        assert_eq!(count(&map), [(0, 2)]);
    }

    #[test]
    fn what_was_read_is_told_again_where_something_is_written() {
        let mut bits = Bits::default();
        bits.set(0, 9);
        let map = Map::new([(0, bits.clone()), (1, bits)]);
        assert!(map.is_wary() && count(&map).is_empty());
        map.mark(3, 1);
        assert_eq!(count(&map), [(0, 9)]);
        map.told(0, map.image(0));
        map.mark(3, 1);
        assert_eq!(count(&map), []);
    }
}
