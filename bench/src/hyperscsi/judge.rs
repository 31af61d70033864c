//! The targets of HyperSCSI.

use crate::report::Verdict;
use crate::sample::{Measure, Row};

use super::idle::Idle;

/// Every target that the rows can judge.
pub(super) fn judge(rows: &[Row], idle: Option<&Idle>) -> Vec<Verdict> {
    let mut mtus: Vec<u32> = rows.iter().map(|row| row.mtu_bytes).collect();
    mtus.dedup();
    let mut verdicts = vec![];
    for mtu in mtus {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.mtu_bytes == mtu).collect();
        judge_sequential(&rows, mtu, &mut verdicts);
        judge_round_trip(&rows, mtu, &mut verdicts);
        if mtu >= 9000 {
            judge_against_vblade(&rows, &mut verdicts);
        }
    }
    if let Some(idle) = idle {
        verdicts.extend([
            Verdict::at_most("idle server, % of a processor".into(), idle.server_percent, 0.5),
            Verdict::at_most("idle attached client, % of a processor".into(), idle.client_percent, 0.5),
            Verdict::at_most("server with one client, MiB resident".into(), idle.server_resident_mib, 64.0),
        ]);
    }
    verdicts
}

fn median(rows: &[&Row], contender: &str, load: &str, measure: Measure) -> Option<f64> {
    let row = rows.iter().find(|row| row.contender == contender && row.load.starts_with(load))?;
    Some(row.spread(measure)?.median)
}

fn judge_sequential(rows: &[&Row], mtu: u32, verdicts: &mut Vec<Verdict>) {
    let Some(raw) = median(rows, "raw link", "one way", Measure::MibPerS) else { return };
    for contender in ["HS/eth ram", "HS/eth tmpfs"] {
        for load in ["512K sequential read", "512K sequential write"] {
            if let Some(mib_per_s) = median(rows, contender, load, Measure::MibPerS) {
                let target = format!("MTU {mtu}: {contender}, {load}, part of the raw link");
                verdicts.push(Verdict::at_least(target, mib_per_s / raw, 0.75));
            }
        }
    }
}

fn judge_round_trip(rows: &[&Row], mtu: u32, verdicts: &mut Vec<Verdict>) {
    let load = "4K random read qd1";
    for (raw_load, which) in
        [("round trip, 4K answer, blocking", "blocking"), ("round trip, 4K answer, 20", "20 us spin")]
    {
        let raw =
            rows.iter().find(|row| row.load.starts_with(raw_load)).and_then(|row| row.spread(Measure::LatencyP50Us));
        let ours = median(rows, "HS/eth ram", load, Measure::LatencyP50Us).filter(|us| *us > 0.0);
        if let (Some(raw), Some(ours)) = (raw, ours) {
            let target = format!("MTU {mtu}: HS/eth ram, {load}, times the raw round trip ({which})");
            verdicts.push(Verdict::at_most(target, ours / raw.median, 1.5));
        }
    }
}

fn judge_against_vblade(rows: &[&Row], verdicts: &mut Vec<Verdict>) {
    let load = "4K random read qd32";
    for (measure, what) in [(Measure::Iops, "IOPS"), (Measure::ServerCpuUs, "server CPU per I/O")] {
        let Some(peer) = median(rows, "vblade tmpfs", load, measure).filter(|value| *value > 0.0) else { continue };
        for contender in ["HS/eth ram", "HS/eth tmpfs"] {
            let Some(ours) = median(rows, contender, load, measure) else { continue };
            let target = format!("MTU 9000: {contender}, {load}, {what}, times vblade's");
            verdicts.push(match measure {
                Measure::Iops => Verdict::at_least(target, ours / peer, 1.0),
                _ => Verdict::at_most(target, ours / peer, 1.0),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    fn row(contender: &str, load: &str, sample: Sample) -> Row {
        let (contender, load) = (contender.into(), load.into());
        Row { mtu_bytes: 9000, contender, load, command: String::new(), samples: vec![sample] }
    }

    #[test]
    fn targets_are_judged_by_ratios() {
        let speed = |mib_per_s| Sample { mib_per_s: Some(mib_per_s), ..Sample::default() };
        let small = |iops, cpu| Sample { iops: Some(iops), server_cpu_us: Some(cpu), ..Sample::default() };
        let rows = [
            row("raw link", "one way, full frames", speed(4000.0)),
            row("HS/eth ram", "512K sequential read qd8", speed(2000.0)),
            row("HS/eth tmpfs", "512K sequential write qd8", speed(3000.0)),
            row("vblade tmpfs", "4K random read qd32", small(100.0, 3.0)),
            row("HS/eth ram", "4K random read qd32", small(200.0, 6.0)),
        ];
        let idle = Idle { server_percent: 0.1, client_percent: 0.6, server_resident_mib: 10.0, attach: String::new() };
        let verdicts = judge(&rows, Some(&idle));
        let met: Vec<(f64, bool)> = verdicts.iter().map(|verdict| (verdict.measured, verdict.is_met())).collect();
        assert_eq!(
            met,
            [(0.5, false), (0.75, true), (2.0, true), (2.0, false), (0.1, true), (0.6, false), (10.0, true)]
        );
    }
}
