//! How long commands have taken: a histogram with four places for each power of two.

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
    pub(super) fn note(&mut self, duration: Duration) {
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
