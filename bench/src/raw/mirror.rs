//! What a mirror of two costs beside one file, all of them in memory of one host and served by one processor.

use anyhow::Result;

use crate::bed::{self, Bed, MTU_BYTES};
use crate::link::{End, Link};
use crate::load::{Load, read_sanwire};
use crate::process::Host;
use crate::report::{Column, Section, Verdict, table};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::{Measure, Row, compare};
use crate::servers::{Files, Wire};

const ARRAY: &str = "pair";
const ONE: &str = "one file";
const MIRROR: &str = "mirror of two";

/// What writes must reach at least, in terms of one file: each is written twice, by the same processor.
const TARGET: f64 = 0.45;

const COLUMNS: [Column; 5] = [
    Column::IOPS,
    Column::MIB_PER_S_RANGED,
    Column::LATENCY_P50_US,
    Column::SERVER_US_RANGED,
    Column::plain("times one file", Measure::Share, 2),
];

/// All rounds.
///
/// # Errors
/// When the array cannot be made, or the server does not come up.
pub(super) fn measure(settings: &Settings, files: &Files) -> Result<Section> {
    let link = Link::new(MTU_BYTES)?;
    let members = [files.image("first.img")?, files.image("second.img")?].map(|path| format!("file:{path}"));
    let host = Host { link: &link, processors: settings.processors };
    let create = ["array", "create", ARRAY, "--mirror", &members[0], &members[1], "--force"];
    host.run(End::Server, &settings.programs[0], &create)?;
    // What is copied while it is measured would count.
    host.run(End::Server, &settings.programs[0], &["array", "scrub", ARRAY, &members[0], &members[1]])?;
    let volumes = [
        format!("one=file:{},security=none", files.image("sanwire.img")?),
        format!("two=array:{ARRAY},member={},security=none", members[0]),
    ];
    let bed = Bed::new(settings, &link, files, &[Wire::Ethernet], &volumes)?;
    let depth = settings.args.sequential_depth;
    let loads = [
        Load::random_write(4096, 32),
        Load::random_read(4096, 32),
        Load::sequential(512 << 10, depth, true),
        Load::sequential(512 << 10, depth, false),
    ];
    let jobs = loads.into_iter().flat_map(|load| {
        [(ONE, "one"), (MIRROR, "two")].map(|(contender, volume)| {
            let client = bed.client(&load, volume, "");
            (bed::row(contender, &load, &client), client)
        })
    });
    let turns = jobs.collect();
    let mut rows = take_single_turns(settings, "mirror", turns, |client| bed.measure(client, read_sanwire).map(Some))?;
    compare(&mut rows, ONE);
    let tables = vec![("a mirror of two files in tmpfs beside one, by HS/eth at MTU 9000", table(&rows, &COLUMNS))];
    Ok(Section { verdicts: judge(&rows), rows, tables })
}

fn judge(rows: &[Row]) -> Vec<Verdict> {
    let writes = rows.iter().filter(|row| row.contender == MIRROR && row.load.contains(" write "));
    writes
        .filter_map(|row| {
            let share = row.spread(Measure::Share)?.median;
            let target = format!("MTU {MTU_BYTES}: a mirror of two files, {}, times one file", row.load);
            Some(Verdict::at_least(target, share, TARGET))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_to_a_mirror_are_judged_by_those_to_one_file() {
        let row = |contender, load, iops| Row::of_iops(contender, load, &[iops]);
        let (write, long) = ("4K random write qd32", "512K sequential write qd8");
        let mut rows = vec![
            row(ONE, write, 200.0),
            row(MIRROR, write, 80.0),
            row(ONE, "4K random read qd32", 200.0),
            row(MIRROR, "4K random read qd32", 20.0),
            row(ONE, long, 200.0),
            row(MIRROR, long, 100.0),
        ];
        compare(&mut rows, ONE);
        let met: Vec<(f64, bool)> = judge(&rows).iter().map(|verdict| (verdict.measured, verdict.is_met())).collect();
        assert_eq!(met, [(0.4, false), (0.5, true)]);
    }
}
