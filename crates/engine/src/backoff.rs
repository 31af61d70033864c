//! When what waits asks again: soon at first, and more seldom the longer it asks in vain.

use std::time::Duration;

use sanwire_core::Instant;

#[derive(Debug)]
pub(crate) struct Backoff {
    /// How long the first wait is, and the longest.
    first: Duration,
    most: Duration,
    after: Duration,
    at: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(first: Duration, most: Duration) -> Self {
        Backoff { first, most, after: first, at: None }
    }

    /// When it is time, as long as something waits.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Something waits from now on.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.at.get_or_insert(now + self.first);
    }

    /// All that waits has asked, at its time or earlier, because there was something else to do. Only what was in vain at its time
    /// makes the wait longer.
    pub(crate) fn asked(&mut self, waits: bool, is_in_vain: bool, now: Instant) {
        if !waits {
            (self.after, self.at) = (self.first, None);
        } else if !is_in_vain {
            (self.after, self.at) = (self.first, Some(now + self.first));
        } else if self.at.is_none_or(|at| at <= now) {
            self.after = (2 * self.after).min(self.most);
            self.at = Some(now + self.after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_micros(100);
    const MOST: Duration = Duration::from_millis(5);

    #[test]
    fn a_wait_in_vain_is_twice_as_long_as_the_one_before() {
        let (mut backoff, mut now) = (Backoff::new(FIRST, MOST), Instant::ZERO);
        backoff.begin(now);
        let waits = std::iter::from_fn(|| {
            let at = backoff.at()?;
            let wait = at - now;
            now = at;
            backoff.asked(true, true, now);
            Some(wait)
        });
        let waits: Vec<_> = waits.take(8).collect();
        assert_eq!(waits[..3], [FIRST, 2 * FIRST, 4 * FIRST]);
        assert_eq!(waits[7], MOST);
    }

    #[test]
    fn who_asks_early_or_has_nothing_to_ask_waits_no_longer_for_it() {
        let (mut backoff, now) = (Backoff::new(FIRST, MOST), Instant::ZERO);
        for _ in 0..100 {
            backoff.asked(false, true, now);
        }
        backoff.begin(now);
        assert_eq!(backoff.at(), Some(now + FIRST), "nothing was asked in vain before");
        for micros in 0..99 {
            backoff.asked(true, true, now + Duration::from_micros(micros));
        }
        assert_eq!(backoff.at(), Some(now + FIRST), "nor at its time");
        backoff.asked(true, true, now + FIRST);
        backoff.asked(true, false, now + FIRST);
        assert_eq!(backoff.at(), Some(now + 2 * FIRST));
    }
}
