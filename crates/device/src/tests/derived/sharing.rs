//! What a derived unit shares with the one that it is derived from, and what is its own.

use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::vpd::page;
use sanwire_scsi::{AdditionalSense, Cdb, Sense, SenseKey, Status, build};
use sanwire_store::ErrorKind;
use sanwire_store_file::blocking;

use super::super::flushes::{LOST, flush, told};
use super::super::tenure::Slow;
use super::{BLOCK, PROTECTED, blocks, good, of, on, read, swap, write};
use crate::testing::{Driver, NEXUS, OTHER, Op, World, lun, sense};
use crate::{Progress, Volatility, WriteHold};

const MISCOMPARE: AdditionalSense = AdditionalSense::MISCOMPARE_DURING_VERIFY_OPERATION;
const NOT_ACCESSIBLE: Sense = Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_MANUAL_INTERVENTION_REQUIRED);

#[test]
fn of_two_swaps_of_the_same_blocks_by_both_units_one_fails() {
    for (first, second) in [((0, 100), (1, 4)), ((1, 4), (0, 100)), ((1, 0), (2, 0)), ((2, 0), (1, 0))] {
        let (world, driver) = (World::small(), Driver::new());
        world.derive(1, of(&[(0, 4), (100, 4)]));
        world.derive(2, of(&[(0, 1)]));
        let swaps = |(number, lba): (u16, u64), byte| on(number, swap(lba), &blocks(&[0, byte]));
        let Progress::Store(begun, request) = world.begin(NEXUS, swaps(first, 1)) else { panic!("it reads") };
        let waiting = driver.wait(&world, world.begin(OTHER, swaps(second, 2)));
        let elsewhere = world.begin(OTHER, write(1, 2, &blocks(&[9])));
        assert!(matches!(elsewhere, Progress::Store(..)), "other blocks");
        drop(elsewhere);
        let reply = world.finish(Progress::Store(begun, request));
        assert_eq!(reply.status, Status::Good);
        assert!(driver.take_woken());
        assert_eq!(sense(&world.finish(Progress::Wait(waiting))).additional, MISCOMPARE);
        assert_eq!(good(world.run_task(NEXUS, read(first.0, first.1, 1))), blocks(&[1]));
    }
}

#[test]
fn a_swap_over_several_extents_keeps_others_out_of_each_of_them() {
    let (world, driver) = (World::small(), Driver::new());
    world.derive(1, of(&[(0, 4), (100, 4)]));
    let mut over_both = [0; 16];
    (over_both[0], over_both[9], over_both[13]) = (0x89, 3, 2);
    let begun = world.begin(NEXUS, on(1, over_both, &blocks(&[0, 0, 1, 2])));
    let Progress::Store(begun, request) = begun else { panic!("it reads") };
    for lba in [3, 100] {
        drop(driver.wait(&world, world.begin(OTHER, write(0, lba, &blocks(&[9])))));
    }
    for lba in [2, 4, 99, 101] {
        assert!(matches!(world.begin(OTHER, write(0, lba, &blocks(&[9]))), Progress::Store(..)), "{lba}");
    }
    good(world.finish(Progress::Store(begun, request)));
    assert_eq!((world.store.bytes(3 * 512, 512), world.store.bytes(100 * 512, 512)), (blocks(&[1]), blocks(&[2])));
}

#[test]
fn a_hold_of_one_unit_keeps_the_writes_of_the_other_waiting_where_they_share_blocks() {
    let (world, driver) = (World::small(), Driver::new());
    let unit = world.derive(1, of(&[(8, 8)]));
    let hold = WriteHold::begin(world.root().state());
    assert!(hold.is_held());
    let waiting = driver.wait(&world, world.begin(NEXUS, write(1, 0, &blocks(&[1]))));
    drop(hold);
    good(world.finish(Progress::Wait(waiting)));
    let hold = WriteHold::begin(unit.state());
    assert!(hold.is_held());
    drop(driver.wait(&world, world.begin(NEXUS, write(0, 15, &blocks(&[1])))));
    good(world.run_task(NEXUS, write(0, 16, &blocks(&[1]))));
}

