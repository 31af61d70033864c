//! For which bytes of a store anything stands, and how often: found by halves, however many ranges there are.

use crate::range::Range;

/// Ranges, which may have bytes in common.
#[derive(Default, Debug)]
pub(super) struct Coverage {
    /// Ascending. No two after one another have the same count, and the first has one above 0.
    steps: Vec<Step>,
}

/// From a byte on, up to the next step, ...
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    offset_bytes: u64,
    /// ... so many ranges have the bytes.
    count: i64,
}

impl Coverage {
    /// These ranges are there, too.
    pub(super) fn add<'a>(&mut self, ranges: impl IntoIterator<Item = &'a Range>) {
        self.change(ranges, 1);
    }

    /// Ranges that were added are there no longer.
    pub(super) fn remove<'a>(&mut self, ranges: impl IntoIterator<Item = &'a Range>) {
        self.change(ranges, -1);
    }

    /// Whether any of them has a byte of this one.
    pub(super) fn covers(&self, range: Range) -> bool {
        let end_bytes = range.offset_bytes.saturating_add(range.length_bytes);
        let next = self.steps.partition_point(|step| step.offset_bytes <= range.offset_bytes);
        let is_at_begin = next.checked_sub(1).is_some_and(|at| self.steps[at].count > 0);
        // Behind bytes that none has there are some that one has, or none at all.
        range.length_bytes > 0
            && (is_at_begin || self.steps.get(next).is_some_and(|step| step.offset_bytes < end_bytes))
    }

    /// All steps are gone through once.
    fn change<'a>(&mut self, ranges: impl IntoIterator<Item = &'a Range>, by: i64) {
        let ranges = ranges.into_iter().filter(|range| range.length_bytes > 0);
        let edges = ranges.flat_map(|range| {
            let end_bytes = range.offset_bytes.saturating_add(range.length_bytes);
            [(range.offset_bytes, by), (end_bytes, -by)]
        });
        let mut edges: Vec<(u64, i64)> = edges.collect();
        if edges.is_empty() {
            return;
        }
        edges.sort_unstable();
        let before = std::mem::take(&mut self.steps);
        let mut steps: Vec<Step> = Vec::with_capacity(before.len() + edges.len());
        let (mut before, mut edges) = (before.into_iter().peekable(), edges.into_iter().peekable());
        let (mut count, mut more) = (0, 0);
        loop {
            let next = [before.peek().map(|step| step.offset_bytes), edges.peek().map(|(offset, _)| *offset)];
            let Some(offset_bytes) = next.into_iter().flatten().min() else { break };
            if let Some(step) = before.next_if(|step| step.offset_bytes == offset_bytes) {
                count = step.count;
            }
            while let Some((_, by)) = edges.next_if(|(offset, _)| *offset == offset_bytes) {
                more += by;
            }
            if steps.last().map_or(0, |last| last.count) != count + more {
                steps.push(Step { offset_bytes, count: count + more });
            }
        }
        self.steps = steps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 64;

    fn range(offset_bytes: u64, length_bytes: u64) -> Range {
        Range { offset_bytes, length_bytes }
    }

    /// All of a small store, byte by byte.
    #[test]
    fn it_says_what_a_look_at_all_ranges_would() {
        let (mut coverage, mut ranges, mut state) = (Coverage::default(), Vec::<Range>::new(), 1_u64);
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..500 {
            if ranges.len() > 12 || random(3) == 0 && !ranges.is_empty() {
                let gone: Vec<Range> = (0..random(3).min(ranges.len() as u64))
                    .map(|_| ranges.swap_remove(random(ranges.len() as u64) as usize))
                    .collect();
                coverage.remove(&gone);
            } else {
                let new: Vec<Range> = (0..=random(2)).map(|_| range(random(BYTES), random(9))).collect();
                coverage.add(&new);
                ranges.extend(new);
            }
            for (offset, length) in (0..BYTES + 9).flat_map(|offset| [0, 1, 2, 7].map(|length| (offset, length))) {
                let has = |byte: u64| ranges.iter().any(|one| one.overlaps(range(byte, 1)));
                let expected = (offset..offset + length).any(has);
                assert_eq!(coverage.covers(range(offset, length)), expected, "{offset}+{length} {ranges:?}");
            }
            let is_tidy = coverage
                .steps
                .windows(2)
                .all(|steps| steps[0].offset_bytes < steps[1].offset_bytes && steps[0].count != steps[1].count);
            assert!(is_tidy && coverage.steps.last().is_none_or(|step| step.count == 0), "{coverage:?}");
        }
        coverage.remove(&ranges);
        assert_eq!(coverage.steps, [], "nothing is left");
    }

    #[test]
    fn the_end_of_all_bytes_is_no_place_to_overflow() {
        let mut coverage = Coverage::default();
        coverage.add(&[range(u64::MAX - 8, 100)]);
        assert!(coverage.covers(range(u64::MAX - 1, 1)) && !coverage.covers(range(0, 8)));
        assert!(coverage.covers(range(0, u64::MAX)));
    }
}
