//! How long to wait between attempts.

use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

/// How long to wait after all portals have failed: at first, and at the most.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// A waiting time that doubles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Backoff(BACKOFF_FIRST)
    }
}

impl Backoff {
    /// How long to wait now: between half of it and all of it, so that many clients do not come at once.
    pub(super) fn next(&mut self, random: &mut ChaCha20Rng) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(BACKOFF_MAX);
        wait / 2 + wait / 2 * (random.next_u32() % 1024) / 1024
    }
}