#[test]
fn what_a_lost_nexus_still_writes_by_one_unit_is_kept_from_the_other() {
    let (world, driver) = (World::small(), Driver::new());
    world.derive(1, of(&[(0, 4), (100, 4)]));
    let lost = world.begin(NEXUS, write(1, 3, &blocks(&[1, 2])));
    let Progress::Store(mut lost, request) = lost else { panic!("it is at the store") };
    lost.keep_blocks();
    let waiting = driver.wait(&world, world.begin(OTHER, read(0, 100, 1)));
    good(world.run_task(OTHER, read(0, 101, 1)));
    let completion = blocking::run(&**lost.store(), request);
    lost.abandon(&completion);
    assert_eq!(good(world.finish(Progress::Wait(waiting))), blocks(&[2]));
}

#[test]
fn a_flush_that_fails_is_heard_of_by_each_unit_that_a_nexus_uses() {
    let world = World::small();
    world.derive(1, of(&[(0, 8)]));
    world.derive(2, of(&[(0, 8)]));
    for nexus in [NEXUS, OTHER] {
        world.establish(nexus);
        (0..3).for_each(|number| _ = world.run_task(nexus, on(number, build::test_unit_ready(), &[])));
    }
    let flushes = |nexus, number| [(); 2].map(|()| told(&world.run_task(nexus, on(number, flush(), &[]))));
    assert_eq!(flushes(NEXUS, 1), [None, None]);
    world.store.fail(Op::Flush, ErrorKind::Unwritable);
    assert_eq!(told(&world.run_task(NEXUS, on(1, flush(), &[]))), Some(LOST));
    world.store.heal();
    assert_eq!(flushes(NEXUS, 1), [None, None], "it has heard of it by this one");
    for (nexus, number) in [(NEXUS, 0), (NEXUS, 2), (OTHER, 0), (OTHER, 1), (OTHER, 2)] {
        assert_eq!(flushes(nexus, number), [Some(LOST), None], "{nexus:?} by {number}");
    }
}

/// As one whose rules are changed: to its initiators it is the same disk as before.
#[test]
fn who_used_a_unit_that_is_made_anew_hears_of_what_it_has_missed() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Fails {
        Before,
        Between,
        After,
        Never,
    }
    for (fails, is_held) in [Fails::Before, Fails::Between, Fails::After, Fails::Never]
        .into_iter()
        .flat_map(|fails| [(fails, false), (fails, true)])
    {
        let world = World::small();
        let former = world.derive(1, of(&[(0, 8)]));
        for nexus in [NEXUS, OTHER] {
            world.establish(nexus);
            (0..2).for_each(|number| _ = world.run_task(nexus, on(number, build::test_unit_ready(), &[])));
        }
        good(world.run_task(NEXUS, write(1, 0, &blocks(&[1]))));
        let fail_at = |moment| {
            if fails == moment {
                world.run_task(OTHER, on(0, build::test_unit_ready(), &[]));
                world.store.fail(Op::Flush, ErrorKind::Unwritable);
                assert_eq!(told(&world.run_task(OTHER, on(0, flush(), &[]))), Some(LOST));
                world.store.heal();
            }
        };
        fail_at(Fails::Before);
        former.revoke();
        world.units.remove(lun(1));
        // As by a command that has not ended.
        let held = is_held.then(|| Arc::clone(former.state()));
        drop(former);
        fail_at(Fails::Between);
        (1..3).for_each(|number| _ = world.derive(number, of(&[(0, 8)])));
        drop(held);
        let see = |nexus| {
            for number in 1..3 {
                good(world.run_task(nexus, on(number, build::inquiry(Some(page::DEVICE_IDENTIFICATION), 512), &[])));
                world.run_task(nexus, on(number, build::test_unit_ready(), &[]));
            }
        };
        // It was away meanwhile.
        world.units.nexus_lost(NEXUS);
        fail_at(Fails::After);
        world.establish(NEXUS);
        see(NEXUS);
        let flushes = |number| [(); 2].map(|()| told(&world.run_task(NEXUS, on(number, flush(), &[]))));
        let expected = if fails == Fails::Never { [None, None] } else { [Some(LOST), None] };
        assert_eq!(flushes(1), expected, "{fails:?} {is_held}");
        assert_eq!(flushes(2), [None, None], "it has never used this one: {fails:?} {is_held}");
    }
}

