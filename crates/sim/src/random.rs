//! All chance of a world comes from one seed.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A small, fast generator (SplitMix64): good enough to choose faults, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Random(seed ^ 0x6a09_e667_f3bc_c908)
    }

    /// Another generator, whose numbers do not depend on how many are drawn from this one later.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Random(self.u64())
    }

    /// Any number.
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range.
    pub fn range(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (first, last) = range.into_inner();
        let span = last.saturating_sub(first).saturating_add(1);
        first + self.u64() % span.max(1)
    }

    /// True so many times in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.u64() % 1_000_000 < u64::from(per_million)
    }

    /// One of the choices.
    ///
    /// # Panics
    /// When there is none.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.range(0..=choices.len() as u64 - 1) as usize]
    }

    /// A duration of the range, in microseconds.
    pub fn micros(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_micros(self.range(range))
    }

    /// A seed for a machine.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        seed.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&self.u64().to_le_bytes()));
        seed
    }
}
