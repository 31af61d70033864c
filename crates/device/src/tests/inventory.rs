use std::sync::Arc;

use sanwire_core::Instant;
use sanwire_core::limits::LUNS_MAX;
use sanwire_scsi::{AdditionalSense, Cdb, Extent, Sense, SenseKey, Status, Task, build, report};
use sanwire_store::Geometry;
use sanwire_store_file::blocking;

use crate::testing::{NEXUS, OTHER, SMALL, TestStore, World, disk, lun, sense, task};
use crate::{AddError, LogicalUnit, LogicalUnits, UnitError, UnitOptions};

fn attention(additional: AdditionalSense) -> Option<Sense> {
    Some(Sense::new(SenseKey::UnitAttention, additional))
}

/// What TEST UNIT READY tells this nexus.
fn told(world: &World, nexus: sanwire_core::NexusId) -> Option<Sense> {
    let reply = world.run(nexus, build::test_unit_ready(), &[]);
    (reply.status != Status::Good).then(|| sense(&reply))
}

fn at(number: Option<u16>, cdb: Cdb) -> Task {
    Task { lun: number.map(lun), ..task(cdb, &[]) }
}

#[test]
fn a_unit_that_is_not_there_says_so() {
    let world = World::small();
    let nobody = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    for number in [Some(1), None] {
        let run = |cdb| world.run_task(NEXUS, at(number, cdb));
        assert_eq!(run(build::inquiry(None, 96)).data_in.unwrap().to_vec()[0], 0x7f);
        assert_eq!(Sense::parse(&run(build::request_sense(18)).data_in.unwrap().to_vec()), Some(nobody));
        let read = build::read_16(Extent { lba: 0, blocks: 1 });
        for cdb in [build::test_unit_ready(), read, build::report_luns(256), Cdb::from([0xff])] {
            assert_eq!(sense(&run(cdb)), nobody);
        }
    }
}

#[test]
fn the_list_is_told_even_without_unit_zero() {
    let world = World::small();
    world.units.add(lun(300), disk("b", TestStore::new(SMALL), true)).unwrap();
    assert_eq!(report::parse_luns(&world.good(build::report_luns(256), &[])), Ok(vec![lun(0), lun(300)]));
    assert_eq!(world.good(build::report_luns(4), &[]), [0, 0, 0, 16]);
    assert_eq!(world.good([0xa0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[]), [0; 8], "no well-known units");
    world.establish(NEXUS);
    world.units.remove(lun(0)).unwrap();
    assert_eq!(report::parse_luns(&world.good(build::report_luns(256), &[])), Ok(vec![lun(300)]));
    let told = || world.run_task(NEXUS, at(Some(300), build::test_unit_ready())).status;
    assert_eq!((told(), told()), (Status::CheckCondition, Status::Good), "power on only: it has read the list");
}

#[test]
fn each_unit_is_listed_once_whatever_the_room_for_the_list() {
    let world = World::small();
    for number in [7, 300, 2, 16_383] {
        world.units.add(lun(number), disk(&format!("d{number}"), TestStore::new(SMALL), true)).unwrap();
    }
    let whole = world.good(build::report_luns(512), &[]);
    assert_eq!(report::parse_luns(&whole), Ok([0, 2, 7, 300, 16_383].map(lun).to_vec()));
    for allocation_bytes in 0..64 {
        let cut = world.good(build::report_luns(allocation_bytes), &[]);
        assert_eq!(cut, whole[..whole.len().min(allocation_bytes as usize)], "{allocation_bytes}");
    }
}

#[test]
fn a_store_may_grow_and_shrink() {
    let world = World::small();
    world.store.set_length(2 << 20);
    assert_eq!(world.good(build::read_16(Extent { lba: 4095, blocks: 1 }), &[]).len(), 512);
    world.store.set_length(512);
    let out = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE);
    assert_eq!(world.bad(build::read_16(Extent { lba: 0, blocks: 2 }), &[]), out);
    world.store.set_length(0);
    for cdb in [build::test_unit_ready(), build::read_capacity_16(32), build::read_16(Extent { lba: 0, blocks: 0 })] {
        assert_eq!(world.bad(cdb, &[]).key, SenseKey::NotReady);
    }
}

