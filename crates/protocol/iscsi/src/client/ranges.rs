//! Sets of numbers that come in runs: bytes of a transfer, PDUs of a task.

use std::ops::Range;

/// More runs than any target scatters its data over: bounds what a hostile one makes us remember.
const RUNS_MAX: usize = 1024;

/// A set of numbers, as runs in rising order that do not touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ranges {
    runs: Vec<Range<u32>>,
}

impl Ranges {
    /// Adds a run; `false`, and nothing is added, when some of it is there already or the set has too many runs.
    pub(super) fn insert(&mut self, run: Range<u32>) -> bool {
        if run.is_empty() {
            return true;
        }
        let at = self.runs.partition_point(|known| known.end < run.start);
        let touches = self.runs.get(at).is_some_and(|known| known.end == run.start);
        let after = at + usize::from(touches);
        let next = self.runs.get(after).map(|next| next.start);
        if next.is_some_and(|start| start < run.end) {
            return false;
        }
        match (touches, next == Some(run.end)) {
            (true, true) => self.runs[at].end = self.runs.remove(after).end,
            (true, false) => self.runs[at].end = run.end,
            (false, true) => self.runs[after].start = run.start,
            (false, false) if self.runs.len() >= RUNS_MAX => return false,
            (false, false) => self.runs.insert(at, run),
        }
        true
    }

    /// Whether the number is in the set.
    pub(super) fn contains(&self, number: u32) -> bool {
        let at = self.runs.partition_point(|known| known.end <= number);
        self.runs.get(at).is_some_and(|run| run.contains(&number))
    }

    /// The number after the highest.
    pub(super) fn end(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// How far the set goes from zero without a gap.
    pub(super) fn prefix(&self) -> u32 {
        self.runs.first().filter(|run| run.start == 0).map_or(0, |run| run.end)
    }

    /// The first run below `end` that is not in the set.
    pub(super) fn first_gap(&self, end: u32) -> Option<Range<u32>> {
        let from = self.prefix();
        let next = self.runs.iter().map(|run| run.start).find(|&start| start > from);
        let to = next.map_or(end, |start| start.min(end));
        (from < to).then_some(from..to)
    }

    /// Whether nothing is missing between zero and the highest number.
    pub(super) fn is_whole(&self) -> bool {
        self.runs.is_empty() || (self.runs.len() == 1 && self.runs[0].start == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_are_a_set(runs in prop::collection::vec((0u32..60, 0u32..12), 0..30)) {
            let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
            for (start, length) in runs {
                let run = start..start + length;
                let is_new = run.clone().all(|number| !model.contains(&number));
                prop_assert_eq!(ranges.insert(run.clone()), is_new);
                if is_new {
                    model.extend(run);
                }
                prop_assert!(ranges.runs.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert!((0..80).all(|number| ranges.contains(number) == model.contains(&number)));
                let prefix = (0..80).find(|number| !model.contains(number)).unwrap_or(0);
                prop_assert_eq!(ranges.prefix(), prefix);
                let end = model.iter().next_back().map_or(0, |last| last + 1);
                prop_assert_eq!(ranges.is_whole(), end == prefix);
                prop_assert_eq!(ranges.first_gap(end).is_none(), end == prefix);
            }
        }
    }

    #[test]
    fn a_set_of_crumbs_has_an_end() {
        let mut ranges = Ranges::default();
        let taken = (0..5000).filter(|number| ranges.insert(number * 2..number * 2 + 1)).count();
        assert_eq!(taken, RUNS_MAX);
    }
}