#[test]
fn a_flush_by_one_unit_is_a_success_when_that_by_the_other_is_over() {
    let world = World::small();
    world.derive(1, of(&[(0, 8)]));
    for nexus in [NEXUS, OTHER] {
        world.establish(nexus);
        (0..2).for_each(|number| _ = world.run_task(nexus, on(number, build::test_unit_ready(), &[])));
    }
    let begin = |nexus, number| match world.begin(nexus, on(number, flush(), &[])) {
        Progress::Store(execution, request) => (execution, request),
        other => panic!("{other:?}"),
    };
    let ((first, _), (second, request)) = (begin(NEXUS, 0), begin(OTHER, 1));
    let completion = blocking::run(&**second.store(), request);
    let Progress::Wait(waiting) = world.units.resume(second, completion, &world.memory) else { panic!("too early") };
    // It had the error of both.
    let failed = Err(sanwire_store::StoreError::new(ErrorKind::Unwritable, 0));
    assert_eq!(told(&world.finish(world.units.resume(first, failed, &world.memory))), Some(LOST));
    assert_eq!(told(&world.finish(Progress::Wait(waiting))), Some(LOST));
}

#[test]
fn a_write_by_a_derived_unit_ends_the_tenure_of_the_other_also_for_its_own_holder() {
    let (world, keeper) = (World::small(), Arc::new(Slow::default()));
    world.replace(Volatility { verifier: [9; 16], has_failed: false, tenure: None, keeper: Some(keeper.clone()) });
    world.derive(1, of(&[(0, 8)]));
    world.establish(NEXUS);
    world.units.name_writer(NEXUS, [1; 16]);
    (0..2).for_each(|number| _ = world.run_task(NEXUS, on(number, build::test_unit_ready(), &[])));
    let ask = |number| {
        let page = good(world.on(number, build::write_verifier(255), &[]));
        sanwire_scsi::vpd::WriteVerifier::parse(&page).unwrap().unwrap()
    };
    assert!(ask(0).tenure.is_some());
    assert_eq!((ask(1).tenure, ask(1).verifier), (None, ask(0).verifier), "who has a part never writes alone");
    let settle = |mut progress| {
        while let Progress::Wait(waiting) = progress {
            keeper.keep();
            progress = world.units.retry(waiting, &world.memory);
        }
        world.finish(progress)
    };
    good(settle(world.begin(NEXUS, write(0, 0, &blocks(&[1])))));
    assert!(keeper.wanted().is_some(), "it holds it");
    let by_part = world.begin(NEXUS, write(1, 0, &blocks(&[2])));
    assert!(matches!(by_part, Progress::Wait(_)), "the end is not durable yet");
    assert!(keeper.wanted().is_none());
    good(settle(by_part));
    let changed = Sense::new(SenseKey::UnitAttention, AdditionalSense::INQUIRY_DATA_HAS_CHANGED);
    assert_eq!(sense(&world.run_task(NEXUS, write(0, 0, &blocks(&[3])))), changed, "it was given before it knew");
    assert_eq!(world.store.bytes(0, 512), blocks(&[2]));
}

#[test]
fn a_replacement_of_the_content_is_one_of_both() {
    let (world, driver) = (World::small(), Driver::new());
    world.derive(1, of(&[(0, 8)]));
    world.establish(NEXUS);
    (0..2).for_each(|number| _ = world.run_task(NEXUS, on(number, build::test_unit_ready(), &[])));
    let hold = WriteHold::begin(world.root().state());
    let waiting = driver.wait(&world, world.begin(NEXUS, write(1, 0, &blocks(&[1]))));
    world.root().content_replaced();
    drop(hold);
    let replaced = Sense::new(SenseKey::DataProtect, AdditionalSense::NOT_READY_TO_READY_CHANGE);
    assert_eq!(sense(&world.finish(Progress::Wait(waiting))), replaced);
    let changed = Sense { key: SenseKey::UnitAttention, ..replaced };
    for number in [1, 0] {
        assert_eq!(sense(&world.on(number, build::test_unit_ready(), &[])), changed);
    }
}

