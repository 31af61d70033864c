use std::sync::Arc;

use sanwire_core::Instant;
use sanwire_scsi::{AdditionalSense, Extent, Sense, SenseKey, StandardInquiry, Status, Task, build, operation_code};
use sanwire_store::Geometry;

use crate::testing::{NEXUS, OTHER, Op, SMALL, World, lun, task};
use crate::{LogicalUnit, LogicalUnits, UnitOptions};

pub(super) const EJECT: [u8; 6] = [0x1b, 0, 0, 0, 0x02, 0];
const LOAD: [u8; 6] = [0x1b, 0, 0, 0, 0x03, 0];

const NO_MEDIUM: Sense = Sense::new(SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT);
const PREVENT: [u8; 6] = [0x1e, 0, 0, 0, 1, 0];
const PREVENTED: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::MEDIUM_REMOVAL_PREVENTED);

pub(super) fn removable() -> World {
    let world = World::small();
    world.units.remove(lun(0)).unwrap();
    let identity = sanwire_scsi::Identity::new("vol", crate::testing::UUID).unwrap();
    let options = UnitOptions { removable: true, ..UnitOptions::default() };
    world.units.add(lun(0), LogicalUnit::new(identity, world.store.clone(), options).unwrap()).unwrap();
    world
}

#[test]
fn a_removable_medium_is_ejected_and_loaded() {
    let world = removable();
    assert!(StandardInquiry::parse(&world.good(build::inquiry(None, 96), &[])).unwrap().is_removable);
    world.good(EJECT, &[]);
    assert_eq!(world.store.take_log(), [(Op::Flush, 0, 0)], "what is cached goes with it");
    for cdb in [build::test_unit_ready(), build::read_16(Extent { lba: 0, blocks: 1 }), build::read_capacity_16(32)] {
        assert_eq!(world.bad(cdb, &[]), NO_MEDIUM);
    }
    assert_eq!(world.bad([0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]), NO_MEDIUM);
    assert_eq!(Sense::parse(&world.good(build::request_sense(18), &[])), Some(NO_MEDIUM));
    world.good(EJECT, &[]);
    world.establish(OTHER);
    world.run(OTHER, build::test_unit_ready(), &[]);
    world.good(LOAD, &[]);
    world.good(build::test_unit_ready(), &[]);
    let changed = Sense::new(SenseKey::UnitAttention, AdditionalSense::NOT_READY_TO_READY_CHANGE);
    assert_eq!(crate::testing::sense(&world.run(OTHER, build::test_unit_ready(), &[])), changed);
}

#[test]
fn a_medium_stays_while_one_nexus_wants_it() {
    let world = removable();
    world.establish(OTHER);
    world.run(OTHER, build::test_unit_ready(), &[]);
    assert_eq!(world.run(OTHER, [0x1e, 0, 0, 0, 1, 0], &[]).status, Status::Good);
    assert_eq!(world.bad(EJECT, &[]), PREVENTED);
    assert_eq!(world.bad(LOAD, &[]), PREVENTED);
    world.good(build::test_unit_ready(), &[]);
    world.units.nexus_lost(OTHER);
    world.good(EJECT, &[]);
}

#[test]
fn media_that_are_locked_for_a_nexus_stay_also_in_units_that_come_later_until_they_are_let_go() {
    let world = removable();
    world.establish(OTHER);
    world.run(OTHER, build::test_unit_ready(), &[]);
    world.units.lock_media(OTHER, true);
    assert_eq!(world.bad(EJECT, &[]), PREVENTED);
    let later = world.units.remove(lun(0)).unwrap();
    world.units.add_shared(lun(1), later).unwrap();
    let eject = |world: &World| {
        let task = Task { lun: Some(lun(1)), ..crate::testing::task(EJECT, &[]) };
        world.run_task(NEXUS, task)
    };
    assert_eq!(crate::testing::sense(&eject(&world)), PREVENTED);
    world.units.lock_media(OTHER, false);
    assert_eq!(eject(&world).status, Status::Good);
}

