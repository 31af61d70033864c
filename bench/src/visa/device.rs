//! What a derived volume, and a program, add to a command in the device itself: without a wire, a client and a disk, so that
//! nanoseconds count. The reads are of zeroes that no store has to fetch.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sanwire_buffer::Region;
use sanwire_core::{Lun, NexusId, Principal, WallClock};
use sanwire_device::{
    AllowedOperations, BlockRange, Derivation, DerivedExtent, JudgedCommand, LogicalUnit, LogicalUnits, Progress,
    UnitOptions,
};
use sanwire_program::{Limits, Program};
use sanwire_scsi::{Extent, Identity, OperationClasses, Status, Task, build};
use sanwire_store::{NullStore, Outcome};

use crate::report::{Found, Section};
use crate::run::Settings;
use crate::servers::check_interrupted;

use super::filter;

const BLOCK_BYTES: u32 = 512;
const DISK_BYTES: u64 = 1 << 30;
const READ_BLOCKS: u32 = 8;
const NEXUS: NexusId = NexusId(1);
/// Of one contender in a round.
const COMMANDS: u32 = 100_000;
/// The time between two of them, by the device's clock.
const PACE: Duration = Duration::from_micros(10);
/// Short ones, for each of the run's.
const ROUNDS: usize = 4;

/// The targets, in nanoseconds; nobody notices the second.
const PROGRAM_NS: f64 = 100.0;
const GOAL_NS: f64 = 20.0;

/// The units, by their numbers.
const DISK: u16 = 0;
const PLAIN: u16 = 1;
const JUDGED: u16 = 2;

const TITLE: &str = "a command in the device alone";

/// All rounds.
///
/// # Errors
/// When a unit cannot be made, or does not do what it is asked.
pub(super) fn measure(settings: &Settings) -> Result<Section> {
    if !settings.is_named(TITLE) {
        return Ok(Section::default());
    }
    let program = Arc::new(Program::load(&filter::module()?, Limits::default(), None)?);
    let units = units(&program)?;
    let memory = Region::new(1 << 20)?;
    let mut rounds: [Vec<f64>; 4] = Default::default();
    let mut now = sanwire_core::Instant::ZERO;
    for _ in 0..settings.rounds * ROUNDS {
        check_interrupted(&settings.interrupted)?;
        for (times, lun) in rounds.iter_mut().zip([DISK, PLAIN, JUDGED]) {
            times.push(ns_per_read(&units, &memory, lun, &mut now)?);
        }
        rounds[3].push(ns_per_call(&program)?);
    }
    let [disk, plain, judged, call] = rounds.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    let mut found = Found::default();
    found.add("a READ of the disk", disk, "ns", None);
    found.add("a READ of all of it as a derived volume, more", plain - disk, "ns", None);
    found.add("a READ that a program judges, more than without", judged - plain, "ns", Some(PROGRAM_NS));
    found.add("of that the call of the program", call, "ns", None);
    found.add("the same, beside the goal", judged - plain, "ns", Some(GOAL_NS));
    Ok(found.section(TITLE).0)
}

fn units(program: &Arc<Program>) -> Result<LogicalUnits> {
    let units = LogicalUnits::new();
    let identity = |name: &str, number: u16| Identity::new(name, [number as u8 + 1; 16]).context("no identity");
    let lun = |number| Lun::new(number).context("no such number of a unit");
    let store = Arc::new(NullStore::new(DISK_BYTES, BLOCK_BYTES));
    let disk = LogicalUnit::new(identity("disk", DISK)?, store, UnitOptions::default())?;
    let disk = units.add(lun(DISK)?, disk)?;
    for (name, number) in [("plain", PLAIN), ("judged", JUDGED)] {
        let derivation = Derivation {
            extents: vec![DerivedExtent { offset_bytes: 0, length_bytes: DISK_BYTES }],
            operations: AllowedOperations::all(),
            admission: None,
            until_unix_ms: None,
            program: (number == JUDGED).then(|| Arc::clone(program) as _),
            clock: WallClock::default(),
        };
        let derived = LogicalUnit::derive(identity(name, number)?, &disk, derivation, UnitOptions::default())?;
        units.add(lun(number)?, derived)?;
    }
    Ok(units)
}

fn ns_per_read(units: &LogicalUnits, memory: &Region, lun: u16, now: &mut sanwire_core::Instant) -> Result<f64> {
    // What there is to tell a new initiator is told first.
    while !read(units, memory, lun, 0, *now)? {}
    let begun = Instant::now();
    for number in 0..COMMANDS {
        // Slower than it is, so that no quota of programs is reached.
        *now += PACE;
        ensure!(read(units, memory, lun, u64::from(number), *now)?, "a read fails");
    }
    Ok(begun.elapsed().as_nanos() as f64 / f64::from(COMMANDS))
}

/// Whether it is good.
fn read(units: &LogicalUnits, memory: &Region, lun: u16, lba: u64, now: sanwire_core::Instant) -> Result<bool> {
    let task = Task {
        lun: Lun::new(lun),
        cdb: build::read_16(Extent { lba, blocks: READ_BLOCKS }),
        data_out: None,
        tells_residual: false,
        data_in_max_bytes: READ_BLOCKS * BLOCK_BYTES,
        may_share: true,
        piece: None,
        receipts: u64::MAX - 1,
    };
    let mut progress = units.begin(NEXUS, task, memory, now);
    loop {
        progress = match progress {
            Progress::Done(reply) => return Ok(black_box(reply).status == Status::Good),
            Progress::Store(execution, request) => {
                let store = Arc::clone(execution.store());
                let completion = sanwire_store::run(&*store, request, |_| Ok(Outcome::Done));
                units.resume(execution, completion, memory)
            }
            other => bail!("a read of zeroes comes to {other:?}"),
        };
    }
}

fn ns_per_call(program: &Program) -> Result<f64> {
    let (principal, cdb) = (Principal::default(), build::read_16(Extent { lba: 7, blocks: READ_BLOCKS }));
    let begun = Instant::now();
    for number in 0..COMMANDS {
        let judged = program.run(&JudgedCommand {
            cdb: &cdb,
            classes: OperationClasses::READ,
            ranges: &[BlockRange { lba: u64::from(number), blocks: READ_BLOCKS.into() }],
            capacity_blocks: DISK_BYTES / u64::from(BLOCK_BYTES),
            block_bytes: BLOCK_BYTES,
            principal: &principal,
            principal_number: 0,
            unix_ms: 0,
            waited_ms: 0,
            data_out: &[],
        });
        ensure!(black_box(judged).failure.is_none(), "the program fails");
    }
    Ok(begun.elapsed().as_nanos() as f64 / f64::from(COMMANDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_asked_about_the_reads_of_its_unit_alone() {
        let program = Arc::new(Program::load(&filter::module().unwrap(), Limits::default(), None).unwrap());
        let (units, memory) = (units(&program).unwrap(), Region::new(1 << 20).unwrap());
        for (lun, calls) in [(DISK, 0), (PLAIN, 0), (JUDGED, 1)] {
            while !read(&units, &memory, lun, 0, sanwire_core::Instant::ZERO).unwrap() {}
            assert_eq!(program.statistics().calls, calls);
        }
        ns_per_call(&program).unwrap();
        assert_eq!(program.statistics().allowed, 1 + u64::from(COMMANDS));
    }
}
