use sanwire_scsi::mode::{ModeData, caching_parameters};
use sanwire_scsi::vpd::{BlockCharacteristics, BlockLimits, Provisioning};
use sanwire_scsi::{
    AdditionalSense, Capacity, CommandSet, DeviceIdentification, Extent, Features, ModeForm, PageControl, Sense,
    SenseKey, StandardInquiry, Status, build, operation_code,
};
use sanwire_store::{ErrorKind, Geometry};

use crate::testing::{NEXUS, OTHER, Op, SMALL, UUID, World, sense, task};

#[test]
fn a_disk_introduces_itself() {
    let world = World::small();
    assert!(StandardInquiry::parse(&world.good(build::inquiry(None, 96), &[])).unwrap().is_disk());
    assert_eq!(world.good(build::inquiry(None, 5), &[]), [0, 0, 6, 0x12, 91], "cut to the allocation");
    let pages = world.good(build::inquiry(Some(0), 255), &[]);
    for &page in &pages[4..] {
        let bytes = world.good(build::inquiry(Some(page), 1024), &[]);
        assert_eq!((bytes[1], bytes.len()), (page, 4 + usize::from(u16::from_be_bytes([bytes[2], bytes[3]]))));
    }
    assert_eq!(world.bad(build::inquiry(Some(0xb9), 255), &[]), Sense::invalid_field_in_cdb(2, None));
    let page = DeviceIdentification::parse(&world.good(build::inquiry(Some(0x83), 255), &[])).unwrap();
    let identity = page.identity().unwrap();
    assert_eq!((identity.name(), identity.uuid()), ("vol", UUID));
}

#[test]
fn limits_follow_from_the_geometry() {
    let world = World::new(Geometry { block_bytes: 4096, ..SMALL }, true);
    let limits = BlockLimits::parse(&world.good(build::inquiry(Some(0xb0), 255), &[])).unwrap();
    assert_eq!((limits.maximum_transfer, limits.maximum_write_same, limits.write_same_not_zero), (768, 0, false));
    assert_eq!((limits.maximum_unmap, limits.maximum_unmap_descriptors), (1 << 20, 256));
    assert_eq!((limits.optimal_unmap_granularity, limits.unmap_alignment), (1, Some(0)));
    let characteristics = world.good(build::inquiry(Some(0xb1), 255), &[]);
    assert_eq!(
        BlockCharacteristics::parse(&characteristics),
        Ok(BlockCharacteristics { reads_after_block_erase: true, ..BlockCharacteristics::NON_ROTATING })
    );
    let provisioning = Provisioning::parse(&world.good(build::inquiry(Some(0xb2), 255), &[])).unwrap();
    assert!(provisioning.unmap && provisioning.reads_zeroes);
}

#[test]
fn capacity_is_told_in_both_sizes() {
    let world = World::small();
    assert_eq!(world.good([0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]), [0, 0, 7, 0xff, 0, 0, 2, 0]);
    let capacity = Capacity::parse_sixteen(&world.good(build::read_capacity_16(32), &[])).unwrap();
    assert_eq!((capacity.blocks, capacity.block_bytes, capacity.physical_block_exponent), (2048, 512, 3));
    assert!(capacity.provisioning_management && capacity.reads_zeroes);
    assert_eq!(world.good(build::read_capacity_16(12), &[]).len(), 12);
}

#[test]
fn the_write_cache_is_switched_by_one_and_told_to_the_other() {
    let world = World::small();
    world.establish(NEXUS);
    world.establish(OTHER);
    for nexus in [NEXUS, OTHER] {
        world.run(nexus, build::test_unit_ready(), &[]);
    }
    let mode_sense = build::mode_sense_6(PageControl::Current, 8, 255);
    let told = world.good(mode_sense, &[]);
    let list = caching_parameters(&told[4..], false);
    world.good(build::mode_select_6(list.len() as u8), &list);
    assert_eq!(world.store.take_log(), [(Op::Flush, 0, 0)], "what was cached goes to the medium");
    let told = world.good(mode_sense, &[]);
    assert_eq!(ModeData::parse(ModeForm::Six, &told).unwrap().write_cache(), Some(false));
    let other = sense(&world.run(OTHER, build::test_unit_ready(), &[]));
    assert_eq!(other, Sense::new(SenseKey::UnitAttention, AdditionalSense::MODE_PARAMETERS_CHANGED));
    world.good(build::mode_select_6(list.len() as u8), &list);
    assert_eq!(world.run(OTHER, build::test_unit_ready(), &[]).status, Status::Good, "nothing has changed");
}

#[test]
fn mode_select_is_checked() {
    let world = World::small();
    let without_pf = [0x15, 0x00, 0, 0, 4, 0];
    assert_eq!(world.bad(without_pf, &[0; 4]), Sense::invalid_field_in_cdb(1, Some(4)));
    let too_short = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(world.bad(build::mode_select_6(24), &[0; 23]), too_short);
    world.good(build::mode_select_6(0), &[]);
}

#[test]
fn the_control_page_changes_sense_data_and_protects() {
    let world = World::small();
    let mut page = world.good(build::mode_sense_6(PageControl::Current, 0x0a, 255), &[]);
    page[0] = 0;
    page[6] |= 0x04; // D_SENSE
    page[8] |= 0x08; // SWP
    world.good(build::mode_select_6(page.len() as u8), &page);
    let reply = world.run(NEXUS, build::write_16(Extent { lba: 0, blocks: 1 }, false), &[0; 512]);
    assert_eq!(reply.sense, [0x72, 7, 0x27, 2, 0, 0, 0, 0]);
    assert!(world.units.logical_unit_reset(crate::testing::lun(0)));
    world.good(build::write_16(Extent { lba: 0, blocks: 1 }, false), &[0; 512]);
}

