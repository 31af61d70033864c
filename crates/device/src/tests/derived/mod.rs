//! Units that are derived from others.

mod admission;
mod bad;
mod budget;
mod ending;
mod model;
mod programs;
mod sharing;

use std::sync::Arc;

use sanwire_core::{Instant, Lun, NexusId, WallClock};
use sanwire_scsi::vpd::page;
use sanwire_scsi::{
    AdditionalSense, Capacity, Cdb, DeviceIdentification, Extent, Identity, OperationClasses, Reply, Sense, SenseKey,
    Status, Task, build, unmap_parameters,
};

use crate::testing::{NEXUS, World, lun, sense, task};
use crate::{AllowedOperations, Derivation, DerivedExtent, LogicalUnit, Progress, UnitOptions};

/// Blocks of the disks of [`World`].
const BLOCK: u64 = 512;

/// All that can be given away of these blocks, each run a first block and a number.
fn of(extents: &[(u64, u64)]) -> Derivation {
    let extent = |(lba, blocks): &(u64, u64)| DerivedExtent { offset_bytes: lba * BLOCK, length_bytes: blocks * BLOCK };
    Derivation {
        extents: extents.iter().map(extent).collect(),
        operations: AllowedOperations::all(),
        admission: None,
        until_unix_ms: None,
        program: None,
        clock: WallClock::default(),
    }
}

/// The number of the unit with this number.
fn identity(number: u16) -> Identity {
    Identity::new(&format!("derived{number}"), (u128::from(number) << 64).to_be_bytes()).unwrap()
}

impl World {
    fn root(&self) -> Arc<LogicalUnit> {
        self.units.get(lun(0)).unwrap()
    }

    /// A unit with this number that is derived from the disk.
    fn derive(&self, number: u16, derivation: Derivation) -> Arc<LogicalUnit> {
        self.derive_from(&self.root(), number, derivation)
    }

    fn derive_from(&self, parent: &Arc<LogicalUnit>, number: u16, derivation: Derivation) -> Arc<LogicalUnit> {
        let unit = LogicalUnit::derive(identity(number), parent, derivation, UnitOptions::default()).unwrap();
        self.units.add(lun(number), unit).unwrap()
    }

    fn on(&self, number: u16, cdb: impl Into<Cdb>, data: &[u8]) -> Reply {
        self.run_task(NEXUS, on(number, cdb, data))
    }

    fn begin_at(&self, nexus: NexusId, task: Task, now: Instant) -> Progress {
        self.units.begin(nexus, task, &self.memory, now)
    }
}

fn on(number: u16, cdb: impl Into<Cdb>, data: &[u8]) -> Task {
    Task { lun: Lun::new(number), ..task(cdb, data) }
}

fn write(number: u16, lba: u64, bytes: &[u8]) -> Task {
    on(number, build::write_16(Extent { lba, blocks: (bytes.len() as u64 / BLOCK) as u32 }, false), bytes)
}

fn read(number: u16, lba: u64, blocks: u32) -> Task {
    on(number, build::read_16(Extent { lba, blocks }), &[])
}

/// COMPARE AND WRITE of one block.
fn swap(lba: u64) -> Cdb {
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x89, 1);
    Cdb::from(cdb).with_lba(lba).unwrap()
}

fn good(reply: Reply) -> Vec<u8> {
    assert_eq!((reply.status, Sense::parse(&reply.sense)), (Status::Good, None));
    reply.data_in.map_or(Vec::new(), |data| data.to_vec())
}

fn blocks(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| [*byte; BLOCK as usize]).collect()
}

const DENIED: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::ACCESS_DENIED_NO_ACCESS_RIGHTS);
const PROTECTED: Sense = Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED);
const NOT_THERE: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
const OUT_OF_RANGE: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE);

#[test]
fn a_derived_unit_is_a_disk_of_its_own_whose_blocks_are_those_of_the_other_one() {
    let world = World::small();
    world.derive(1, of(&[(16, 8), (100, 4), (0, 4)]));
    let capacity = Capacity::parse_sixteen(&good(world.on(1, build::read_capacity_16(32), &[]))).unwrap();
    assert_eq!((capacity.blocks, capacity.block_bytes), (16, 512));
    good(world.run_task(NEXUS, write(1, 6, &blocks(&[1, 2, 3, 4, 5, 6, 7, 8]))));
    assert_eq!(world.store.bytes(22 * 512, 1024), blocks(&[1, 2]));
    assert_eq!(world.store.bytes(100 * 512, 2048), blocks(&[3, 4, 5, 6]));
    assert_eq!(world.store.bytes(0, 2048), blocks(&[7, 8, 0, 0]));
    good(world.run_task(NEXUS, write(0, 23, &blocks(&[9]))));
    assert_eq!(good(world.run_task(NEXUS, read(1, 5, 4))), blocks(&[0, 1, 9, 3]));
    let list = unmap_parameters(&[Extent { lba: 7, blocks: 2 }, Extent { lba: 12, blocks: 1 }]).unwrap();
    good(world.on(1, build::unmap(list.len() as u16), &list));
    assert_eq!(world.store.bytes(23 * 512, 1024), blocks(&[0, 0]), "the second one was never written");
    assert_eq!((world.store.bytes(100 * 512, 1024), world.store.bytes(0, 1024)), (blocks(&[0, 4]), blocks(&[0, 8])));
    assert_eq!(sense(&world.run_task(NEXUS, read(1, 15, 2))), OUT_OF_RANGE);
    assert_eq!(sense(&world.run_task(NEXUS, write(1, 16, &blocks(&[1])))), OUT_OF_RANGE);
}

