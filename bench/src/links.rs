//! What a second link brings: the same loads over one of two equal links, and over both as one connection. The links are shaped, so
//! that they and not the processors are the limit.

use anyhow::Result;

use crate::bed::{self, Bed, MTU_BYTES};
use crate::link::{Link, SECOND_INTERFACE};
use crate::load::{ClientCommand, Load, read_sanwire};
use crate::report::{Column, Outcome, Verdict, table};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::{Measure, Row, compare};
use crate::servers::{Files, VOLUME_BYTES, Wire};

/// What each link carries, and the queue before it.
const MBIT_PER_SECOND: u32 = 1000;
const QUEUE_BYTES: u32 = 512 << 10;

const VOLUME: &str = "disk";

/// Contenders, and what the client is told about links.
const ONE: (&str, &str) = ("one link", " --links 1");
const BOTH: (&str, &str) = ("two links", "");

/// What two links must carry at least, in terms of one.
const TARGET: f64 = 1.6;

const COLUMNS: [Column; 5] = [
    Column::MIB_PER_S_RANGED,
    Column::LATENCY_P50_US,
    Column::SERVER_US,
    Column::CLIENT_US,
    Column::ranged("times one link", Measure::Share, 2),
];

/// A load over so many links.
struct Job {
    links: (&'static str, &'static str),
    load: Load,
}

/// All rounds.
///
/// # Errors
/// When the server does not come up.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let link = Link::new(MTU_BYTES)?;
    link.add_second(MTU_BYTES)?;
    link.shape(MBIT_PER_SECOND, QUEUE_BYTES)?;
    let wires = [Wire::Ethernet, Wire::EthernetOn(SECOND_INTERFACE)];
    let bed = Bed::new(settings, &link, files, &wires, &[format!("{VOLUME}=ram:{VOLUME_BYTES}")])?;
    let loads = [true, false].map(|is_write| Load::sequential(512 << 10, settings.args.sequential_depth, is_write));
    let jobs = loads.into_iter().flat_map(|load| [ONE, BOTH].map(|links| Job { links, load }));
    let turns = jobs.map(|job| (bed::row(job.links.0, &job.load, &job.client(&bed)), job)).collect();
    let measure = |job: &Job| bed.measure(&job.client(&bed), read_sanwire).map(Some);
    let mut rows = take_single_turns(settings, "links", turns, measure)?;
    compare(&mut rows, ONE.0);
    let (verdicts, table) = (judge(&rows), table(&rows, &COLUMNS));
    Ok(Outcome { part: "links", verdicts, table, rows, ..Outcome::default() })
}

impl Job {
    fn client(&self, bed: &Bed) -> ClientCommand {
        bed.client(&self.load, VOLUME, self.links.1)
    }
}

fn judge(rows: &[Row]) -> Vec<Verdict> {
    let both = rows.iter().filter(|row| row.contender == BOTH.0);
    both.filter_map(|row| {
        let share = row.spread(Measure::Share)?.median;
        let target =
            format!("MTU {MTU_BYTES}: HS/eth ram, {}, two links of {MBIT_PER_SECOND} Mbit/s, times one", row.load);
        Some(Verdict::at_least(target, share, TARGET))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_links_are_judged_by_what_one_carries() {
        let row = |contender, load, iops| Row::of_iops(contender, load, &[iops]);
        let (read, write) = ("512K sequential read qd8", "512K sequential write qd8");
        let mut rows = vec![
            row(ONE.0, read, 200.0),
            row(BOTH.0, read, 390.0),
            row(ONE.0, write, 200.0),
            row(BOTH.0, write, 300.0),
        ];
        compare(&mut rows, ONE.0);
        let met: Vec<(f64, bool)> = judge(&rows).iter().map(|verdict| (verdict.measured, verdict.is_met())).collect();
        assert_eq!(met, [(1.95, true), (1.5, false)]);
    }
}