#[test]
fn changes_of_the_list_are_told_once() {
    let world = World::small();
    for nexus in [NEXUS, OTHER] {
        world.establish(nexus);
        world.establish(nexus);
        assert_eq!(told(&world, nexus), attention(AdditionalSense::POWER_ON_OR_RESET_OCCURRED));
        assert_eq!(told(&world, nexus), None);
    }
    world.units.add(lun(1), disk("b", TestStore::new(SMALL), true)).unwrap();
    world.good(build::inquiry(None, 96), &[]);
    assert_eq!(told(&world, NEXUS), attention(AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED));
    assert_eq!(told(&world, NEXUS), None);
    world.run(OTHER, build::report_luns(256), &[]);
    assert_eq!(told(&world, OTHER), None, "it has read the list");
    world.run_task(NEXUS, at(Some(1), build::inquiry(Some(0x83), 255)));
    let reply = world.run_task(NEXUS, at(Some(1), build::test_unit_ready()));
    assert_eq!(Some(sense(&reply)), attention(AdditionalSense::POWER_ON_OR_RESET_OCCURRED), "a new unit");
    world.units.remove(lun(1)).unwrap();
    assert_eq!(told(&world, NEXUS), attention(AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED));
}

/// However many commands were on their way to the unit that had the number before.
#[test]
fn a_number_that_has_passed_to_another_unit_is_nobodys_until_it_was_asked_who_has_it() {
    let world = World::small();
    world.establish(NEXUS);
    told(&world, NEXUS);
    let store = TestStore::new(SMALL);
    world.units.remove(lun(0)).unwrap();
    world.units.add(lun(0), disk("b", store.clone(), true)).unwrap();
    world.establish(OTHER);
    let write = |nexus| world.run(nexus, build::write_16(Extent { lba: 0, blocks: 1 }, false), &[7; 512]);
    let nobody = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    for _ in 0..3 {
        assert_eq!(sense(&write(NEXUS)), nobody);
        assert_eq!(
            Sense::parse(&world.run(NEXUS, build::request_sense(18), &[]).data_in.unwrap().to_vec()),
            Some(nobody)
        );
        // Neither names the unit.
        world.run(NEXUS, build::inquiry(None, 96), &[]);
        world.run(NEXUS, build::report_luns(256), &[]);
    }
    assert_eq!(store.bytes(0, 1), [0]);
    assert_eq!(Some(sense(&write(OTHER))), attention(AdditionalSense::POWER_ON_OR_RESET_OCCURRED));
    assert_eq!(write(OTHER).status, Status::Good, "who has come after it was never told of another");
    assert_eq!(sense(&write(NEXUS)), nobody);
    world.run(NEXUS, build::inquiry(Some(0x83), 255), &[]);
    assert_eq!(Some(sense(&write(NEXUS))), attention(AdditionalSense::POWER_ON_OR_RESET_OCCURRED));
    assert_eq!(write(NEXUS).status, Status::Good);
}

#[test]
fn who_is_handed_over_finds_no_other_unit_under_a_number_either() {
    let (whole, other) = (World::small(), World::small());
    whole.establish(NEXUS);
    told(&whole, NEXUS);
    whole.units.add_shared(lun(1), other.units.get(lun(0)).unwrap()).unwrap();
    let stays = whole.units.get(lun(0)).unwrap();
    // There each has the other's number.
    other.units.add_shared(lun(1), stays).unwrap();
    whole.units.hand_over(&other.units, NEXUS);
    let nobody = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    for number in [0, 1] {
        let write = at(Some(number), build::write_16(Extent { lba: 0, blocks: 1 }, false));
        assert_eq!(sense(&other.run_task(NEXUS, write)), nobody, "unit {number}");
    }
}