#[test]
fn a_derived_unit_has_only_its_own_names() {
    let world = World::small();
    world.derive(1, of(&[(0, 8)]));
    let page = |number| good(world.on(number, build::inquiry(Some(page::DEVICE_IDENTIFICATION), 512), &[]));
    let named = |number| DeviceIdentification::parse(&page(number)).unwrap();
    assert_eq!(named(1).identity(), Some(identity(1)));
    let of_root = named(0).designators.into_iter().filter(|designator| designator.association == 0);
    let of_root: Vec<_> = of_root.collect();
    assert!(
        named(1).designators.iter().all(|designator| !of_root.contains(designator)),
        "hosts would take both for one"
    );
}

#[test]
fn an_error_of_the_store_names_the_block_by_the_numbers_of_the_derived_unit() {
    let world = World::small();
    world.derive(1, of(&[(100, 4), (16, 8)]));
    world.store.fail(crate::testing::Op::Read, sanwire_store::ErrorKind::Unreadable);
    for (lba, blocks, expected) in [(1, 2, 1), (5, 1, 5), (2, 4, 2)] {
        let unreadable = Sense::new(SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR);
        assert_eq!(sense(&world.run_task(NEXUS, read(1, lba, blocks))), unreadable.with_information(expected));
    }
}

#[test]
fn a_unit_is_derived_from_one_that_is_derived() {
    let world = World::small();
    let first = world.derive(1, of(&[(16, 8), (100, 8)]));
    let second = world.derive_from(&first, 2, of(&[(12, 2), (6, 4)]));
    good(world.run_task(NEXUS, write(2, 0, &blocks(&[1, 2, 3, 4, 5, 6]))));
    assert_eq!(world.store.bytes(104 * 512, 1024), blocks(&[1, 2]));
    assert_eq!(world.store.bytes(22 * 512, 1024), blocks(&[3, 4]));
    assert_eq!(world.store.bytes(100 * 512, 1024), blocks(&[5, 6]));
    assert_eq!(second.derived().unwrap().extents().len(), 2);
    assert_eq!(sense(&world.run_task(NEXUS, read(2, 6, 1))), OUT_OF_RANGE);
}

#[test]
fn what_is_not_allowed_is_refused_and_not_reported() {
    let world = World::small();
    let (read_only, write_only) = (AllowedOperations::all().without_writes(), OperationClasses::WRITE);
    world.derive(1, Derivation { operations: read_only, ..of(&[(0, 8)]) });
    world.derive(2, Derivation { operations: AllowedOperations::of(write_only), ..of(&[(0, 8)]) });
    let same = build::write_same_16(Extent { lba: 0, blocks: 1 }, false, false);
    let same_and_unmap = build::write_same_16(Extent { lba: 0, blocks: 1 }, true, false);
    let compare = swap(0);
    let mode_select = [0x15, 0x10, 0, 0, 0, 0];
    let outcome = |number, cdb: Cdb, data: &[u8]| {
        let reply = world.on(number, cdb, data);
        if reply.status == Status::Good { None } else { Some(sense(&reply)) }
    };
    for (cdb, data, by_reader, by_writer) in [
        (build::read_16(Extent { lba: 0, blocks: 1 }), 0, None, Some(DENIED)),
        (build::write_16(Extent { lba: 0, blocks: 1 }, false), 512, Some(PROTECTED), None),
        (same, 512, Some(PROTECTED), None),
        (same_and_unmap, 512, Some(PROTECTED), Some(DENIED)),
        (compare, 1024, Some(PROTECTED), Some(DENIED)),
        (build::synchronize_cache_16(Extent { lba: 0, blocks: 0 }), 0, Some(PROTECTED), None),
        (Cdb::from(mode_select), 0, None, Some(DENIED)),
        (Cdb::from([0x16, 0, 0, 0, 0, 0]), 0, None, Some(DENIED)),
        (build::test_unit_ready(), 0, None, None),
        (build::read_capacity_16(32), 0, None, None),
    ] {
        let data = vec![0; data];
        assert_eq!((outcome(1, cdb, &data), outcome(2, cdb, &data)), (by_reader, by_writer), "{cdb:?}");
    }
    // MODE SENSE: WP is bit 7 of the device-specific parameter.
    let protected = |number| good(world.on(number, [0x1a, 0, 0x3f, 0, 255, 0], &[]))[2] & 0x80 != 0;
    assert!(protected(1) && !protected(2) && !protected(0));
    let codes = |number| {
        let bytes = good(world.on(number, [0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0], &[]));
        bytes[4..].chunks(8).map(|descriptor| descriptor[0]).collect::<Vec<_>>()
    };
    let (of_reader, of_writer) = (codes(1), codes(2));
    assert!(of_reader.contains(&0x88) && !of_reader.contains(&0x8a) && !of_reader.contains(&0x42));
    assert!(!of_writer.contains(&0x88) && of_writer.contains(&0x8a) && of_writer.contains(&0x12));
    assert!(codes(0).contains(&0xa4) && !of_reader.contains(&0xa4), "SET TARGET PORT GROUPS is about the target");
}

#[test]
fn a_single_operation_may_be_allowed_alone() {
    let world = World::small();
    let operations = AllowedOperations::of(OperationClasses::NONE).with_operation(0x88, None);
    world.derive(1, Derivation { operations, ..of(&[(0, 8)]) });
    good(world.run_task(NEXUS, read(1, 0, 1)));
    assert_eq!(sense(&world.on(1, [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[])), DENIED, "READ (10)");
    assert_eq!(sense(&world.run_task(NEXUS, write(1, 0, &blocks(&[1])))), PROTECTED);
}
