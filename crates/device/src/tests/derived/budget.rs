//! What programs may take of processors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sanwire_core::Instant;
use sanwire_core::quota::PROGRAM_FUEL;
use sanwire_scsi::Status;

use super::{good, of, read};
use crate::testing::{NEXUS, World, lun};
use crate::{CommandProgram, Derivation, JudgedCommand, Judgement, Progress, Submission, Verdict};

/// A call of as long as one may take.
const WHOLE: u64 = 100_000;
/// What comes back in a second, what may be owed, and one that begins with all of that: in calls.
const CALLS_IN_A_SECOND: std::ops::RangeInclusive<u64> = 530..=541;

/// Allows everything, after so much fuel.
#[derive(Debug)]
struct Spinning {
    fuel: u64,
    asked: AtomicU64,
}

impl Spinning {
    fn new(fuel: u64) -> Arc<Spinning> {
        Arc::new(Spinning { fuel, asked: AtomicU64::new(0) })
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl CommandProgram for Spinning {
    fn judge(&self, _command: &JudgedCommand<'_>) -> Judgement {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Judgement { fuel: self.fuel, ..Verdict::Allow.into() }
    }
}

fn with(program: &Arc<Spinning>, extents: &[(u64, u64)]) -> Derivation {
    Derivation { program: Some(program.clone()), ..of(extents) }
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// Gives a unit four commands in a millisecond, in which fuel for half a whole call comes back. Gives how many were put off.
fn hurry(world: &World, unit: u16, ms: u64) -> u64 {
    let is_put_off = |_: &u64| match world.begin_at(NEXUS, read(unit, 0, 1), at(ms)) {
        Progress::Deferred(..) => true,
        progress => {
            good(world.finish(progress));
            false
        }
    };
    (0..4).filter(is_put_off).count() as u64
}

fn put_off(world: &World, unit: u16) -> u64 {
    let quotas = world.units.get(lun(unit)).unwrap().quotas();
    quotas.iter().find(|usage| *usage.quota == PROGRAM_FUEL).unwrap().refused
}

#[test]
fn a_program_that_spins_has_its_share_of_a_processor_and_others_go_on() {
    let (world, hostile, modest) = (World::small(), Spinning::new(WHOLE), Spinning::new(50));
    world.derive(1, with(&hostile, &[(0, 8)]));
    world.derive(2, with(&modest, &[(8, 8)]));
    let mut delayed = 0;
    for ms in 0..1000 {
        delayed += hurry(&world, 1, ms);
        assert_eq!(hurry(&world, 2, ms) + hurry(&world, 0, ms), 0, "at {ms} ms");
    }
    assert!(CALLS_IN_A_SECOND.contains(&hostile.asked()), "{}", hostile.asked());
    assert_eq!((hostile.asked() + delayed, modest.asked()), (4000, 4000));
    assert_eq!((put_off(&world, 1), put_off(&world, 2), put_off(&world, 0)), (delayed, 0, 0));
}

#[test]
fn the_units_that_are_derived_from_one_share_what_its_programs_may_take() {
    let world = World::small();
    let whole = world.derive(1, of(&[(0, 32)]));
    let spinning: Vec<_> = (2..5).map(|number| (number, Spinning::new(WHOLE))).collect();
    spinning.iter().for_each(|(number, program)| _ = world.derive_from(&whole, *number, with(program, &[(0, 8)])));
    let other = Spinning::new(WHOLE);
    world.derive(5, with(&other, &[(32, 8)]));
    for ms in 0..1000 {
        spinning.iter().for_each(|(number, _)| _ = hurry(&world, *number, ms));
        hurry(&world, 5, ms);
    }
    let together: u64 = spinning.iter().map(|(_, program)| program.asked()).sum();
    assert!(CALLS_IN_A_SECOND.contains(&together), "{together}");
    assert!(CALLS_IN_A_SECOND.contains(&other.asked()), "{}", other.asked());
}

#[test]
fn a_command_waits_for_fuel_and_ends_as_one_that_a_program_defers() {
    // The second one takes the fuel of a minute at once.
    let (world, program, endless) = (World::small(), Spinning::new(WHOLE), Spinning::new(60 * PROGRAM_FUEL.limit));
    world.derive(1, with(&program, &[(0, 8)]));
    world.derive(2, with(&endless, &[(8, 8)]));
    let (submission, delay) = loop {
        match world.begin_at(NEXUS, read(1, 0, 1), Instant::ZERO) {
            Progress::Deferred(submission, delay) => break (submission, delay),
            progress => _ = good(world.finish(progress)),
        }
    };
    let asked = program.asked();
    let begin = |submission: Submission, now| world.units.begin(NEXUS, submission, &world.memory, now);
    good(world.finish(begin(*submission, Instant::ZERO + delay)));
    assert_eq!(program.asked(), asked + 1);

    good(world.finish(world.begin_at(NEXUS, read(2, 0, 1), Instant::ZERO)));
    let (mut now, mut progress) = (Instant::ZERO, world.begin_at(NEXUS, read(2, 0, 1), Instant::ZERO));
    while let Progress::Deferred(submission, delay) = progress {
        assert_eq!(delay, Duration::from_secs(1));
        now += delay;
        progress = begin(*submission, now);
    }
    assert_eq!((world.finish(progress).status, now, endless.asked()), (Status::Busy, at(10_000), 1));
    let statistics = world.units.get(lun(2)).unwrap().derived().unwrap().statistics();
    assert_eq!(statistics.principals[0].usage.refused_program, 1);
}
