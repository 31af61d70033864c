//! Which units of a region are taken: one bit each.

/// A first-fit allocator of runs of units. A set bit is a free unit.
#[derive(Debug)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    units: usize,
    free: usize,
    /// No unit below this word is free.
    hint: usize,
}

impl Bitmap {
    pub(crate) fn new(units: usize) -> Self {
        let mut words = vec![u64::MAX; units.div_ceil(64)];
        if let (Some(last), spare @ 1..) = (words.last_mut(), units % 64) {
            *last = (1 << spare) - 1;
        }
        Bitmap { words, units, free: units, hint: 0 }
    }

    pub(crate) fn units(&self) -> usize {
        self.units
    }

    pub(crate) fn free_units(&self) -> usize {
        self.free
    }

    /// Takes `count` neighbouring units; gives the first one's index.
    pub(crate) fn take(&mut self, count: usize) -> Option<usize> {
        if count == 0 || count > self.free {
            return None;
        }
        while self.hint < self.words.len() && self.words[self.hint] == 0 {
            self.hint += 1;
        }
        let start = self.find_run(count)?;
        self.mark(start, count, false);
        Some(start)
    }

    /// Whether these two runs could be taken, one after the other; of no unit: nothing is asked for.
    pub(crate) fn has_runs(&mut self, first: usize, second: usize) -> bool {
        if first == 0 || second == 0 {
            let count = first.max(second);
            return count <= self.free && (count == 0 || self.find_run(count).is_some());
        }
        let Some(start) = self.take(first) else { return false };
        let has_second = second <= self.free && self.find_run(second).is_some();
        self.give_back(start, first);
        has_second
    }

    pub(crate) fn give_back(&mut self, start: usize, count: usize) {
        self.mark(start, count, true);
        self.hint = self.hint.min(start / 64);
    }

    fn find_run(&self, count: usize) -> Option<usize> {
        let mut run_start = self.next_free(self.hint * 64)?;
        loop {
            let run_end = self.next_taken(run_start, run_start + count);
            if run_end - run_start >= count {
                return Some(run_start);
            }
            run_start = self.next_free(run_end)?;
            if run_start + count > self.units {
                return None;
            }
        }
    }

    fn next_free(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.words.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.words.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// The first taken unit in `from..limit`, or `limit` (or the region's end) when all are free.
    fn next_taken(&self, from: usize, limit: usize) -> usize {
        let limit = limit.min(self.units);
        let mut at = from;
        while at < limit {
            let taken = !self.words[at / 64] >> (at % 64);
            let free_here = (taken.trailing_zeros() as usize).min(64 - at % 64);
            at += free_here;
            if free_here == 0 || !at.is_multiple_of(64) {
                break;
            }
        }
        at.min(limit)
    }

    fn mark(&mut self, start: usize, count: usize, free: bool) {
        let mut at = start;
        let end = start + count;
        while at < end {
            let in_word = (64 - at % 64).min(end - at);
            let mask = (u64::MAX >> (64 - in_word)) << (at % 64);
            if free {
                debug_assert_eq!(self.words[at / 64] & mask, 0, "unit freed twice");
                self.words[at / 64] |= mask;
            } else {
                self.words[at / 64] &= !mask;
            }
            at += in_word;
        }
        self.free = if free { self.free + count } else { self.free - count };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a vector of booleans: runs never overlap, a run is found exactly when one exists.
        #[test]
        fn agrees_with_a_plain_model(units in 1usize..300, steps in proptest::collection::vec((1usize..140, any::<bool>()), 1..200)) {
            let mut bitmap = Bitmap::new(units);
            let mut model = vec![false; units];
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (count, take) in steps {
                if take {
                    let fits = model.windows(count).any(|run| run.iter().all(|taken| !taken));
                    let got = bitmap.take(count);
                    prop_assert_eq!(got.is_some(), fits);
                    if let Some(start) = got {
                        for taken in &mut model[start..start + count] {
                            prop_assert!(!*taken);
                            *taken = true;
                        }
                        held.push((start, count));
                    }
                } else if !held.is_empty() {
                    let (start, length) = held.swap_remove(count % held.len());
                    model[start..start + length].fill(false);
                    bitmap.give_back(start, length);
                }
                prop_assert_eq!(bitmap.free_units(), model.iter().filter(|taken| !**taken).count());
            }
        }
    }
}
