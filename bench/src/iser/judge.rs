//! The targets of iSER: against iSCSI that has digests, where iSER has CRCs.

use crate::idle_sessions::Idle;
use crate::report::Verdict;
use crate::sample::{Measure, Row};

use super::plan::{Contender, loads, mtus, ratio};

/// From this size on it is to be faster, not as fast.
const LARGE_BYTES: u32 = 64 << 10;
const AS_FAST: f64 = 1.0;
const FASTER: f64 = 1.15;
/// The client's processor time for a byte.
const CLIENT_CPU: f64 = 1.0;
const IDLE_PERCENT: f64 = 0.5;

/// Every target that the rows can judge, each by the size with which iSER does worst.
pub(super) fn judge(rows: &[Row], depth: u16, idle: Option<&Idle>) -> Vec<Verdict> {
    let mut verdicts = vec![];
    for mtu in mtus(rows) {
        for is_write in [false, true] {
            let ratios = |measure, least_bytes| {
                let loads =
                    loads(depth).filter(move |load| load.is_write == is_write && load.block_bytes >= least_bytes);
                loads.filter_map(move |load| ratio(rows, mtu, Contender::Digests, &load, measure))
            };
            let direction = if is_write { "writes" } else { "reads" };
            let what = |sizes: &str, measure: &str| {
                format!("MTU {mtu}: iSER, {direction} {sizes}, {measure}, times iSCSI's with digests at the worst size")
            };
            for (sizes, least_bytes, bound) in [("of 512 B to 1 MiB", 0, AS_FAST), ("from 64 KiB", LARGE_BYTES, FASTER)]
            {
                let worst = ratios(Measure::Iops, least_bytes).min_by(f64::total_cmp);
                verdicts.extend(worst.map(|worst| Verdict::at_least(what(sizes, "IOPS"), worst, bound)));
            }
            let worst = ratios(Measure::ClientCpuSecondsPerGib, 0).max_by(f64::total_cmp);
            let what = what("of 512 B to 1 MiB", "client CPU per byte");
            verdicts.extend(worst.map(|worst| Verdict::at_most(what, worst, CLIENT_CPU)));
        }
    }
    let idle = idle.into_iter().flat_map(|idle| {
        [("server with 100 sessions", idle.server_percent), ("program with the clients' ends", idle.clients_percent)]
    });
    verdicts.extend(
        idle.map(|(who, percent)| {
            Verdict::at_most(format!("iSER: idle {who}, % of a processor"), percent, IDLE_PERCENT)
        }),
    );
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Load;
    use crate::sample::Sample;

    fn row(contender: Contender, bytes: u32, iops: f64, client_cpu_us: f64) -> Row {
        let load = Load::sequential(bytes, 8, false).name();
        let mib_per_s = Some(iops * f64::from(bytes) / 1_048_576.0);
        let sample = Sample { iops: Some(iops), mib_per_s, client_cpu_us: Some(client_cpu_us), ..Sample::default() };
        Row { samples: vec![sample], ..Row::of_iops(contender.name(), &load, &[]) }
    }

    #[test]
    fn iser_is_judged_by_the_size_with_which_it_does_worst() {
        let rows = [
            row(Contender::Digests, 512, 1000.0, 10.0),
            row(Contender::Iser, 512, 1000.0, 8.0),
            // What has no digests is not what it is held against.
            row(Contender::Iscsi, 512, 9000.0, 1.0),
            row(Contender::Digests, 64 << 10, 100.0, 10.0),
            row(Contender::Iser, 64 << 10, 120.0, 9.0),
            row(Contender::Digests, 1 << 20, 100.0, 10.0),
            row(Contender::Iser, 1 << 20, 110.0, 10.5),
        ];
        let idle = Idle { server_percent: 0.1, clients_percent: 0.7, command: String::new() };
        let verdicts = judge(&rows, 8, Some(&idle));
        let told: Vec<(String, bool)> =
            verdicts.iter().map(|verdict| (format!("{:.2}", verdict.measured), verdict.is_met())).collect();
        let expected = [("1.00", true), ("1.10", false), ("1.05", false), ("0.10", true), ("0.70", false)];
        assert_eq!(told, expected.map(|(measured, is_met)| (measured.to_owned(), is_met)));
    }
}