#[test]
fn a_nexus_that_goes_over_to_another_part_notices_nothing_of_it_by_units_that_are_in_both() {
    let world = removable();
    let part = LogicalUnits::new();
    let disk = world.units.get(lun(0)).unwrap();
    part.add_shared(lun(0), disk).unwrap();
    world.establish(OTHER);
    world.run(OTHER, build::test_unit_ready(), &[]);
    world.units.lock_media(OTHER, true);
    world.units.hand_over(&part, OTHER);
    let ready = || part.begin(OTHER, task(build::test_unit_ready(), &[]), &world.memory, Instant::ZERO);
    assert_eq!(world.finish(ready()).status, Status::Good, "no power on, no other list");
    assert_eq!(world.bad(EJECT, &[]), PREVENTED);
    part.lock_media(OTHER, false);
    world.good(EJECT, &[]);
}

#[test]
fn a_removable_unit_that_is_stopped_stays_ready() {
    let world = removable();
    world.good(build::start_stop_unit(false), &[]);
    assert_eq!(world.store.take_log(), [(Op::Flush, 0, 0)]);
    world.good(build::test_unit_ready(), &[]);
    for condition in 1..16 {
        world.good([0x1b, 0, 0, 0, condition << 4 | 0x02, 0], &[]);
        world.good(build::test_unit_ready(), &[]);
    }
}

#[test]
fn a_fixed_medium_cannot_be_ejected() {
    let world = World::small();
    for cdb in [EJECT, LOAD] {
        assert_eq!(world.bad(cdb, &[]), Sense::invalid_field_in_cdb(4, Some(1)));
    }
}

fn lba_status(world: &World, lba: u64, room: u8) -> Result<Vec<(u64, u32, u8)>, Sense> {
    let mut cdb = [0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, room, 0, 0];
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    let reply = world.run(NEXUS, cdb, &[]);
    if reply.status != Status::Good {
        return Err(crate::testing::sense(&reply));
    }
    let bytes = reply.data_in.unwrap().to_vec();
    let length = u32::from_be_bytes(*bytes.first_chunk().unwrap()) as usize;
    assert_eq!(length, bytes.len() - 4);
    let descriptors = bytes[8..].as_chunks::<16>().0.iter();
    let field = |bytes: &[u8; 16]| {
        let lba = u64::from_be_bytes(*bytes.first_chunk().unwrap());
        (lba, u32::from_be_bytes(*bytes[8..].first_chunk().unwrap()), bytes[12])
    };
    Ok(descriptors.map(field).collect())
}

#[test]
fn lba_status_tells_runs_of_blocks() {
    let world = World::new(Geometry { length_bytes: 64 * 512, ..SMALL }, true);
    world.good(build::write_16(Extent { lba: 8, blocks: 4 }, false), &[1; 4 * 512]);
    world.good(build::write_16(Extent { lba: 20, blocks: 1 }, false), &[1; 512]);
    let all = [(0, 8, 1), (8, 4, 0), (12, 8, 1), (20, 1, 0), (21, 43, 1)];
    assert_eq!(lba_status(&world, 0, 255).unwrap(), all);
    assert_eq!(lba_status(&world, 10, 24).unwrap(), [(10, 2, 0)], "as much as fits");
    assert_eq!(lba_status(&world, 63, 255).unwrap(), [(63, 1, 1)]);
    assert_eq!(world.good([0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0], &[]).len(), 8, "only the header");
}

#[test]
fn lba_status_near_the_end_of_all_numbers_is_refused() {
    let world = World::small();
    let out = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE);
    for lba in [2048, 2049, 1 << 63, u64::MAX] {
        assert_eq!(lba_status(&world, lba, 24), Err(out));
    }
}

#[test]
fn a_thick_disk_is_mapped_wherever_one_looks() {
    let length_bytes = (5 << 32) * 512;
    let world = World::new(Geometry { length_bytes, discards: false, ..SMALL }, true);
    let whole = u32::MAX;
    let expected = [(3, whole, 0), (3 + u64::from(whole), whole, 0)];
    assert_eq!(lba_status(&world, 3, 40).unwrap(), expected, "a descriptor holds no more");
    assert_eq!(world.store.take_log(), []);
}

