//! The numbers of the protected packets that were taken: each is taken once, old ones not at all.

/// Numbers below the highest that are told apart. Links of different speed overtake each other by thousands of packets.
const SPAN: u64 = 16_384;
const WORDS: usize = (SPAN / 64) as usize;

/// A window over packet numbers that moves up with the highest number taken.
#[derive(Debug)]
pub struct ReplayWindow {
    /// One above the highest number taken.
    end: u64,
    /// One bit for each number of the span below `end`, in a ring.
    taken: [u64; WORDS],
}

impl Default for ReplayWindow {
    fn default() -> Self {
        ReplayWindow::new()
    }
}

impl ReplayWindow {
    /// No number was taken.
    #[must_use]
    pub fn new() -> Self {
        ReplayWindow { end: 0, taken: [0; WORDS] }
    }

    /// Whether the number is new.
    pub fn is_new(&self, number: u64) -> bool {
        if number >= self.end {
            // The last number cannot be counted past; no honest peer comes to it.
            return number < u64::MAX;
        }
        self.end - number <= SPAN && self.taken[word(number)] & bit(number) == 0
    }

    /// Notes the number of a packet that [`ReplayWindow::is_new`] and was authentic.
    pub fn note(&mut self, number: u64) {
        if number >= self.end {
            if number - self.end >= SPAN {
                self.taken = [0; WORDS];
            } else {
                (self.end..=number).for_each(|skipped| self.taken[word(skipped)] &= !bit(skipped));
            }
            self.end = number + 1;
        }
        self.taken[word(number)] |= bit(number);
    }
}

fn word(number: u64) -> usize {
    (number % SPAN / 64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_last_number_is_never_taken() {
        assert!(!ReplayWindow::new().is_new(u64::MAX));
    }

    #[test]
    fn a_packet_may_come_thousands_of_packets_late_and_is_still_taken_once() {
        let mut window = ReplayWindow::new();
        (0..20_000).filter(|number| *number != 7_000).for_each(|number| window.note(number));
        assert!(window.is_new(7_000) && !window.is_new(7_001));
        window.note(7_000);
        assert!(!window.is_new(7_000));
        assert!(!window.is_new(20_000 - SPAN - 1), "too old to know");
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(steps in proptest::collection::vec((0u64..40_000, any::<bool>()), 1..300)) {
            let mut window = ReplayWindow::new();
            let mut taken = BTreeSet::new();
            let mut base = 0;
            for (step, moves) in steps {
                let number = base + step;
                let end = taken.last().map_or(0, |last| last + 1);
                let is_new = number + SPAN >= end && !taken.contains(&number);
                prop_assert_eq!(window.is_new(number), is_new, "{} below {}", number, end);
                if is_new {
                    taken.insert(number);
                    window.note(number);
                }
                base += if moves { step / 2 } else { 0 };
            }
        }
    }
}
