//! What EXTENDED COPY makes stable where there is no write cache.

use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::{AdditionalSense, Cdb, Sense, build};
use sanwire_store::{ErrorKind, Outcome, Request, StoreError};
use sanwire_store_file::blocking;

use super::copy::{A, B, aborted, begin, list, run, segment, with_second};
use super::flushes::{LOST, flush, told};
use crate::Progress;
use crate::testing::{NEXUS, OTHER, Op, SMALL, TestStore, World, lun, task};

/// Two initiators that have heard of power on at both units; the second unit is the destination.
fn world() -> (World, Arc<TestStore>) {
    let (world, destination) = with_second(SMALL, false);
    let world = world.with(&[NEXUS, OTHER]);
    [NEXUS, OTHER].into_iter().for_each(|nexus| _ = at(&world, nexus, 1, build::test_unit_ready()));
    (world, destination)
}

fn at(world: &World, nexus: NexusId, unit: u16, cdb: Cdb) -> Option<Sense> {
    told(&world.run_task(nexus, sanwire_scsi::Task { lun: Some(lun(unit)), ..task(cdb, &[]) }))
}

fn flushes(world: &World, nexus: NexusId, unit: u16) -> [Option<Sense>; 2] {
    [(); 2].map(|()| at(world, nexus, unit, flush()))
}

/// A copy of one block that flushes now.
fn flushing(world: &World) -> Progress {
    let mut progress = begin(world, NEXUS, &list(1, &[segment(A, B, 1, 0, 0)]));
    loop {
        match progress {
            Progress::Store(execution, Request::Flush) => return Progress::Store(execution, Request::Flush),
            Progress::Store(execution, request) => {
                let completion = blocking::run(&**execution.store(), request);
                progress = world.units.resume(execution, completion, &world.memory);
            }
            other => panic!("it does not flush: {other:?}"),
        }
    }
}

/// A program that copies tells no file system, also not that of its own host.
#[test]
fn a_copy_that_cannot_flush_is_told_to_all_who_use_its_destination_and_nobody_else() {
    let (world, destination) = world();
    destination.fail(Op::Flush, ErrorKind::Unwritable);
    assert_eq!(run(&world, &list(1, &[segment(A, B, 1, 0, 0)])), aborted(AdditionalSense::WRITE_ERROR));
    destination.heal();
    for nexus in [NEXUS, OTHER] {
        assert_eq!(flushes(&world, nexus, 0), [None; 2], "its source");
        assert_eq!(flushes(&world, nexus, 1), [Some(LOST), None]);
    }
}

/// The store may have told another one of what the copy has written.
#[test]
fn a_copy_counts_as_stable_only_when_no_flush_beside_its_own_fails() {
    for fails in [false, true] {
        let (world, _) = world();
        let Progress::Store(first, _) =
            world.begin(OTHER, sanwire_scsi::Task { lun: Some(lun(1)), ..task(flush(), &[]) })
        else {
            panic!("it flushes")
        };
        let Progress::Store(copying, _) = flushing(&world) else { unreachable!() };
        let Progress::Wait(copying) = world.units.resume(copying, Ok(Outcome::Done), &world.memory) else {
            panic!("one that began before is not over")
        };
        let completion = if fails { Err(StoreError::new(ErrorKind::Unwritable, 0)) } else { Ok(Outcome::Done) };
        assert_eq!(told(&world.finish(world.units.resume(first, completion, &world.memory))), fails.then_some(LOST));
        let over = world.finish(world.units.retry(copying, &world.memory));
        assert_eq!(told(&over).is_some(), fails);
        assert_eq!(flushes(&world, NEXUS, 1), [fails.then_some(LOST), None], "what it wrote by other commands");
    }
}

#[test]
fn a_flush_of_a_copy_whose_end_nobody_saw_has_failed() {
    let (world, _) = world();
    drop(flushing(&world));
    for nexus in [NEXUS, OTHER] {
        assert_eq!((flushes(&world, nexus, 0), flushes(&world, nexus, 1)), ([None; 2], [Some(LOST), None]));
    }
}
