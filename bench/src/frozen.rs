//! What a client that stands still costs the others of its thread: the same load alone, and beside a reader that was stopped with
//! all that it may have under way.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::bed::{self, Bed, MTU_BYTES};
use crate::link::{End, Link};
use crate::load::{ClientCommand, Load, read_sanwire};
use crate::process::Running;
use crate::report::{Column, Outcome, Verdict, table};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::{Measure, Row, Sample, compare};
use crate::servers::{Files, HYPERSCSI, Wire};

/// A file: what is read of it takes the server's memory.
const VOLUME: &str = "tmpfs";
const ALONE: &str = "alone";
const BESIDE: &str = "beside a frozen reader";

/// Threads of the server. All clients of one key are served by one of them.
const SHARDS: u32 = 2;

/// Beside the frozen reader an honest client has so much of what it has alone, at the least.
const TARGET: f64 = 0.9;

/// What the reader does until it is stopped: when so many packets have passed it is in the middle, several times what it may have
/// under way.
const READER: Load = Load::sequential(1 << 20, 32, false);
const READ_FIRST_PACKETS: u64 = 20_000;

/// How long that may take, and until it stands still.
const TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

const COLUMNS: [Column; 5] = [
    Column::IOPS,
    Column::MIB_PER_S,
    Column::LATENCY_P50_US,
    Column::SERVER_US,
    Column::ranged("part of alone", Measure::Share, 2),
];

/// A load over a wire, with or without the frozen reader beside it.
struct Job {
    wire: Wire,
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
    let bed = Bed::with(settings, &link, files, &HYPERSCSI, &volumes, &["--shards", &shards])?;
    let key = key_of_same_thread(settings, &bed, files)?;
    let loads = [Load::random_read(4096, 32), Load::random_read(4096, 1), Load::sequential(64 << 10, 8, false)];
    let jobs = HYPERSCSI
        .into_iter()
        .flat_map(|wire| loads.map(|load| [false, true].map(|is_beside| Job { wire, load, is_beside })))
        .flatten();
    let turns = jobs.map(|job| (job.row(&bed), job)).collect();
    let mut rows = take_single_turns(settings, "frozen", turns, |job| job.measure(&bed, &key).map(Some))?;
    compare(&mut rows, ALONE);
    let (verdicts, table) = (judge(&rows), table(&rows, &COLUMNS));
    Ok(Outcome { part: "frozen", verdicts, table, rows, ..Outcome::default() })
}

/// The file of the reader's own key: the same thread serves it as the honest client.
fn key_of_same_thread(settings: &Settings, bed: &Bed, files: &Files) -> Result<String> {
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
            return Ok(key);
        }
    }
    unreachable!("half of all keys are served there")
}

/// A reader that was stopped in the middle.
///
/// # Errors
/// When it ends instead, or does not read.
fn freeze(bed: &Bed, (program, arguments): &ClientCommand) -> Result<Running> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let packets = || bed.host.link.packets(End::Client);
    let before = packets()?;
    let reader = bed.host.start(End::Client, program, &arguments)?;
    wait_until("the reader does not read", || {
        reader.state()?;
        Ok(packets()? - before >= READ_FIRST_PACKETS)
    })?;
    reader.signal("STOP")?;
    wait_until("the reader does not stop", || is_frozen(&reader))?;
    Ok(reader)
}

fn is_frozen(reader: &Running) -> Result<bool> {
    reader.state().map(|state| state == 'T')
}

fn wait_until(otherwise: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + TIMEOUT;
    while !is_so()? {
        if Instant::now() > end {
            bail!("{otherwise} within {TIMEOUT:?}");
        }
        thread::sleep(POLL);
    }
    Ok(())
}

impl Job {
    /// Its row without samples: what it is alone is found by the load, so that this has the wire too.
    fn row(&self, bed: &Bed) -> Row {
        let contender = if self.is_beside { BESIDE } else { ALONE };
        let row = bed::row(contender, &self.load, &self.client(bed));
        Row { load: format!("{} {VOLUME}, {}", self.wire.name(), row.load), ..row }
    }

    fn client(&self, bed: &Bed) -> ClientCommand {
        bed.client_over(self.wire, &self.load, VOLUME, "")
    }

    fn measure(&self, bed: &Bed, key: &str) -> Result<Sample> {
        let measure = || bed.measure(&self.client(bed), read_sanwire);
        if !self.is_beside {
            return measure();
        }
        let reader = freeze(bed, &bed.client_with_key(self.wire, &READER, VOLUME, key, 3600.0))?;
        let sample = measure();
        let is_frozen = is_frozen(&reader)?;
        // It leaves, so that the next measurement begins without it.
        reader.signal("CONT")?;
        if is_frozen { sample } else { bail!("the reader went on meanwhile") }
    }
}

fn judge(rows: &[Row]) -> Vec<Verdict> {
    let beside = rows.iter().filter(|row| row.contender == BESIDE);
    beside
        .filter_map(|row| {
            let share = row.spread(Measure::Share)?.median;
            let target = format!("MTU {MTU_BYTES}: {}, {BESIDE}, part of {ALONE}", row.load);
            Some(Verdict::at_least(target, share, TARGET))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_judged_by_what_it_is_alone() {
        let row = |contender, load, iops| Row::of_iops(contender, load, &[iops]);
        let mut rows = vec![
            row(ALONE, "HS/eth tmpfs, 4K random read qd32", 200.0),
            row(BESIDE, "HS/eth tmpfs, 4K random read qd32", 190.0),
            row(ALONE, "HS/IP tmpfs, 4K random read qd32", 100.0),
            row(BESIDE, "HS/IP tmpfs, 4K random read qd32", 80.0),
        ];
        compare(&mut rows, ALONE);
        let met: Vec<(f64, bool)> = judge(&rows).iter().map(|verdict| (verdict.measured, verdict.is_met())).collect();
        assert_eq!(met, [(0.95, true), (0.8, false)]);
    }
}
