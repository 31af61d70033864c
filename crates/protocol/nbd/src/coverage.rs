//! Which bytes of a read have arrived: a server that leaves some out must not pass off what the memory held before.

use std::ops::Range;

/// More gaps than any server leaves at a time: bounds what a hostile one makes us remember.
const RUNS_MAX: usize = 1024;

/// Bytes that have arrived, as runs in rising order that do not touch.
#[derive(Debug, Default)]
pub(crate) struct Coverage(Vec<Range<u32>>);

impl Coverage {
    /// Adds a run; `false`, and nothing is added, when some of it is there already or there are too many runs.
    pub(crate) fn insert(&mut self, run: Range<u32>) -> bool {
        let runs = &mut self.0;
        let at = runs.partition_point(|known| known.end < run.start);
        let joins_before = runs.get(at).is_some_and(|known| known.end == run.start);
        let next = at + usize::from(joins_before);
        if runs.get(next).is_some_and(|known| known.start < run.end) {
            return false;
        }
        let joins_after = runs.get(next).is_some_and(|known| known.start == run.end);
        match (joins_before, joins_after) {
            (true, true) => runs[at].end = runs.remove(next).end,
            (true, false) => runs[at].end = run.end,
            (false, true) => runs[next].start = run.start,
            (false, false) if runs.len() >= RUNS_MAX => return false,
            (false, false) => runs.insert(at, run),
        }
        true
    }

    /// Whether all of `0..length_bytes` is there.
    pub(crate) fn is_whole(&self, length_bytes: u32) -> bool {
        matches!(&self.0[..], [run] if *run == (0..length_bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn too_many_gaps_are_refused() {
        let mut coverage = Coverage::default();
        for at in 0..RUNS_MAX as u32 {
            assert!(coverage.insert(2 * at..2 * at + 1));
        }
        assert!(!coverage.insert(10_000..10_001));
        assert!(coverage.insert(1..2), "what closes a gap is taken");
    }

    proptest! {
        #[test]
        fn runs_are_what_a_set_of_bytes_is(runs in prop::collection::vec((0u32..64, 1u32..16), 0..40)) {
            let (mut coverage, mut model) = (Coverage::default(), [false; 80]);
            for (start, length) in runs {
                let bytes = start as usize..(start + length) as usize;
                let is_new = !model[bytes.clone()].contains(&true);
                prop_assert_eq!(coverage.insert(start..start + length), is_new);
                if is_new {
                    model[bytes].fill(true);
                }
            }
            for end in 1..80 {
                let is_whole = !model[..end].contains(&false) && !model[end..].contains(&true);
                prop_assert_eq!(coverage.is_whole(end as u32), is_whole);
            }
        }
    }
}
