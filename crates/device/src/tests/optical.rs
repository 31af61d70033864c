use std::sync::Arc;

use sanwire_core::DeviceType;
use sanwire_scsi::mode::ModeData;
use sanwire_scsi::{AdditionalSense, Identity, ModeForm, Piece, Sense, SenseKey, StandardInquiry, Status, Task, build};
use sanwire_store::{ErrorKind, Geometry};
use sanwire_store_file::blocking;

use crate::testing::{NEXUS, OTHER, Op, SMALL, TestStore, UUID, World, lun, sense, task};
use crate::{LogicalUnit, MediumError, Progress, UnitError, UnitOptions};

pub(super) const EJECT: [u8; 6] = [0x1b, 0, 0, 0, 2, 0];
const LOAD: [u8; 6] = [0x1b, 0, 0, 0, 3, 0];
pub(super) const TEST_UNIT_READY: [u8; 6] = [0; 6];
pub(super) const READ_CAPACITY: [u8; 10] = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const CHANGED: Sense = Sense::new(SenseKey::UnitAttention, AdditionalSense::NOT_READY_TO_READY_CHANGE);
const TRAY_OPEN: Sense = Sense::new(SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT_TRAY_OPEN);

fn image(length_bytes: u64) -> Arc<TestStore> {
    TestStore::new(Geometry { length_bytes, ..SMALL })
}

fn drive(image: Arc<TestStore>) -> Result<LogicalUnit, UnitError> {
    let options = UnitOptions { device_type: DeviceType::Optical, ..UnitOptions::default() };
    LogicalUnit::new(Identity::new("cd0", UUID).unwrap(), image, options)
}

/// A drive with a disc of 512 blocks, the first of which has this byte.
pub(super) fn world(byte: u8) -> World {
    world_of(SMALL.length_bytes, byte)
}

pub(super) fn world_of(length_bytes: u64, byte: u8) -> World {
    let world = World::new(Geometry { length_bytes, ..SMALL }, true);
    world.store.set_byte(0, byte);
    world.units.remove(lun(0)).unwrap();
    world.units.add(lun(0), drive(world.store.clone()).unwrap()).unwrap();
    world
}

/// Another disc comes in, whoever has locked the tray.
pub(super) fn change_disc(world: &World, length_bytes: u64) -> Arc<TestStore> {
    let (unit, disc) = (world.units.get(lun(0)).unwrap(), image(length_bytes));
    unit.eject(true).unwrap();
    unit.load(Some(disc.clone())).unwrap();
    disc
}

pub(super) fn read(blocks: u8) -> [u8; 10] {
    [0x28, 0, 0, 0, 0, 0, 0, 0, blocks, 0]
}

pub(super) fn event(world: &World) -> (u8, u8) {
    let bytes = world.good([0x4a, 1, 0, 0, 0x10, 0, 0, 0, 8, 0], &[]);
    assert_eq!(bytes[..4], [0, 6, 4, 0x14]);
    (bytes[4], bytes[5])
}

#[test]
fn a_drive_introduces_itself_and_its_disc_is_read() {
    let world = world(7);
    let inquiry = StandardInquiry::parse(&world.good(build::inquiry(None, 96), &[])).unwrap();
    assert_eq!((inquiry.device_type, inquiry.is_removable, inquiry.is_disk()), (5, true, false));
    assert_eq!(world.good(build::inquiry(Some(0), 96), &[]), [5, 0, 0, 5, 0, 0x80, 0x83, 0x86, 0xc0]);
    assert_eq!(world.good(READ_CAPACITY, &[]), [0, 0, 1, 255, 0, 0, 8, 0]);
    let block = world.good(read(1), &[]);
    assert_eq!((block.len(), block[0], block[1]), (2048, 7, 0));
    let read_12 = [0xa8, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0];
    assert_eq!(world.good(read_12, &[]).len(), 4096);
    let read_cd = [0xbe, 0, 0, 0, 0, 0, 0, 0, 1, 0x10, 0, 0];
    assert_eq!(world.good(read_cd, &[]), block);
    let behind = [0x28, 0, 0, 0, 2, 0, 0, 0, 1, 0];
    assert_eq!(world.bad(behind, &[]).additional, AdditionalSense::LBA_OUT_OF_RANGE);
    assert_eq!(world.good([0x43, 0, 0, 0, 0, 0, 0, 0, 12, 0], &[]).len(), 12);
    let old_format = [0x43, 0, 0, 0, 0, 0, 0, 0, 12, 0x40];
    assert_eq!(world.good(old_format, &[])[..4], [0, 10, 1, 1], "the sessions, asked for as drives of old are");
    assert_eq!(world.good([0x46, 2, 0, 0, 0, 0, 0, 0, 8, 0], &[])[6..], [0, 8], "a CD");
}