#[test]
fn what_the_medium_of_the_one_below_is_not_ready_for_the_other_is_not_either() {
    let world = World::small();
    world.derive(1, of(&[(0, 8)]));
    let start_stop = |number, start: u8| good(world.on(number, [0x1b, 0, 0, 0, start, 0], &[]));
    let stopped = Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_INITIALIZING_COMMAND_REQUIRED);
    start_stop(1, 0);
    assert_eq!(sense(&world.run_task(NEXUS, read(1, 0, 1))), stopped);
    good(world.run_task(NEXUS, read(0, 0, 1)));
    start_stop(1, 1);
    start_stop(0, 0);
    assert_eq!(sense(&world.run_task(NEXUS, read(1, 0, 1))), stopped);
    assert_eq!(sense(&world.on(1, build::test_unit_ready(), &[])), stopped);
    start_stop(0, 1);
    good(world.run_task(NEXUS, read(1, 0, 1)));
    world.root().set_gone(true);
    assert_eq!(sense(&world.on(1, build::test_unit_ready(), &[])), NOT_ACCESSIBLE);
    world.root().set_gone(false);
    world.root().stalls().give_up();
    assert_eq!(sense(&world.run_task(NEXUS, read(1, 0, 1))), NOT_ACCESSIBLE, "it is served no longer");
}

#[test]
fn write_protection_goes_down_and_not_up() {
    let world = World::small();
    world.derive(1, of(&[(0, 8)]));
    let soft = Sense::new(SenseKey::DataProtect, AdditionalSense::SOFTWARE_WRITE_PROTECTED);
    // MODE SELECT of the control mode page, with SWP in its byte 4.
    let protect = |number, swp: u8| {
        let page = good(world.on(number, [0x1a, 0x08, 0x0a, 0, 255, 0], &[]));
        let mut list = page.clone();
        (list[0], list[2]) = (0, 0);
        list[4] &= 0x3f;
        list[8] = list[8] & !0x08 | swp;
        good(world.on(number, [0x15, 0x10, 0, 0, list.len() as u8, 0], &list));
    };
    protect(1, 0x08);
    assert_eq!(sense(&world.run_task(NEXUS, write(1, 0, &blocks(&[1])))), soft);
    good(world.run_task(NEXUS, write(0, 0, &blocks(&[1]))));
    protect(1, 0);
    protect(0, 0x08);
    assert_eq!(sense(&world.run_task(NEXUS, write(1, 0, &blocks(&[1])))), soft);
    let world = World::new(sanwire_store::Geometry { read_only: true, ..crate::testing::SMALL }, true);
    world.derive(1, of(&[(0, 8)]));
    assert_eq!(sense(&world.run_task(NEXUS, write(1, 0, &blocks(&[1])))), PROTECTED);
}

#[test]
fn reservations_are_of_one_unit_and_not_of_the_other() {
    let world = World::small();
    world.derive(1, of(&[(0, 8)]));
    for nexus in [NEXUS, OTHER] {
        world.establish(nexus);
        (0..2).for_each(|number| _ = world.run_task(nexus, on(number, build::test_unit_ready(), &[])));
    }
    let reserve = Cdb::from([0x16, 0, 0, 0, 0, 0]);
    good(world.run_task(NEXUS, on(0, reserve, &[])));
    let status = |nexus, number| world.run_task(nexus, write(number, 0, &blocks(&[1]))).status;
    assert_eq!((status(OTHER, 0), status(OTHER, 1)), (Status::ReservationConflict, Status::Good));
    good(world.run_task(OTHER, on(1, reserve, &[])));
    assert_eq!((status(NEXUS, 0), status(NEXUS, 1)), (Status::Good, Status::ReservationConflict));
}

