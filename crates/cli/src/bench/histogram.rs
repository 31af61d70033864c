//! Latencies in buckets that grow with the value: 64 to each power of two, so a quantile is at most 1.6 % too high.

use std::time::Duration;

/// Buckets to each power of two, as a power of two.
const SUB_BITS: u32 = 6;
const SUB_BUCKETS: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB_BUCKETS;

/// How often each latency came.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    sum_nanos: u128,
    max_nanos: u64,
}

impl Histogram {
    /// Nothing recorded yet.
    pub(crate) fn new() -> Self {
        Histogram { counts: vec![0; BUCKETS].into(), total: 0, sum_nanos: 0, max_nanos: 0 }
    }

    /// Counts one latency.
    pub(crate) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket_of(nanos)] += 1;
        self.total += 1;
        self.sum_nanos += u128::from(nanos);
        self.max_nanos = self.max_nanos.max(nanos);
    }

    /// The arithmetic mean, zero when nothing was recorded.
    pub(crate) fn mean(&self) -> Duration {
        let mean = self.sum_nanos / u128::from(self.total.max(1));
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The longest.
    pub(crate) fn max(&self) -> Duration {
        Duration::from_nanos(self.max_nanos)
    }

    /// The latency that `per_mille` of 1,000 operations did not exceed, rounded up to its bucket's end.
    pub(crate) fn quantile(&self, per_mille: u64) -> Duration {
        let rank = (u128::from(self.total) * u128::from(per_mille)).div_ceil(1000).max(1);
        let mut seen = 0u128;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank {
                return Duration::from_nanos(bucket_end(bucket).min(self.max_nanos));
            }
        }
        self.max()
    }
}

/// Values below `SUB_BUCKETS` have a bucket each; above, the highest bits after the first one choose.
fn bucket_of(nanos: u64) -> usize {
    let Some(shift) = (63 - (nanos | 1).leading_zeros()).checked_sub(SUB_BITS) else { return nanos as usize };
    let sub = (nanos >> shift) as usize - SUB_BUCKETS;
    (shift as usize + 1) * SUB_BUCKETS + sub
}

/// The highest value of the bucket.
fn bucket_end(bucket: usize) -> u64 {
    let Some(shift) = (bucket / SUB_BUCKETS).checked_sub(1) else { return bucket as u64 };
    let sub = (bucket % SUB_BUCKETS + SUB_BUCKETS) as u128;
    u64::try_from(((sub + 1) << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_within_its_bucket_and_buckets_are_narrow() {
        let mut values: Vec<u64> = (0..64).flat_map(|bit| [1 << bit, (1 << bit) + 1, (1u64 << bit) - 1]).collect();
        values.extend([0, u64::MAX, 123_456_789]);
        for value in values {
            let bucket = bucket_of(value);
            assert!(bucket < BUCKETS, "{value}");
            let end = bucket_end(bucket);
            assert!(value <= end && end - value <= value / 64, "{value} {end}");
            assert!(bucket == 0 || bucket_end(bucket - 1) < value, "{value}");
        }
    }

    #[test]
    fn quantiles_and_mean_of_known_values() {
        let mut histogram = Histogram::new();
        assert_eq!((histogram.mean(), histogram.quantile(999)), (Duration::ZERO, Duration::ZERO));
        (1..=1000).for_each(|micros| histogram.record(Duration::from_micros(micros)));
        assert_eq!(histogram.mean(), Duration::from_nanos(500_500));
        assert_eq!(histogram.max(), Duration::from_millis(1));
        for (per_mille, micros) in [(500, 500), (990, 990), (999, 999), (1000, 1000)] {
            let found = histogram.quantile(per_mille).as_nanos();
            let exact = micros * 1000;
            assert!(found >= exact && found - exact <= exact / 64, "{per_mille}: {found}");
        }
    }
}