#[test]
fn a_reset_is_told_to_everybody() {
    let world = World::small();
    for nexus in [NEXUS, OTHER] {
        world.establish(nexus);
        told(&world, nexus);
    }
    assert!(world.units.logical_unit_reset(lun(0)));
    for nexus in [NEXUS, OTHER] {
        assert_eq!(told(&world, nexus), attention(AdditionalSense::BUS_DEVICE_RESET_FUNCTION_OCCURRED));
    }
    world.units.get(lun(0)).unwrap().capacity_changed();
    world.units.nexus_lost(OTHER);
    assert_eq!(told(&world, NEXUS), attention(AdditionalSense::CAPACITY_DATA_HAS_CHANGED));
    assert_eq!(told(&world, OTHER), None, "nobody is told any more");
    assert!(!world.units.logical_unit_reset(lun(9)));
}

#[test]
fn a_name_that_two_units_have_names_neither() {
    let world = World::small();
    let page = world.good(build::inquiry(Some(0x83), 255), &[]);
    let names = sanwire_scsi::DeviceIdentification::parse(&page).unwrap().designators;
    let of_unit: Vec<_> = names.iter().filter(|name| name.association == 0).collect();
    let found = |units: &LogicalUnits| of_unit.iter().filter(|name| units.find(name).is_some()).count();
    assert_eq!((of_unit.len(), found(&world.units)), (5, 5));
    world.units.add(lun(1), disk("vol", TestStore::new(SMALL), true)).unwrap();
    assert_eq!(found(&world.units), 0);
    let part = LogicalUnits::part_of(Arc::new(LogicalUnits::new()));
    assert_eq!(found(&part), 0);
    world.units.remove(lun(0)).unwrap();
    assert_eq!(found(&world.units), 5, "the other one is meant now");
    world.units.remove(lun(1)).unwrap();
    assert_eq!(found(&world.units), 0);
}

#[test]
fn a_part_finds_what_it_shows_by_its_designators_and_nothing_else() {
    let whole = Arc::new(LogicalUnits::new());
    let shown = whole.add(lun(3), disk("shown", TestStore::new(SMALL), true)).unwrap();
    let part = LogicalUnits::part_of(Arc::clone(&whole));
    let uuid = sanwire_scsi::vpd::Designator::of_uuid(shown.identity().uuid());
    assert!(whole.find(&uuid).is_some() && part.find(&uuid).is_none());
    part.show_all();
    assert!(part.find(&uuid).is_some_and(|found| Arc::ptr_eq(&found, &shown)));
}

#[test]
fn the_inventory_is_bounded() {
    let world = World::small();
    let store = TestStore::new(SMALL);
    let add = |number| world.units.add(lun(number), disk("x", store.clone(), true)).map(|_| ());
    assert_eq!(add(0), Err(AddError::Occupied(lun(0))));
    for number in 1..LUNS_MAX as u16 {
        add(number).unwrap();
    }
    assert_eq!(add(LUNS_MAX as u16), Err(AddError::Full));
    assert_eq!(world.units.iter().len(), LUNS_MAX);
    assert_eq!(world.good(build::report_luns(1 << 18), &[]).len(), 8 + 8 * LUNS_MAX);
}

#[test]
fn a_command_outlives_its_disk_in_the_inventory() {
    let world = World::small();
    let crate::Progress::Store(execution, request) =
        world.begin(NEXUS, task(build::read_16(Extent { lba: 0, blocks: 1 }), &[]))
    else {
        panic!("a read goes to the store");
    };
    world.units.remove(lun(0)).unwrap();
    let completion = blocking::run(&**execution.store(), request);
    let crate::Progress::Done(reply) = world.units.resume(execution, completion, &world.memory) else { unreachable!() };
    assert_eq!(reply.data_in.unwrap().len(), 512);
}

#[test]
fn impossible_stores_are_refused() {
    let new = |geometry| {
        let identity = sanwire_scsi::Identity::new("x", [0; 16]).unwrap();
        LogicalUnit::new(identity, TestStore::new(geometry), UnitOptions::default()).map(|_| ())
    };
    assert_eq!(new(Geometry { block_bytes: 520, ..SMALL }), Err(UnitError::BlockSize(520)));
    assert_eq!(new(Geometry { block_bytes: 8192, ..SMALL }), Err(UnitError::BlockSize(8192)));
    assert_eq!(new(Geometry { block_bytes: 0, ..SMALL }), Err(UnitError::BlockSize(0)));
    assert_eq!(new(Geometry { length_bytes: 511, ..SMALL }), Err(UnitError::Empty(512)));
}

