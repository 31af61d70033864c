use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::{AdditionalSense, Cdb, Extent, Identity, PageControl, Sense, SenseKey, build, unmap_parameters};
use sanwire_store::{RamStore, Store};

use crate::testing::{NEXUS, OTHER, Op, World, disk, lun};
use crate::{LogicalUnit, UnitOptions};

const LOG_SENSE: [u8; 10] = [0x4d, 0, 0x4c, 0, 0, 0, 0, 0, 255, 0];

/// A world whose unit 0 counts its space: none used, 100 MiB available.
fn counting() -> World {
    let world = World::small();
    world.store.set_space(0, 100);
    world.units.remove(lun(0)).unwrap();
    world.units.add(lun(0), disk("vol", world.store.clone(), true)).unwrap();
    world
}

/// A world whose unit 0 is on a real store in memory.
fn on(store: RamStore) -> World {
    let world = World::small();
    world.units.remove(lun(0)).unwrap();
    let identity = Identity::new("ram", crate::testing::UUID).unwrap();
    let disk = LogicalUnit::new(identity, Arc::new(store) as Arc<dyn Store>, UnitOptions::default()).unwrap();
    world.units.add(lun(0), disk).unwrap();
    world
}

/// MODE SELECT (10) of LBPERE and of thresholds, each with its arming, its resource and its count.
fn select(world: &World, reporting: bool, thresholds: &[(u8, u8, u32)]) {
    let mut list = vec![0; 8];
    list.extend([0x01, 0x0a, 0xc0, 0, 0, 0, 0, u8::from(reporting) << 7, 0, 0, 0, 0]);
    list.extend([0x5c, 0x02, 0, 12 + 8 * thresholds.len() as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for (arming, resource, count) in thresholds {
        list.extend([0x80 | arming, *resource, 0, 0]);
        list.extend(count.to_be_bytes());
    }
    world.good([0x55, 0x10, 0, 0, 0, 0, 0, 0, list.len() as u8, 0], &list);
}

const DECREASING_AVAILABLE: (u8, u8) = (0, 1);
const INCREASING_USED: (u8, u8) = (1, 2);

/// What the next command of a nexus is told, if anything.
fn told(world: &World, nexus: NexusId) -> Option<Sense> {
    Sense::parse(&world.run(nexus, build::test_unit_ready(), &[]).sense)
}

fn reached(descriptor_at: u64) -> Option<Sense> {
    let additional = AdditionalSense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED;
    Some(Sense::new(SenseKey::UnitAttention, additional).with_information(descriptor_at))
}

fn write(lba: u64, blocks: u32) -> (Cdb, Vec<u8>) {
    (build::write_16(Extent { lba, blocks }, false), vec![1; blocks as usize * 512])
}

/// SBC-4 4.7.3.8: the write that reaches a threshold is good; then all are told, once.
#[test]
fn a_write_that_reaches_a_threshold_is_told_to_all() {
    let world = on(RamStore::new(1 << 30, 512));
    for nexus in [NEXUS, OTHER] {
        world.establish(nexus);
        told(&world, nexus);
    }
    select(&world, true, &[(INCREASING_USED.0, INCREASING_USED.1, 2)]);
    assert_eq!(told(&world, OTHER).map(|sense| sense.additional), Some(AdditionalSense::MODE_PARAMETERS_CHANGED));
    let (cdb, data) = write(0, 2048);
    world.good(cdb, &data);
    assert_eq!((told(&world, NEXUS), told(&world, OTHER)), (None, None));
    let (cdb, data) = write(4096, 2048);
    world.good(cdb, &data);
    assert_eq!((told(&world, NEXUS), told(&world, OTHER)), (reached(16), reached(16)));
    let (cdb, data) = write(8192, 2048);
    world.good(cdb, &data);
    assert_eq!((told(&world, NEXUS), told(&world, OTHER)), (None, None), "once");
    let list = unmap_parameters(&[Extent { lba: 0, blocks: 16384 }]).unwrap();
    world.good(build::unmap(list.len() as u16), &list);
    for lba in [0, 4096] {
        let (cdb, data) = write(lba, 2048);
        world.good(cdb, &data);
    }
    assert_eq!(told(&world, NEXUS), reached(16), "space was given back in between");
    assert_eq!(world.good(LOG_SENSE, &[]), [0x0c, 0, 0, 12, 0, 2, 3, 8, 0, 0, 0, 2, 1, 0, 0, 0]);
}

/// SBC-4 6.5.10: the descriptors stand in order, and LBPERE (6.5.8) is over all of them.
#[test]
fn each_resource_has_its_threshold() {
    let world = counting();
    let both = [(DECREASING_AVAILABLE.0, DECREASING_AVAILABLE.1, 10), (INCREASING_USED.0, INCREASING_USED.1, 50)];
    let change = |used_mib, available_mib| {
        world.store.set_space(used_mib, available_mib);
        let (cdb, data) = write(0, 1);
        world.good(cdb, &data);
    };
    select(&world, false, &both);
    world.establish(NEXUS);
    told(&world, NEXUS);
    change(60, 5);
    assert_eq!(told(&world, NEXUS), None, "LBPERE is zero");
    change(0, 100);
    select(&world, true, &both);
    change(49, 11);
    assert_eq!(told(&world, NEXUS), None);
    change(49, 10);
    assert_eq!(told(&world, NEXUS), reached(16));
    change(50, 9);
    assert_eq!(told(&world, NEXUS), reached(24));
    let parameters = [0, 1, 3, 8, 0, 0, 0, 9, 2, 0, 0, 0, 0, 2, 3, 8, 0, 0, 0, 50, 1, 0, 0, 0];
    assert_eq!(world.good(LOG_SENSE, &[]), [&[0x0c, 0, 0, 24][..], &parameters].concat());
    assert_eq!(world.good(build::inquiry(Some(0xb2), 255), &[])[4], 11, "1 MiB");
    world.units.logical_unit_reset(lun(0));
    told(&world, NEXUS);
    change(0, 100);
    change(60, 5);
    assert_eq!(told(&world, NEXUS), None, "thresholds are not kept through a reset");
    let (page, all) = (0x1c, 0xff);
    let sense = [0x5a, 8, page, all, 0, 0, 0, 0, 255, 0];
    assert_eq!(world.good(sense, &[])[8 + 12 + 16..], [0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_disk_that_counts_nothing_has_no_thresholds() {
    let world = World::small();
    assert_eq!(world.good(build::inquiry(Some(0xb2), 255), &[])[4], 0);
    assert_eq!(world.bad(LOG_SENSE, &[]), Sense::invalid_field_in_cdb(2, Some(5)));
    assert_eq!(world.good([0x4d, 0, 0x40, 0, 0, 0, 0, 0, 255, 0], &[]), [0, 0, 0, 1, 0]);
    assert_eq!(world.bad([0x4d, 0, 0, 0, 0, 0, 0, 0, 255, 0], &[]), Sense::invalid_field_in_cdb(2, Some(7)), "PC");
    let changeable = world.good(build::mode_sense_6(PageControl::Changeable, 1, 255), &[]);
    assert_eq!(changeable[4 + 7], 0, "LBPERE");
}

/// SBC-4 4.7.3.6: what finds no space behind it is refused, and says so.
#[test]
fn a_write_without_space_is_refused() {
    let world = counting();
    world.store.fail(Op::Write, sanwire_store::ErrorKind::Full);
    let (cdb, data) = write(0, 1);
    let full = Sense::new(SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT);
    assert_eq!(world.bad(cdb, &data), full);
    world.store.heal();
    world.good(build::test_unit_ready(), &[]);
}
