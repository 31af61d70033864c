//! How long things took.

use std::time::Duration;

/// Latencies, counted in steps of a tenth of a microsecond.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    counts: Vec<u64>,
    total: u64,
}

const STEP_NANOS: u128 = 100;
/// Anything longer than a tenth of a second counts as that.
const STEPS_MAX: u128 = 1_000_000;

impl Latencies {
    pub(crate) fn record(&mut self, latency: Duration) {
        let step = (latency.as_nanos() / STEP_NANOS).min(STEPS_MAX) as usize;
        if step >= self.counts.len() {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
        self.total += 1;
    }

    pub(crate) fn count(&self) -> u64 {
        self.total
    }

    /// The latency that `part` of all did not exceed, to the end of its step; zero when there is none.
    pub(crate) fn quantile(&self, part: f64) -> Duration {
        let rank = ((self.total as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let step = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        step.map_or(Duration::ZERO, |step| Duration::from_nanos((step as u64 + 1) * STEP_NANOS as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_known_values() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), Duration::ZERO);
        for micros in (1..=100).rev() {
            latencies.record(Duration::from_micros(micros));
        }
        assert_eq!(latencies.count(), 100);
        assert_eq!(latencies.quantile(0.5), Duration::from_nanos(50_100));
        assert_eq!(latencies.quantile(1.0), Duration::from_nanos(100_100));
        latencies.record(Duration::from_secs(5));
        assert_eq!(latencies.quantile(1.0), Duration::from_nanos(100_000_100));
    }
}
