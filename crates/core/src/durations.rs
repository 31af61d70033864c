//! How long commands have taken: a histogram with four places for each power of two.

use std::fmt::{self, Write};
use std::time::Duration;

/// Places for each power of two: what is read from it is exact to 25 % at the most.
const PARTS_BITS: u32 = 2;
const PARTS: usize = 1 << PARTS_BITS;

/// What takes 2^22 µs (4.2 s) or longer has the last place.
const END_BITS: u32 = 22;
const PLACES: usize = (END_BITS as usize - PARTS_BITS as usize + 1) * PARTS;

/// The first bound that is exported: 16 µs. Each further one is twice as long.
const EXPORTED_FIRST_BITS: u32 = 4;

/// Durations of commands, in microseconds.
#[derive(Clone, Debug)]
pub struct Durations {
    /// The sum.
    pub sum_us: u64,
    /// The longest.
    pub max_us: u64,
    places: [u64; PLACES + 1],
}

impl Default for Durations {
    fn default() -> Self {
        Durations { sum_us: 0, max_us: 0, places: [0; PLACES + 1] }
    }
}

impl Durations {
    /// Counts one more.
    pub fn note(&mut self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.sum_us = self.sum_us.saturating_add(us);
        self.max_us = self.max_us.max(us);
        self.places[place_of(us)] += 1;
    }

    /// Adds those of another shard, or of another operation.
    pub fn add(&mut self, other: &Durations) {
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.max_us = self.max_us.max(other.max_us);
        self.places.iter_mut().zip(other.places).for_each(|(ours, theirs)| *ours += theirs);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.places.iter().sum()
    }

    /// No more than this many microseconds took `share` (of 1) of them: a quarter too much at the most.
    #[must_use]
    pub fn within_us(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut count = 0;
        let place = self.places.iter().position(|commands| {
            count += commands;
            count >= wanted
        });
        match place {
            Some(place) if place < PLACES => (end_of(place) - 1).min(self.max_us),
            _ => self.max_us,
        }
    }

    /// How many took less than 16 µs, 32 µs and so on to 4.2 s, each with the bound in microseconds; without those that took longer.
    pub fn up_to(&self) -> impl Iterator<Item = (u64, u64)> {
        let (mut count, mut from) = (0, 0);
        (EXPORTED_FIRST_BITS..=END_BITS).map(move |bits| {
            let end = if bits == END_BITS { PLACES } else { place_of(1 << bits) };
            count += self.places[from..end].iter().sum::<u64>();
            from = end;
            (1 << bits, count)
        })
    }
}

impl Durations {
    /// Writes them as a histogram of OpenMetrics, in seconds; `labels` are as they stand between the braces.
    ///
    /// # Errors
    /// That of the writer.
    pub fn write_histogram(&self, text: &mut impl Write, name: &str, labels: &str) -> fmt::Result {
        let seconds = |us: u64| us as f64 / 1e6;
        let (comma, braced) = if labels.is_empty() { ("", String::new()) } else { (",", format!("{{{labels}}}")) };
        for (bound_us, count) in self.up_to() {
            writeln!(text, "{name}_bucket{{le=\"{}\"{comma}{labels}}} {count}", seconds(bound_us))?;
        }
        let (count, sum) = (self.count(), seconds(self.sum_us));
        writeln!(text, "{name}_bucket{{le=\"+Inf\"{comma}{labels}}} {count}")?;
        writeln!(text, "{name}_count{braced} {count}\n{name}_sum{braced} {sum}")
    }
}

fn place_of(us: u64) -> usize {
    if us < PARTS as u64 {
        return us as usize;
    }
    let bits = us.ilog2();
    if bits >= END_BITS {
        return PLACES;
    }
    let part = (us >> (bits - PARTS_BITS)) as usize & (PARTS - 1);
    (bits - PARTS_BITS + 1) as usize * PARTS + part
}

/// The first duration that has a later place.
fn end_of(place: usize) -> u64 {
    let next = place + 1;
    if next <= PARTS {
        return next as u64;
    }
    let bits = (next / PARTS) as u32 + PARTS_BITS - 1;
    ((PARTS + next % PARTS) as u64) << (bits - PARTS_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_has_its_place_and_places_are_a_quarter_wide() {
        let mut last = 0;
        for us in (0..5000).chain((1 << 21) - 3..(1 << 22) + 3) {
            let place = place_of(us);
            assert!(place == last || place == last + 1 || us > 5000, "{us}: {place} after {last}");
            last = place;
            if place < PLACES {
                assert!(us < end_of(place) && (place == 0 || us >= end_of(place - 1)), "{us}: {place}");
                assert!(end_of(place) - 1 <= us + us / 4, "{us}: {}", end_of(place));
            }
        }
        assert_eq!((place_of((1 << 22) - 1), place_of(1 << 22), place_of(u64::MAX)), (PLACES - 1, PLACES, PLACES));
    }

    #[test]
    fn a_histogram_ends_with_all_that_were_noted_and_their_sum() {
        let mut durations = Durations::default();
        [20_000, 5_000_000].iter().for_each(|us| durations.note(Duration::from_micros(*us)));
        let written = |labels| {
            let mut text = String::new();
            durations.write_histogram(&mut text, "x_seconds", labels).unwrap();
            text
        };
        let plain = written("");
        assert_eq!(plain.lines().count(), 22);
        assert!(plain.starts_with("x_seconds_bucket{le=\"0.000016\"} 0\n"), "{plain}");
        assert!(plain.ends_with("x_seconds_bucket{le=\"+Inf\"} 2\nx_seconds_count 2\nx_seconds_sum 5.02\n"), "{plain}");
        let labelled = written("volume=\"a\"");
        for line in ["x_seconds_bucket{le=\"0.032768\",volume=\"a\"} 1", "x_seconds_count{volume=\"a\"} 2"] {
            assert!(labelled.lines().any(|own| own == line), "{line}\n{labelled}");
        }
    }

    #[test]
    fn what_is_exported_is_what_was_noted() {
        let mut durations = Durations::default();
        let all = [0, 1, 15, 16, 90, 4_194_303, 4_194_304, u64::MAX];
        all.iter().for_each(|us| durations.note(Duration::from_micros(*us)));
        let bounds: Vec<(u64, u64)> = durations.up_to().collect();
        assert_eq!(bounds.len(), 19);
        for (bound, count) in bounds {
            assert_eq!(count, all.iter().filter(|us| **us < bound).count() as u64, "{bound}");
        }
        assert_eq!(durations.count(), 8);
        assert_eq!((durations.within_us(0.5), durations.within_us(1.0)), (16 + 3, u64::MAX));
        assert_eq!((Durations::default().within_us(0.99), Durations::default().count()), (0, 0));
    }
}
