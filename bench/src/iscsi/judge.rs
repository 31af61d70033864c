//! The targets of iSCSI.
//!
//! They were set on another machine, where tgt's null disk gave 151,000 IOPS of 4 KiB at 6.5 us of server time each, and
//! 65,000 of 64 KiB. Here they are times what tgt's null disk gives in the same run.

use crate::idle_sessions::Idle;
use crate::load::Load;
use crate::report::Verdict;
use crate::sample::{self, Measure, Row};

use super::plan::{Client, DIGESTS, LARGE, Own, PLAIN, SINGLE, SMALL, contender_name, load_name};
use super::servers::{Contender, Store};

/// Every target that the rows can judge.
pub(crate) fn judge(rows: &[Row], idle: Option<&Idle>) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = [
        against_tgt(rows, Store::Ram, &SMALL, Measure::Iops, 260_000.0 / 151_000.0),
        against_tgt(rows, Store::Ram, &SMALL, Measure::ServerCpuUs, 2.0 / 6.5),
        against_tgt(rows, Store::Tmpfs, &SMALL, Measure::ServerCpuUs, 3.5 / 6.5),
        against_tgt(rows, Store::Ram, &SINGLE, Measure::Iops, 1.3),
        // SPDK's malloc disk gave 89,000.
        against_tgt(rows, Store::Ram, &LARGE, Measure::Iops, 89_000.0 / 65_000.0),
        with_digests(rows, &SMALL),
        with_digests(rows, &LARGE),
    ]
    .into_iter()
    .flatten()
    .collect();
    verdicts.extend(idle.map(|idle| {
        Verdict::at_most("iSCSI: idle server, 100 sessions, % of a processor".into(), idle.server_percent, 0.5)
    }));
    verdicts
}

fn against_tgt(rows: &[Row], store: Store, load: &Load, measure: Measure, bound: f64) -> Option<Verdict> {
    let ours = median(rows, Contender::Sanwire, store, load, Client::Perf, measure)?;
    let tgt = median(rows, Contender::Tgt, Store::Null, load, Client::Perf, measure).filter(|value| *value > 0.0)?;
    let what = format!("iSCSI {}, {}", store.name(), load.name());
    Some(match measure {
        Measure::Iops => Verdict::at_least(format!("{what}, IOPS, times tgt null's"), ours / tgt, bound),
        _ => Verdict::at_most(format!("{what}, server CPU per I/O, times tgt null's"), ours / tgt, bound),
    })
}

fn with_digests(rows: &[Row], load: &Load) -> Option<Verdict> {
    let own = |own: Own| median(rows, Contender::Sanwire, Store::Ram, load, Client::Own(own), Measure::Iops);
    let (with, without) = (own(DIGESTS)?, own(PLAIN).filter(|value| *value > 0.0)?);
    Some(Verdict::at_least(
        format!("iSCSI ram, {}, IOPS with digests, times without", load.name()),
        with / without,
        0.95,
    ))
}

fn median(
    rows: &[Row],
    contender: Contender,
    store: Store,
    load: &Load,
    client: Client,
    measure: Measure,
) -> Option<f64> {
    let (contender, load) = (contender_name(contender, store), load_name(load, client));
    sample::median(rows, &contender, &load, measure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[test]
    fn targets_are_judged_against_tgt_and_by_what_digests_cost() {
        let row = |contender: &str, load: &str, iops, server_cpu_us| Row {
            mtu_bytes: 65_536,
            contender: contender.into(),
            load: load.into(),
            command: String::new(),
            samples: vec![Sample { iops: Some(iops), server_cpu_us: Some(server_cpu_us), ..Sample::default() }],
        };
        let rows = [
            row("iSCSI ram", "4K random read qd32", 200.0, 3.0),
            row("tgt null", "4K random read qd32", 100.0, 9.0),
            row("iSCSI tmpfs", "4K random read qd32", 100.0, 4.0),
            row("iSCSI ram", "4K random read qd1", 12.0, 9.0),
            row("tgt null", "4K random read qd1", 10.0, 9.0),
            row("iSCSI ram", "4K random read qd32 (own client)", 100.0, 3.0),
            row("iSCSI ram", "4K random read qd32 (digests)", 96.0, 3.0),
        ];
        let idle = Idle { server_percent: 0.7, clients_percent: 0.1, command: String::new() };
        let verdicts = judge(&rows, Some(&idle));
        let met: Vec<bool> = verdicts.iter().map(Verdict::is_met).collect();
        assert_eq!(met, [true, false, true, false, true, false]);
    }
}