/// Neither of those that are derived from one nor of that one.
#[test]
fn a_reset_of_one_unit_ends_nothing_of_the_others() {
    const RESET: Sense = Sense::new(SenseKey::UnitAttention, AdditionalSense::BUS_DEVICE_RESET_FUNCTION_OCCURRED);
    const D_SENSE: u8 = 0x04;
    let world = World::small();
    world.derive(1, of(&[(0, 8)]));
    world.derive(2, of(&[(8, 8)]));
    let ready = |nexus, number| world.run_task(nexus, on(number, build::test_unit_ready(), &[]));
    for nexus in [NEXUS, OTHER] {
        world.establish(nexus);
        (0..3).for_each(|number| _ = ready(nexus, number));
    }
    let control = |number| good(world.run_task(OTHER, on(number, [0x1a, 0x08, 0x0a, 0, 255, 0], &[])));
    let write = |nexus, number| world.run_task(nexus, write(number, 0, &blocks(&[1])));
    for reset in 0..3 {
        for number in 0..3 {
            let mut list = control(number);
            (list[0], list[2]) = (0, 0);
            list[4] &= 0x3f;
            list[6] |= D_SENSE;
            good(world.run_task(OTHER, on(number, [0x15, 0x10, 0, 0, list.len() as u8, 0], &list)));
            // It is told that modes have changed.
            _ = ready(NEXUS, number);
            good(world.run_task(OTHER, on(number, [0x16, 0, 0, 0, 0, 0], &[])));
        }
        assert!(world.units.logical_unit_reset(lun(reset)));
        for number in 0..3 {
            let [holder, other] = [OTHER, NEXUS].map(|nexus| write(nexus, number));
            if number == reset {
                assert_eq!((sense(&holder), sense(&other)), (RESET, RESET));
            } else {
                assert_eq!((holder.status, other.status), (Status::Good, Status::ReservationConflict), "{number}");
            }
            let is_as_before = control(number)[6] & D_SENSE != 0;
            let is_reserved = write(NEXUS, number).status == Status::ReservationConflict;
            assert_eq!((is_as_before, is_reserved), (number != reset, number != reset), "{number} of {reset}");
            good(world.run_task(OTHER, on(number, [0x17, 0, 0, 0, 0, 0], &[])));
        }
    }
}

#[test]
fn a_sanitize_of_a_part_erases_that_part_and_one_of_the_whole_keeps_the_parts_out() {
    let world = World::small();
    world.derive(1, of(&[(8, 4), (0, 4)]));
    good(world.run_task(NEXUS, write(0, 0, &blocks(&[1; 16]))));
    let overwrite = [0x48, 0x01, 0, 0, 0, 0, 0, 0, 5, 0];
    let pattern = [1, 0, 0, 1, 0xee];
    good(world.on(1, overwrite, &pattern));
    let expected = [[0xee; 4], [1; 4], [0xee; 4], [1; 4]].concat();
    assert_eq!(world.store.bytes(0, 16 * BLOCK as usize), blocks(&expected));
    let Progress::Store(sanitize, request) = world.begin(NEXUS, on(0, overwrite, &pattern)) else { panic!("it runs") };
    let in_progress = Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_SANITIZE_IN_PROGRESS);
    let found = sense(&world.run_task(OTHER, write(1, 0, &blocks(&[9]))));
    assert_eq!((found.key, found.additional), (in_progress.key, in_progress.additional));
    good(world.finish(Progress::Store(sanitize, request)));
    good(world.run_task(OTHER, write(1, 0, &blocks(&[9]))));
}

#[test]
fn who_has_written_last_is_told_by_the_unit_of_which_it_was_written() {
    let world = World::small();
    world.derive(1, of(&[(0, 8)]));
    world.derive(2, of(&[(8, 8)]));
    for nexus in [NEXUS, OTHER, NexusId(3)] {
        world.establish(nexus);
        (0..3).for_each(|number| _ = world.run_task(nexus, on(number, build::test_unit_ready(), &[])));
    }
    good(world.run_task(OTHER, write(1, 0, &blocks(&[1]))));
    let told = |number: u16| {
        let page = good(world.run_task(NEXUS, on(number, build::inquiry(Some(0xc0), 255), &[])));
        sanwire_scsi::vpd::WriteVerifier::parse(&page).unwrap().unwrap().other_writer
    };
    let other = world.units.ports(OTHER).map(|ports| ports.initiator.clone());
    assert_eq!((told(0), told(1), told(2)), (other.clone(), other, None));
}