/// Readers never see a torn inventory, and each is told of the change.
#[test]
fn the_inventory_changes_under_running_commands() {
    let world = World::small();
    let nexuses = [1, 2, 65].map(sanwire_core::NexusId);
    nexuses.iter().for_each(|&nexus| world.establish(nexus));
    std::thread::scope(|scope| {
        for nexus in nexuses {
            let world = &world;
            scope.spawn(move || {
                let mut told = 0;
                for _ in 0..2000 {
                    let reply = world.run(nexus, build::read_16(Extent { lba: 5, blocks: 1 }), &[]);
                    match reply.status {
                        Status::Good => assert_eq!(reply.data_in.map(|data| data.len()), Some(512)),
                        _ => {
                            assert_eq!(sense(&reply).key, SenseKey::UnitAttention);
                            told += 1;
                        }
                    }
                }
                assert!(told >= 1, "power on at least");
            });
        }
        for _ in 0..50 {
            world.units.add(lun(1), disk("b", TestStore::new(SMALL), true)).unwrap();
            world.units.remove(lun(1)).unwrap();
        }
    });
    for nexus in nexuses {
        assert!(std::iter::repeat_with(|| told(&world, nexus)).take(4).any(|attention| attention.is_none()));
        assert_eq!(told(&world, nexus), None);
    }
}

/// What is refused in any case takes no place of those who may change something.
#[test]
fn who_may_only_read_leaves_resets_and_changes_of_mode_pages_to_others() {
    let world = World::small();
    world.units.set_read_only(true);
    for _ in 0..1000 {
        assert_eq!(sense(&world.run(NEXUS, build::mode_select_6(24), &[0; 24])).key, SenseKey::DataProtect);
        assert!(world.units.may_reset(NEXUS, lun(0), Instant::ZERO).is_none());
    }
    world.units.set_read_only(false);
    assert!(world.units.may_reset(NEXUS, lun(0), Instant::ZERO).is_some());
}

#[test]
fn a_unit_is_found_by_its_name_wherever_it_is() {
    let world = World::small();
    let whole = Arc::new(LogicalUnits::new());
    let part = LogicalUnits::part_of(Arc::clone(&whole));
    let unit = |name: &str| Arc::new(disk(name, TestStore::new(SMALL), true));
    let number = |units: &LogicalUnits, name: &str| units.find_named(name).map(|(lun, _)| lun.number());
    let (one, other) = (unit("one"), unit("other"));
    whole.change(&[], vec![(lun(0), Arc::clone(&one)), (lun(300), Arc::clone(&other))]).unwrap();
    assert_eq!(["one", "other", "none"].map(|name| number(&whole, name)), [Some(0), Some(300), None]);
    assert!(Arc::ptr_eq(&whole.find_named("other").unwrap().1, &other));
    part.show(None, |unit| unit.identity().name() == "other");
    assert_eq!(["one", "other"].map(|name| number(&part, name)), [None, Some(300)]);
    // They change places, and another unit has the name of one of them.
    whole.change(&[lun(0), lun(300)], vec![(lun(300), one), (lun(1), unit("other"))]).unwrap();
    assert_eq!(["one", "other"].map(|name| number(&whole, name)), [Some(300), Some(1)]);
    assert!(!Arc::ptr_eq(&whole.find_named("other").unwrap().1, &other));
    assert_eq!(
        [0, 1].map(|reserved| whole.free_numbers(|free| free == lun(reserved)).take(2).collect::<Vec<_>>()),
        [[2, 3], [0, 2]].map(|free| free.map(lun).to_vec())
    );
    whole.remove(lun(1)).unwrap();
    assert_eq!(number(&whole, "other"), None);
    assert_eq!(number(&world.units, "one"), None, "of another target");
}
