//! Derived units that come to their end.

use std::time::Duration;

use sanwire_core::Instant;
use sanwire_scsi::{Status, build, inquiry, report};
use sanwire_store::{ErrorKind, Request};
use sanwire_store_file::blocking;

use super::{BLOCK, NOT_THERE, blocks, good, identity, of, on, read, swap, write};
use crate::testing::{Driver, NEXUS, OTHER, World, lun, sense};
use crate::{Derivation, DeriveError, LogicalUnit, Progress, UnitOptions, WriteHold};

fn listed(world: &World) -> Vec<u16> {
    let bytes = good(world.on(0, build::report_luns(256), &[]));
    report::parse_luns(&bytes).unwrap().into_iter().map(|lun| lun.number()).collect()
}

#[test]
fn a_unit_that_is_revoked_is_as_if_it_were_not_there_and_so_are_those_derived_from_it() {
    let world = World::small();
    let (one, other) = (world.derive(1, of(&[(0, 8)])), world.derive(2, of(&[(8, 8)])));
    let child = world.derive_from(&one, 3, of(&[(0, 4)]));
    assert_eq!(listed(&world), [0, 1, 2, 3]);
    one.revoke();
    assert!(one.is_revoked() && child.is_revoked() && !other.is_revoked());
    assert_eq!(listed(&world), [0, 2]);
    for number in [1, 3] {
        assert_eq!(sense(&world.run_task(NEXUS, write(number, 0, &blocks(&[1])))), NOT_THERE);
        assert_eq!(good(world.on(number, build::inquiry(None, 255), &[])), inquiry::absent_inquiry());
        assert!(world.units.may_reset(NEXUS, lun(number), Instant::ZERO).is_none());
    }
    good(world.run_task(NEXUS, write(2, 0, &blocks(&[1]))));
    let again = LogicalUnit::derive(identity(4), &one, of(&[(0, 1)]), UnitOptions::default());
    assert_eq!(again.unwrap_err(), DeriveError::Revoked);
    world.root().revoke();
    assert!(other.is_revoked() && !world.root().is_revoked(), "a unit that is not derived stays");
    good(world.run_task(NEXUS, read(0, 0, 1)));
    // Who had it in hand when it was taken out of service comes too late.
    let late = LogicalUnit::derive(identity(5), &world.root(), of(&[(0, 1)]), UnitOptions::default());
    assert_eq!(late.unwrap_err(), DeriveError::Revoked);
}

#[test]
fn what_is_under_way_when_a_unit_is_revoked_ends_with_an_error_and_nothing_begins_any_more() {
    let (world, driver) = (World::small(), Driver::new());
    let unit = world.derive(1, of(&[(8, 8), (0, 4)]));
    good(world.run_task(NEXUS, write(0, 8, &blocks(&[7]))));
    let Progress::Store(reading, request) = world.begin(NEXUS, read(1, 0, 1)) else { panic!("it is at the store") };
    let swapping = world.begin(OTHER, on(1, swap(0), &blocks(&[7, 8])));
    let Progress::Store(swapping, swap_request) = swapping else { panic!("it reads first") };
    let under_way = world.begin(NEXUS, write(1, 1, &blocks(&[1])));
    let Progress::Store(writing, write_request) = under_way else { panic!("it is at the store") };
    let queued = driver.wait(&world, world.begin(NEXUS, write(1, 0, &blocks(&[9]))));
    unit.revoke();
    assert!(driver.take_woken(), "what waits is to look");
    let hold = WriteHold::begin(unit.state());
    assert!(!hold.is_held(), "two have begun");
    assert_eq!(sense(&world.finish(Progress::Wait(queued))), NOT_THERE);
    // The data of a read is not told, a write that has begun ends, and what has read goes on to no write.
    for (execution, request, block) in [(reading, request, 8), (writing, write_request, 9), (swapping, swap_request, 8)]
    {
        let completion = blocking::run(&**world.root().store(), placed(request, block));
        assert_eq!(sense(&world.finish(world.units.resume(execution, completion, &world.memory))), NOT_THERE);
    }
    assert!(hold.is_held(), "all that had begun has ended");
    assert_eq!(world.store.bytes(8 * 512, 1024), blocks(&[7, 1]));
    // Whoever asks its store, also for a command that has waited for it.
    let late = blocking::run(&**unit.store(), Request::Write { offset_bytes: 0, data: blocks(&[5]).into() });
    assert!(late.is_err_and(|error| error.kind == ErrorKind::Gone));
    assert_eq!(world.store.bytes(8 * 512, 512), blocks(&[7]));
    drop(hold);
    good(world.run_task(NEXUS, write(0, 8, &blocks(&[2]))));
}