#[test]
fn what_only_disks_have_a_drive_has_not() {
    let world = world(0);
    let unknown = Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    for cdb in
        [[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
    {
        assert_eq!(world.bad(cdb, &[0; 512]), unknown, "{cdb:02x?}");
    }
    assert_eq!(world.bad([0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[]), unknown, "SEND KEY");
    assert_eq!(world.bad([0x4a, 0, 0, 0, 0x10, 0, 0, 0, 8, 0], &[]), Sense::invalid_field_in_cdb(1, Some(0)));
}

#[test]
fn mode_pages_tell_of_a_tray_that_locks() {
    let world = world(0);
    world.establish(NEXUS);
    drop(world.run(NEXUS, TEST_UNIT_READY, &[]));
    let lock_state = || {
        let bytes = world.good([0x5a, 0, 0x2a, 0, 0, 0, 0, 0, 128, 0], &[]);
        let page = ModeData::parse(ModeForm::Ten, &bytes).unwrap().pages().next().unwrap();
        (page.code, page.bytes[2] & 0x08, page.bytes[6])
    };
    assert_eq!(lock_state(), (0x2a, 8, 0x29));
    world.good([0x1e, 0, 0, 0, 1, 0], &[]);
    assert_eq!(lock_state(), (0x2a, 8, 0x2b));
    let mut list = vec![0; 8];
    list.extend([0x0a, 10, 4, 0x10, 0, 0x40, 0, 0, 0xff, 0xff, 0, 0]);
    world.good([0x55, 0x10, 0, 0, 0, 0, 0, 0, 20, 0], &list);
    assert_eq!(world.run(NEXUS, [0xff; 6], &[]).sense[0], 0x72, "descriptor format");
    list[10] = 0;
    list[12] = 8;
    let refused = world.bad([0x55, 0x10, 0, 0, 0, 0, 0, 0, 20, 0], &list);
    assert_eq!(refused, Sense::invalid_field_in_parameters(12, Some(3)), "no write protection by software");
}

#[test]
fn a_disc_is_ejected_changed_and_found() {
    let world = world(1);
    world.establish(NEXUS);
    world.establish(OTHER);
    [NEXUS, OTHER].iter().for_each(|nexus| drop(world.run(*nexus, TEST_UNIT_READY, &[])));
    assert_eq!(event(&world), (0, 2));
    let unit = world.units.get(lun(0)).unwrap();
    let second = image(4096);
    second.set_byte(0, 2);
    assert_eq!(unit.load(Some(second.clone())), Err(MediumError::NotEjected));
    world.good([0x1e, 0, 0, 0, 1, 0], &[]);
    let prevented = Sense::new(SenseKey::IllegalRequest, AdditionalSense::MEDIUM_REMOVAL_PREVENTED);
    assert_eq!(sense(&world.run(OTHER, EJECT, &[])), prevented);
    assert_eq!(unit.eject(false), Err(MediumError::Prevented));
    assert_eq!(event(&world), (1, 2), "who has locked it is asked to let go");
    assert_eq!(event(&world), (0, 2), "once");
    world.good([0x1e, 0, 0, 0, 0, 0], &[]);
    world.good(EJECT, &[]);
    assert_eq!(
        (event(&world), world.bad(TEST_UNIT_READY, &[]), world.bad(read(1), &[])),
        ((3, 1), TRAY_OPEN, TRAY_OPEN)
    );
    assert_eq!(world.good([0x46, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[])[6..], [0, 0], "no current profile");
    unit.load(Some(second)).unwrap();
    assert_eq!(event(&world), (2, 2), "told whatever attention is pending");
    for nexus in [NEXUS, OTHER] {
        assert_eq!(sense(&world.run(nexus, READ_CAPACITY, &[])), CHANGED);
    }
    assert_eq!(world.good(READ_CAPACITY, &[]), [0, 0, 0, 1, 0, 0, 8, 0]);
    assert_eq!(world.good(read(1), &[])[0], 2);
}

#[test]
fn the_same_disc_comes_back_when_the_tray_closes() {
    let world = world(3);
    world.establish(NEXUS);
    drop(world.run(NEXUS, TEST_UNIT_READY, &[]));
    world.good(EJECT, &[]);
    world.good(EJECT, &[]);
    assert_eq!(world.run(NEXUS, LOAD, &[]).status, Status::Good);
    assert_eq!(world.bad(TEST_UNIT_READY, &[]).key, SenseKey::UnitAttention, "also for who has closed it");
    assert_eq!(world.good(read(1), &[])[0], 3);
    world.good(LOAD, &[]);
    world.good(TEST_UNIT_READY, &[]);
    let unit = world.units.get(lun(0)).unwrap();
    world.good([0x1e, 0, 0, 0, 1, 0], &[]);
    unit.eject(true).unwrap();
    assert_eq!(world.bad(TEST_UNIT_READY, &[]), TRAY_OPEN, "by force");
    unit.load(None).unwrap();
    assert_eq!(world.bad(TEST_UNIT_READY, &[]).key, SenseKey::UnitAttention);
}

#[test]
fn images_of_any_length_behave() {
    assert_eq!(drive(image(0)).unwrap_err(), UnitError::Medium(MediumError::Empty));
    assert_eq!(drive(image(1536)).unwrap_err(), UnitError::Medium(MediumError::Empty));
    let world = world(0);
    world.store.set_length(3 * 2048 + 512);
    assert_eq!(world.good(READ_CAPACITY, &[])[..4], [0, 0, 0, 2], "whole blocks only");
    assert_eq!(world.good(read(3), &[]).len(), 3 * 2048);
    assert_eq!(world.bad(read(4), &[]).additional, AdditionalSense::LBA_OUT_OF_RANGE);
    world.store.set_length(512);
    let empty = Sense::new(SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT_TRAY_CLOSED);
    assert_eq!((world.bad(TEST_UNIT_READY, &[]), world.bad(read(1), &[])), (empty, empty), "cut away under the drive");
    let coarse = TestStore::new(Geometry { block_bytes: 4096, ..SMALL });
    assert_eq!(drive(coarse).unwrap_err(), UnitError::Medium(MediumError::BlockSize(4096)));
}

/// Its data may come after its initiator has heard of the other disc, and would be taken for that one's.
#[test]
fn a_read_that_was_under_way_when_the_disc_was_changed_fails() {
    for is_read_before in [true, false] {
        let world = world(1);
        let Progress::Store(execution, request) = world.begin(NEXUS, task(read(1), &[])) else { panic!("it reads") };
        let reply = if is_read_before {
            let completion = blocking::run(&**execution.store(), request);
            change_disc(&world, 4096);
            world.finish(world.units.resume(execution, completion, &world.memory))
        } else {
            change_disc(&world, 4096);
            world.finish(Progress::Store(execution, request))
        };
        assert_eq!(sense(&reply), CHANGED, "{is_read_before}");
    }
}

#[test]
fn a_long_read_is_of_one_disc() {
    const LONG: u64 = 4 << 20;
    let world = world_of(LONG, 1);
    let blocks = (LONG / 2048) as u16;
    let [high, low] = blocks.to_be_bytes();
    let piece = |from_bytes, medium| {
        let piece = Some(Piece { from_bytes, medium, data_out_bytes: 0 });
        let cdb = [0x28, 0, 0, 0, 0, 0, 0, high, low, 0];
        world.run_task(NEXUS, Task { piece, data_in_max_bytes: LONG as u32, ..task(cdb, &[]) })
    };
    let first = piece(0, 0);
    let rest = first.rest.expect("it goes in pieces");
    assert_eq!(first.status, Status::Good);
    let second = piece(rest.from_bytes, rest.medium);
    let further = second.rest.expect("there is more");
    change_disc(&world, LONG);
    assert_eq!(sense(&piece(further.from_bytes, further.medium)), CHANGED);
    assert_eq!(piece(0, 0).status, Status::Good, "what begins now");
}

#[test]
fn a_disc_on_a_store_that_works_comes_after_one_whose_store_is_gone() {
    let world = world(1);
    world.store.fail(Op::Read, ErrorKind::Gone);
    let late = world.begin(NEXUS, task(read(1), &[]));
    world.bad(read(1), &[]);
    let gone = AdditionalSense::NOT_READY_MANUAL_INTERVENTION_REQUIRED;
    assert_eq!(world.bad(TEST_UNIT_READY, &[]).additional, gone);
    change_disc(&world, 4096);
    world.good(TEST_UNIT_READY, &[]);
    let Progress::Store(execution, request) = late else { panic!("it reads") };
    let gone = blocking::run(&*world.store, request);
    world.finish(world.units.resume(execution, gone, &world.memory));
    world.good(TEST_UNIT_READY, &[]);
}

#[test]
fn who_is_asked_to_let_go_hears_of_the_disc_that_has_come_before_too() {
    let world = world(1);
    world.establish(NEXUS);
    assert_eq!(event(&world), (0, 2));
    change_disc(&world, 4096);
    drop(world.run(NEXUS, TEST_UNIT_READY, &[]));
    drop(world.run(NEXUS, TEST_UNIT_READY, &[]));
    world.good([0x1e, 0, 0, 0, 1, 0], &[]);
    let unit = world.units.get(lun(0)).unwrap();
    assert_eq!(unit.eject(false), Err(MediumError::Prevented));
    assert_eq!([event(&world), event(&world), event(&world)], [(2, 2), (1, 2), (0, 2)]);
    assert_eq!(unit.eject(false), Err(MediumError::Prevented));
    unit.eject(true).unwrap();
    assert_eq!([event(&world), event(&world)], [(3, 1), (0, 1)], "it is out already");
}

#[test]
fn a_drive_may_begin_empty() {
    let world = world(0);
    let options = UnitOptions { device_type: DeviceType::Optical, ..UnitOptions::default() };
    let empty = LogicalUnit::empty(Identity::new("cd0", UUID).unwrap(), options).unwrap();
    world.units.remove(lun(0)).unwrap();
    let unit = world.units.add(lun(0), empty).unwrap();
    world.establish(NEXUS);
    drop(world.run(NEXUS, TEST_UNIT_READY, &[]));
    let closed = Sense::new(SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT_TRAY_CLOSED);
    assert_eq!([world.bad(TEST_UNIT_READY, &[]), world.bad(read(1), &[]), world.bad(READ_CAPACITY, &[])], [closed; 3]);
    assert_eq!(event(&world), (0, 0));
    world.good(EJECT, &[]);
    world.good(LOAD, &[]);
    assert_eq!((world.bad(TEST_UNIT_READY, &[]), event(&world)), (closed, (3, 0)), "nothing has come");
    unit.eject(false).unwrap();
    unit.load(Some(image(4096))).unwrap();
    assert_eq!((event(&world), world.bad(TEST_UNIT_READY, &[])), ((2, 2), CHANGED));
    assert_eq!(world.good(read(2), &[]).len(), 4096);
    let disk = LogicalUnit::empty(Identity::new("a", UUID).unwrap(), UnitOptions::default());
    assert_eq!(disk.unwrap_err(), UnitError::Medium(MediumError::Fixed));
}

#[test]
fn a_tray_is_locked_until_the_nexus_is_lost_or_the_drive_reset() {
    let world = world(1);
    world.establish(NEXUS);
    let unit = world.units.get(lun(0)).unwrap();
    let prevent = |nexus| {
        world.establish(nexus);
        drop(world.run(nexus, TEST_UNIT_READY, &[]));
        assert_eq!(world.run(nexus, [0x1e, 0, 0, 0, 1, 0], &[]).status, Status::Good);
    };
    drop(world.run(NEXUS, TEST_UNIT_READY, &[]));
    assert_eq!(event(&world), (0, 2));
    prevent(OTHER);
    let prevented = Sense::new(SenseKey::IllegalRequest, AdditionalSense::MEDIUM_REMOVAL_PREVENTED);
    assert_eq!(world.bad(EJECT, &[]), prevented);
    world.units.nexus_lost(OTHER);
    world.good(EJECT, &[]);
    world.good(LOAD, &[]);
    drop(world.run(NEXUS, TEST_UNIT_READY, &[]));
    assert_eq!(event(&world), (2, 2));
    // A nexus that comes anew, from the same ports or not, has locked nothing.
    world.establish(OTHER);
    drop(world.run(OTHER, TEST_UNIT_READY, &[]));
    assert!(!unit.is_removal_prevented());
    prevent(OTHER);
    assert_eq!((unit.eject(false), event(&world)), (Err(MediumError::Prevented), (1, 2)));
    assert!(world.units.logical_unit_reset(lun(0)));
    assert_eq!(event(&world), (0, 2), "the tray stays in");
    drop(world.run(NEXUS, TEST_UNIT_READY, &[]));
    world.good(EJECT, &[]);
}

/// MMC-6 4.1.7: the tray has no button any more, but for initiators, which hear of it when it is pressed.
#[test]
fn a_persistent_lock_keeps_the_owner_out_and_no_initiator() {
    let world = world(1);
    world.establish(NEXUS);
    world.establish(OTHER);
    [NEXUS, OTHER].iter().for_each(|nexus| drop(world.run(*nexus, TEST_UNIT_READY, &[])));
    assert_eq!(event(&world), (0, 2));
    let unit = world.units.get(lun(0)).unwrap();
    let prevent = |bits| world.good([0x1e, 0, 0, 0, bits, 0], &[]);
    prevent(3);
    assert_eq!((unit.eject(false), event(&world)), (Err(MediumError::Prevented), (1, 2)));
    assert_eq!(world.run(OTHER, EJECT, &[]).status, Status::Good, "it is no lock for initiators");
    assert_eq!(event(&world), (3, 1));
    world.good(LOAD, &[]);
    drop(world.run(NEXUS, TEST_UNIT_READY, &[]));
    assert_eq!(unit.eject(false), Err(MediumError::Prevented), "the next medium is locked too");
    prevent(0);
    assert_eq!(unit.eject(false), Err(MediumError::Prevented), "only PERSISTENT ALLOW ends it");
    prevent(1);
    prevent(2);
    let prevented = Sense::new(SenseKey::IllegalRequest, AdditionalSense::MEDIUM_REMOVAL_PREVENTED);
    assert_eq!(world.bad(EJECT, &[]), prevented, "which ends no other lock");
    prevent(0);
    prevent(3);
    assert!(world.units.logical_unit_reset(lun(0)));
    drop(world.run(NEXUS, TEST_UNIT_READY, &[]));
    assert_eq!(unit.eject(false), Ok(()), "a reset ends both");
    unit.load(None).unwrap();
    drop(world.run(NEXUS, TEST_UNIT_READY, &[]));
    prevent(3);
    world.units.nexus_lost(NEXUS);
    assert_eq!(unit.eject(false), Ok(()), "so does the loss of the nexus");
}

#[test]
fn what_a_read_has_read_need_not_be_kept() {
    let (disk, drive) = (World::small(), world(1));
    let read_16 = [0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    let keys = [0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    assert!(disk.run(NEXUS, read_16, &[]).is_bulk_read && disk.run(NEXUS, keys, &[]).is_bulk_read);
    assert!(drive.run(NEXUS, read(1), &[]).is_bulk_read && drive.run(NEXUS, keys, &[]).is_bulk_read);
    assert!(!drive.run(NEXUS, [0x4a, 1, 0, 0, 0x10, 0, 0, 0, 8, 0], &[]).is_bulk_read, "an event is told once");
    assert!(!disk.run(NEXUS, build::inquiry(None, 96), &[]).is_bulk_read);
}