#[test]
fn an_atomic_write_is_one_write_or_none() {
    let world = World::new(Geometry { atomic_write_bytes: 2048, ..SMALL }, true);
    assert_eq!(world.good(build::inquiry(Some(0xb0), 64), &[])[44..48], [0, 0, 0, 4]);
    world.good([0x9c, 0x08, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0], &[3; 2048]);
    assert_eq!(world.store.take_log(), [(Op::Write, 1024, 2048), (Op::Flush, 0, 0)]);
    let long = world.bad([0x9c, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0], &[3; 2560]);
    assert_eq!(long, Sense::invalid_field_in_cdb(12, None));
    let out = world.bad([0x9c, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 4, 0, 0], &[3; 2048]);
    assert_eq!(out, Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE));
    let torn = World::new(Geometry { atomic_write_bytes: 0, ..SMALL }, true);
    let unknown = torn.bad([0x9c, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0], &[3; 512]);
    assert_eq!(unknown.additional, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    assert_eq!(operation_code::WRITE_ATOMIC_16, 0x9c);
}

#[test]
fn media_that_a_reset_has_given_free_are_locked_again_for_who_asks_again() {
    let world = removable();
    world.establish(OTHER);
    world.run(OTHER, build::test_unit_ready(), &[]);
    world.units.lock_media(OTHER, true);
    let unit = world.units.get(lun(0)).unwrap();
    assert!(unit.is_removal_prevented());
    assert!(world.units.logical_unit_reset(lun(0)));
    assert!(!unit.is_removal_prevented(), "SBC-4 5.14: a reset ends it");
    world.units.lock_media(OTHER, true);
    assert!(unit.is_removal_prevented());
    world.units.lock_media(OTHER, false);
    assert!(!unit.is_removal_prevented());
}

#[test]
fn who_has_never_locked_all_media_gives_none_free() {
    let world = removable();
    world.establish(OTHER);
    world.run(OTHER, build::test_unit_ready(), &[]);
    world.run(OTHER, PREVENT, &[]);
    world.units.lock_media(OTHER, false);
    assert_eq!(world.bad(EJECT, &[]), PREVENTED);
}

#[test]
fn media_that_a_reset_has_given_free_stay_free_when_a_nexus_goes_over_to_another_part() {
    let world = removable();
    let part = LogicalUnits::new();
    let disk = world.units.get(lun(0)).unwrap();
    part.add_shared(lun(0), Arc::clone(&disk)).unwrap();
    world.establish(OTHER);
    world.run(OTHER, build::test_unit_ready(), &[]);
    world.units.lock_media(OTHER, true);
    assert!(world.units.logical_unit_reset(lun(0)));
    world.units.hand_over(&part, OTHER);
    assert!(!disk.is_removal_prevented());
}

#[test]
fn whose_commands_are_preempted_and_aborted_locks_no_medium_any_longer() {
    let world = removable();
    [NEXUS, OTHER].iter().for_each(|nexus| {
        world.establish(*nexus);
        drop(world.run(*nexus, build::test_unit_ready(), &[]));
    });
    let register = |nexus, key: u8| {
        let mut list = [0; 24];
        list[15] = key;
        assert_eq!(world.run(nexus, [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list).status, Status::Good);
    };
    register(NEXUS, 1);
    register(OTHER, 2);
    assert_eq!(world.run(OTHER, PREVENT, &[]).status, Status::Good);
    assert_eq!(world.bad(EJECT, &[]), PREVENTED);
    let mut list = [0; 24];
    (list[7], list[15]) = (1, 2);
    for (action, is_free) in [(4, false), (5, true)] {
        // The first, PREEMPT, ends no commands, and leaves what they have done.
        assert_eq!(world.run(NEXUS, [0x5f, action, 3, 0, 0, 0, 0, 0, 24, 0], &list).status, Status::Good, "{action}");
        assert_eq!(world.run(NEXUS, EJECT, &[]).status == Status::Good, is_free, "{action}");
        assert_eq!(world.run(OTHER, build::test_unit_ready(), &[]).status, Status::CheckCondition, "it is told");
        register(OTHER, 2);
    }
}