/// What a derived unit's store has handed to the one below.
fn placed(request: Request, block: u64) -> Request {
    let offset_bytes = block * BLOCK;
    match request {
        Request::Read { buffer, .. } => Request::Read { offset_bytes, buffer },
        Request::Write { data, .. } => Request::Write { offset_bytes, data },
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_unit_whose_time_is_over_is_as_if_it_were_not_there() {
    let world = World::small();
    let derivation = of(&[(0, 8)]);
    derivation.clock.set(Instant::ZERO, 1_000_000);
    let clock = derivation.clock.clone();
    let unit = world.derive(1, Derivation { until_unix_ms: Some(1_002_000), ..derivation });
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    let status = |ms| match world.begin_at(NEXUS, on(1, build::test_unit_ready(), &[]), at(ms)) {
        Progress::Done(reply) => (reply.status == Status::Good).then_some(()),
        other => panic!("{other:?}"),
    };
    assert_eq!((status(1999), status(2000)), (Some(()), None));
    clock.set(at(2500), 1_001_900);
    assert_eq!((status(2500), status(2600)), (Some(()), None), "the host's clock was wrong");
    assert_eq!(unit.derived().unwrap().statistics().principals[0].usage.refused_expired, 2);
    assert!(!unit.is_revoked());
}

#[test]
fn an_end_is_moved_while_the_unit_is_used_and_nothing_outlasts_what_it_is_derived_from() {
    let world = World::small();
    let derivation = of(&[(0, 8)]);
    derivation.clock.set(Instant::ZERO, 1_000_000);
    let clock = derivation.clock.clone();
    let until = |until_unix_ms| Derivation { until_unix_ms, clock: clock.clone(), ..of(&[(0, 8)]) };
    let unit = world.derive(1, until(Some(1_002_000)));
    let later = world.derive_from(&unit, 2, until(Some(1_005_000)));
    let with = world.derive_from(&later, 3, until(None));
    let ends = || [&unit, &later, &with].map(|unit| unit.derived().unwrap().until_unix_ms());
    let there = |ms| {
        let at = Instant::ZERO + Duration::from_millis(ms);
        let ready = |number| world.begin_at(NEXUS, on(number, build::test_unit_ready(), &[]), at);
        [1, 2, 3].map(|number| match ready(number) {
            Progress::Done(reply) => reply.status == Status::Good,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(ends(), [Some(1_002_000); 3]);
    assert_eq!((there(1_999), there(2_000)), ([true; 3], [false; 3]));
    unit.derived().unwrap().set_until(Some(1_008_000));
    assert_eq!(ends(), [Some(1_008_000), Some(1_005_000), Some(1_005_000)]);
    assert_eq!((there(4_999), there(5_000)), ([true; 3], [true, false, false]));
    later.derived().unwrap().set_until(None);
    assert_eq!((there(7_999), there(8_000)), ([true; 3], [false; 3]));
    unit.derived().unwrap().set_until(None);
    assert_eq!((ends(), there(1 << 40)), ([None; 3], [true; 3]));
    with.derived().unwrap().set_until(Some(1_001_000));
    assert_eq!((ends()[2], there(1_000)), (Some(1_001_000), [true, true, false]), "earlier than it was");
}
