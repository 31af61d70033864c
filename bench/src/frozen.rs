//! What a client that stands still costs the others of its thread: the same load alone, and beside a reader that was stopped with
//! all that it may have under way.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bed::{self, Bed, MTU_BYTES};
use crate::link::{End, Link};
use crate::load::{ClientCommand, Load, read_sanwire};
use crate::process::Running;
use crate::report::{Column, Outcome, Verdict, table};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::{Measure, Row, Sample, compare};
use crate::servers::{Files, Wire};

/// A file: what is read of it takes the server's memory.
const VOLUME: &str = "tmpfs";
const ALONE: &str = "alone";
const BESIDE: &str = "beside a frozen reader";

/// Threads of the server. All clients of one key are served by one of them.
const SHARDS: u32 = 2;

/// Beside the frozen reader an honest client has so much of what it has alone, at the least.
const TARGET: f64 = 0.9;

/// What the reader does until it is stopped.
const READER: Load = Load::sequential(1 << 20, 32, false);
const READ_FIRST: Duration = Duration::from_millis(500);

const COLUMNS: [Column; 5] = [
    Column { title: "IOPS med (min-max)", measure: Measure::Iops, digits: 0, has_range: true },
    Column { title: "MiB/s", measure: Measure::MibPerS, digits: 0, has_range: false },
    Column { title: "p50 us", measure: Measure::LatencyP50Us, digits: 1, has_range: false },
    Column { title: "server us/IO", measure: Measure::ServerCpuUs, digits: 1, has_range: false },
    Column { title: "part of alone", measure: Measure::Share, digits: 2, has_range: true },
];

/// A load, with or without the frozen reader beside it.
struct Job {
    load: Load,
    is_beside: bool,
}

/// All rounds.
///
/// # Errors
/// When the server does not come up.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let link = Link::new(MTU_BYTES)?;
    let volumes = [format!("{VOLUME}=file:{}", files.image("sanwire.img")?)];
    let shards = SHARDS.to_string();
    let bed = Bed::with(settings, &link, files, &[Wire::Ethernet], &volumes, &["--shards", &shards])?;
    let reader = reader(settings, &bed, files)?;
    let loads = [Load::random_read(4096, 32), Load::random_read(4096, 1), Load::sequential(64 << 10, 8, false)];
    let jobs = loads.into_iter().flat_map(|load| [false, true].map(|is_beside| Job { load, is_beside }));
    let turns = jobs.map(|job| (bed::row(job.name(), &job.load, &job.client(&bed)), job)).collect();
    let mut rows = take_single_turns(settings, "frozen", turns, |job| job.measure(&bed, &reader).map(Some))?;
    compare(&mut rows, ALONE);
    let (verdicts, table) = (judge(&rows), table(&rows, &COLUMNS));
    Ok(Outcome { part: "frozen", verdicts, table, rows, ..Outcome::default() })
}

/// The command of a reader with a key of its own, which the same thread serves as the honest client.
fn reader(settings: &Settings, bed: &Bed, files: &Files) -> Result<ClientCommand> {
    let sanwire = &settings.programs[0];
    let shard = |key: &str| -> Result<u32> {
        let id = bed.host.run(End::Client, sanwire, &["id", "--key-file", key])?.output;
        let first = id.trim().get(..8).with_context(|| format!("no id: {id}"))?;
        Ok(u32::from_str_radix(first, 16)? % SHARDS)
    };
    let wanted = shard(&files.path("client.key"))?;
    for number in 0.. {
        let key = files.path(&format!("frozen-{number}.key"));
        if shard(&key)? == wanted {
            return Ok(bed.client_with_key(&READER, VOLUME, &key, 3600.0));
        }
    }
    unreachable!("half of all keys are served there")
}

/// A reader that was stopped in the middle.
fn freeze(bed: &Bed, (program, arguments): &ClientCommand) -> Result<Running> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let reader = bed.host.start(End::Client, program, &arguments)?;
    thread::sleep(READ_FIRST);
    reader.signal("STOP")?;
    Ok(reader)
}

impl Job {
    fn name(&self) -> &'static str {
        if self.is_beside { BESIDE } else { ALONE }
    }

    fn client(&self, bed: &Bed) -> ClientCommand {
        bed.client(&self.load, VOLUME, "")
    }

    fn measure(&self, bed: &Bed, reader: &ClientCommand) -> Result<Sample> {
        let frozen = if self.is_beside { Some(freeze(bed, reader)?) } else { None };
        let sample = bed.measure(&self.client(bed), read_sanwire);
        // It leaves, so that the next measurement begins without it.
        frozen.iter().try_for_each(|frozen| frozen.signal("CONT"))?;
        sample
    }
}

fn judge(rows: &[Row]) -> Vec<Verdict> {
    let beside = rows.iter().filter(|row| row.contender == BESIDE);
    beside
        .filter_map(|row| {
            let share = row.spread(Measure::Share)?.median;
            let target = format!("MTU {MTU_BYTES}: HS/eth tmpfs, {}, {BESIDE}, part of {ALONE}", row.load);
            Some(Verdict::at_least(target, share, TARGET))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_judged_by_what_it_is_alone() {
        let row = |contender: &str, load: &str, iops| Row {
            mtu_bytes: MTU_BYTES,
            contender: contender.into(),
            load: load.into(),
            command: String::new(),
            samples: vec![Sample { iops: Some(iops), ..Sample::default() }],
        };
        let mut rows = vec![
            row(ALONE, "4K random read qd32", 200.0),
            row(BESIDE, "4K random read qd32", 190.0),
            row(ALONE, "4K random read qd1", 100.0),
            row(BESIDE, "4K random read qd1", 80.0),
        ];
        compare(&mut rows, ALONE);
        let met: Vec<(f64, bool)> = judge(&rows).iter().map(|verdict| (verdict.measured, verdict.is_met())).collect();
        assert_eq!(met, [(0.95, true), (0.8, false)]);
    }
}