#[test]
fn a_stopped_unit_answers_but_does_not_serve() {
    let world = World::small();
    world.good(build::start_stop_unit(false), &[]);
    assert_eq!(world.store.take_log(), [(Op::Flush, 0, 0)]);
    let stopped = Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_INITIALIZING_COMMAND_REQUIRED);
    for cdb in [build::test_unit_ready(), build::read_16(Extent { lba: 0, blocks: 1 }), build::read_capacity_16(32)] {
        assert_eq!(world.bad(cdb, &[]), stopped);
    }
    assert_eq!(Sense::parse(&world.good(build::request_sense(18), &[])), Some(stopped));
    world.good(build::inquiry(None, 96), &[]);
    world.good(build::start_stop_unit(true), &[]);
    world.good(build::test_unit_ready(), &[]);
    world.store.fail(Op::Flush, ErrorKind::Unwritable);
    world.bad(build::start_stop_unit(false), &[]);
    world.good(build::test_unit_ready(), &[]);
}

#[test]
fn request_sense_tells_in_its_data() {
    let world = World::small();
    assert_eq!(world.good(build::request_sense(18), &[]), [0x70, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(world.good([3, 1, 0, 0, 252, 0], &[]), [0x72, 0, 0, 0, 0, 0, 0, 0], "descriptor format");
    world.establish(NEXUS);
    let attention = Sense::new(SenseKey::UnitAttention, AdditionalSense::POWER_ON_OR_RESET_OCCURRED);
    assert_eq!(Sense::parse(&world.good(build::request_sense(18), &[])), Some(attention));
    world.good(build::test_unit_ready(), &[]);
}

#[test]
fn removal_is_prevented_per_nexus() {
    let world = World::small();
    world.establish(NEXUS);
    world.bad(build::test_unit_ready(), &[]);
    let disk = world.units.get(crate::testing::lun(0)).unwrap();
    world.good([0x1e, 0, 0, 0, 1, 0], &[]);
    assert!(disk.is_removal_prevented());
    world.units.logical_unit_reset(crate::testing::lun(0));
    assert!(!disk.is_removal_prevented());
}

/// A service action beyond those that there are once led out of a table, in another target.
#[test]
fn every_operation_code_and_service_action_can_be_asked_about() {
    let world = World::small();
    world.establish(NEXUS);
    world.bad(build::test_unit_ready(), &[]);
    for (options, code) in (0..=7).flat_map(|options| (0..=u8::MAX).map(move |code| (options, code))) {
        for action in (0..=0x21).chain([0xff, 0x100, 0xffff]) {
            let [high, low] = u16::to_be_bytes(action);
            let reply = world.run(NEXUS, [0xa3, 0x0c, options, code, high, low, 0, 0, 2, 0, 0, 0], &[]);
            let is_told = matches!(reply.status, Status::Good) && reply.data_in.is_some_and(|data| data.len() >= 4);
            assert!(is_told || reply.status == Status::CheckCondition, "options {options}, {code:02x}h/{action:04x}h");
        }
    }
}

/// The list of operations and the parser are one table; this holds the device to it too.
#[test]
fn every_reported_operation_is_executed() {
    let world = World::small();
    world.establish(NEXUS);
    world.bad(build::test_unit_ready(), &[]);
    let list = world.good([0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0], &[]);
    assert_eq!(list.len(), 4 + 8 * CommandSet::disk(Features::ALL).operations().count());
    for entry in list[4..].chunks_exact(8) {
        let mut cdb = vec![0; usize::from(entry[7])];
        (cdb[0], cdb[1]) = (entry[0], entry[3]);
        if matches!(entry[0], operation_code::MODE_SENSE_6 | operation_code::MODE_SENSE_10) {
            cdb[2] = 0x3f;
        }
        if entry[0] == operation_code::LOG_SENSE {
            cdb[2] = 0x40;
        }
        if entry[0] == operation_code::MAINTENANCE_IN {
            cdb[9] = 16;
        }
        let cdb = sanwire_scsi::Cdb::new(&cdb).unwrap();
        let reply = world.run_task(NEXUS, task(cdb, &vec![0; 256 * 512]));
        let refuses = [
            operation_code::WRITE_SAME_10,          // too much data,
            operation_code::WRITE_SAME_16,          // too much,
            operation_code::COMPARE_AND_WRITE,      // too much data,
            operation_code::RECEIVE_COPY_RESULTS,   // no copy,
            operation_code::SANITIZE,               // no pattern,
            operation_code::PERSISTENT_RESERVE_OUT, // no parameter list
        ];
        let is_abort =
            (entry[0], entry[3]) == (operation_code::EXTENDED_COPY, operation_code::COPY_OPERATION_ABORT_ACTION);
        match reply.status {
            Status::CheckCondition if is_abort => {}
            Status::CheckCondition => assert!(refuses.contains(&entry[0]), "{cdb:?} {:02x?}", reply.sense),
            Status::ConditionMet => {
                assert!(matches!(entry[0], operation_code::PRE_FETCH_10 | operation_code::PRE_FETCH_16), "{cdb:?}");
            }
            status => assert_eq!(status, Status::Good, "{cdb:?}"),
        }
        world.run(NEXUS, build::start_stop_unit(true), &[]);
        world.good([operation_code::RELEASE_6, 0, 0, 0, 0, 0], &[]);
    }
}
