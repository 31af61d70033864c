//! What a server has copied of what a wire carries, as its metrics tell.

use anyhow::{Context, Result};

use crate::bed::Bed;
use crate::sample::Sample;

/// Measures once; the sample says which part of the data of writes, or of answers, was not copied.
pub(super) fn counting(
    bed: &Bed<'_>,
    (wire, is_write): (&str, bool),
    measure: impl FnOnce() -> Result<Sample>,
) -> Result<Sample> {
    let counts = || carried(&bed.metrics()?, wire, is_write);
    let before = counts()?;
    let sample = measure()?;
    let after = counts()?;
    let [in_place, copied] = [0, 1].map(|at| after[at] as f64 - before[at] as f64);
    Ok(Sample { in_place: Some(in_place / (in_place + copied).max(1.0)), ..sample })
}

/// Bytes that writes of a wire have brought so far, or its answers have carried: those that were not copied, and those that were.
fn carried(metrics: &str, wire: &str, is_write: bool) -> Result<[u64; 2]> {
    let (family, in_place) = if is_write { ("written", "where they came") } else { ("read", "where they were") };
    let count = |memory: &str| -> Result<u64> {
        let name = format!("sanwire_{wire}_{family}_bytes_total{{memory=\"{memory}\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name)).with_context(|| format!("no {name}"))?;
        Ok(value.trim().parse()?)
    };
    Ok([count(in_place)?, count("copied")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_copied_is_read_from_the_metrics() {
        let metrics = "sanwire_hdsp_written_bytes_total{memory=\"where they came\"} 5\n\
                       sanwire_hdsp_written_bytes_total{memory=\"copied\"} 7\n\
                       sanwire_aoe_read_bytes_total{memory=\"where they were\"} 1\n\
                       sanwire_aoe_read_bytes_total{memory=\"copied\"} 9\n";
        assert_eq!(carried(metrics, "hdsp", true).unwrap(), [5, 7]);
        assert_eq!(carried(metrics, "aoe", false).unwrap(), [1, 9]);
        assert!(carried(metrics, "hdsp", false).is_err());
    }
}
