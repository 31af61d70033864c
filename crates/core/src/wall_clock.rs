//! The time of day, for what has no clock of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::time::Instant;

/// Tells the time of day at an [`Instant`]. Clones are the same clock, which any thread may read without a lock.
///
/// Who has the host's clock sets it now and then, because the clock of a host is corrected while it runs. One that was never set tells
/// how long ago the origin of the instants was, as if that were the beginning of 1970.
#[derive(Clone, Debug, Default)]
pub struct WallClock(Arc<AtomicI64>);

impl WallClock {
    /// At this instant it is so many milliseconds after the beginning of 1970 (UTC, leap seconds left out).
    pub fn set(&self, now: Instant, unix_ms: u64) {
        let unix_ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
        self.0.store(unix_ms.saturating_sub(millis(now)), Ordering::Relaxed);
    }

    /// How many milliseconds after the beginning of 1970 it is at this instant.
    #[must_use]
    pub fn unix_ms(&self, now: Instant) -> u64 {
        u64::try_from(self.0.load(Ordering::Relaxed).saturating_add(millis(now))).unwrap_or(0)
    }
}

fn millis(of: Instant) -> i64 {
    // 64 bits of nanoseconds are far fewer milliseconds.
    (of.as_nanos() / 1_000_000) as i64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_goes_on_from_what_it_was_set_to_whatever_that_is() {
        let (clock, at) = (WallClock::default(), |seconds| Instant::ZERO + Duration::from_secs(seconds));
        assert_eq!(clock.unix_ms(at(2)), 2000);
        let same = clock.clone();
        clock.set(at(10), 1_795_483_800_000);
        assert_eq!((same.unix_ms(at(11)), same.unix_ms(at(9))), (1_795_483_801_000, 1_795_483_799_000));
        clock.set(at(10), 0);
        assert_eq!((clock.unix_ms(at(9)), clock.unix_ms(at(11))), (0, 1000), "a host whose clock was never set");
        clock.set(at(0), u64::MAX);
        assert_eq!(clock.unix_ms(at(10)), i64::MAX as u64);
    }
}
