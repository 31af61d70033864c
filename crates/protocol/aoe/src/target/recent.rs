//! Commands that were done a moment ago, and are not done again when they come again: a frame that an Ethernet has doubled must not write
//! old data over what came meanwhile, and a flush whose failure nobody has heard of must not succeed the next time.
//!
//! A message is the same one if tag, registers and data are: initiators do not use a tag again so soon, and tools that begin with the same
//! one at each start hardly write the same again within a second.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sanwire_core::Instant;

use crate::wire::AtaHeader;

/// How long a doubled frame may be late.
pub(super) const REMEMBERED_FOR: Duration = Duration::from_secs(1);

/// How long a flush that has failed is remembered: far longer than an initiator gives it again under its tag, because nobody is told of the
/// same failure twice.
const FAILURES_REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// Writes of a station that are remembered at the most.
const WRITES_MAX: usize = 4096;

/// Flushes of a station that have failed and are remembered at the most: more than it has under way.
const FAILURES_MAX: usize = 256;

/// What tells a message from others: its tag, and a hash of the rest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Mark(u32, u64);

impl Mark {
    /// That of a message with these registers and data behind its tag.
    pub(super) fn of(tag: u32, argument: &[u8]) -> Mark {
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        let (words, rest) = argument.as_chunks::<8>();
        let mix = |hash: u64, word: u64| {
            let mixed = (hash ^ word).wrapping_mul(MIX);
            mixed ^ mixed >> 32
        };
        let hash = words.iter().fold(argument.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        Mark(tag, rest.iter().fold(hash, |hash, byte| mix(hash, (*byte).into())))
    }
}

/// Commands of a station, with their answers.
pub(super) struct Recent {
    /// So long they are remembered.
    lasts: Duration,
    /// So many at the most.
    max: usize,
    answers: BTreeMap<Mark, AtaHeader>,
    order: VecDeque<(Instant, Mark)>,
}

impl Recent {
    /// Of commands that have changed the medium.
    pub(super) fn of_writes() -> Recent {
        Recent { lasts: REMEMBERED_FOR, max: WRITES_MAX, answers: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Of flushes that have failed.
    pub(super) fn of_failed_flushes() -> Recent {
        Recent { lasts: FAILURES_REMEMBERED_FOR, max: FAILURES_MAX, ..Recent::of_writes() }
    }

    /// A command was done.
    pub(super) fn add(&mut self, mark: Mark, answer: AtaHeader, now: Instant) {
        if self.answers.insert(mark, answer).is_none() {
            self.order.push_back((now, mark));
        }
        self.forget(now);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The answer to a message, if it is one that was obeyed.
    pub(super) fn answer(&mut self, mark: Mark, now: Instant) -> Option<AtaHeader> {
        self.forget(now);
        self.answers.get(&mark).copied()
    }

    /// Forgets those of more than a moment ago.
    pub(super) fn forget(&mut self, now: Instant) {
        while let Some((at, mark)) = self.order.front().copied()
            && (self.order.len() > self.max || at + self.lasts <= now)
        {
            self.order.pop_front();
            self.answers.remove(&mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_remembered_for_a_while_by_all_that_it_says() {
        let mut recent = Recent::of_writes();
        let answer = AtaHeader { flags: 0x41, feature: 0, count: 0, command: 0x50, lba: [0; 6] };
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let (mark, other) = (Mark::of(1, &[7; 30]), Mark::of(1, &[&[7; 29][..], &[8]].concat()));
        assert!(mark != other && mark != Mark::of(2, &[7; 30]) && mark != Mark::of(1, &[7; 31]));
        recent.add(mark, answer, at(0));
        assert_eq!((recent.answer(mark, at(999)), recent.answer(other, at(999))), (Some(answer), None));
        assert_eq!(recent.answer(mark, at(1000)), None);
        (0..2 * WRITES_MAX as u32).for_each(|tag| recent.add(Mark::of(tag, &[]), answer, at(2000)));
        assert_eq!(recent.answers.len(), WRITES_MAX);
    }
}
