//! How long an answer takes, and how long to wait for one.

use std::time::Duration;

/// Before the first sample.
const TIMEOUT_INITIAL: Duration = Duration::from_millis(50);
/// A timeout costs one query, not a retransmission; so it may be short. It must exceed the peer's delay of
/// acknowledgements.
const TIMEOUT_MIN: Duration = Duration::from_millis(8);
const TIMEOUT_MAX: Duration = Duration::from_secs(1);

/// The smoothed round trip and its variation (RFC 6298 2), with the backoff of the timer.
#[derive(Clone, Debug, Default)]
pub struct RoundTrip {
    smoothed: Option<Duration>,
    variation: Duration,
    backoff: u32,
}

impl RoundTrip {
    /// Takes a sample of a packet that was sent once.
    pub fn sample(&mut self, sample: Duration) {
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }

    /// Something was acknowledged: the path works.
    pub fn progress(&mut self) {
        self.backoff = 0;
    }

    /// The timer ran out: wait longer next time. Gives how often it has run out in a row.
    pub fn back_off(&mut self) -> u32 {
        self.backoff = (self.backoff + 1).min(10);
        self.backoff
    }

    /// How long to wait from now.
    pub fn timeout(&self) -> Duration {
        (self.calm_timeout() * (1 << self.backoff)).min(TIMEOUT_MAX)
    }

    /// The same without backoff.
    pub fn calm_timeout(&self) -> Duration {
        let base = self.smoothed.map_or(TIMEOUT_INITIAL, |smoothed| smoothed + self.variation * 4);
        base.clamp(TIMEOUT_MIN, TIMEOUT_MAX)
    }

    /// The smoothed round trip, once there is one.
    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_samples_and_backs_off() {
        let mut rtt = RoundTrip::default();
        assert_eq!(rtt.timeout(), TIMEOUT_INITIAL);
        (0..50).for_each(|_| rtt.sample(Duration::from_millis(20)));
        assert!(rtt.timeout() >= Duration::from_millis(20) && rtt.timeout() < Duration::from_millis(25));
        let calm = rtt.timeout();
        rtt.back_off();
        assert_eq!(rtt.timeout(), calm * 2);
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout(), TIMEOUT_MAX);
        rtt.progress();
        assert_eq!(rtt.timeout(), calm);
    }
}
