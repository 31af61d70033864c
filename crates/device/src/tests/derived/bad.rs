//! Derivations that are none, and parents that do not stay what they were.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sanwire_scsi::{Capacity, OperationClasses, build};
use sanwire_store::{CompletionQueue, ExtentError, Geometry, RamStore, Request, Started, Store};

use super::{BLOCK, OUT_OF_RANGE, blocks, good, identity, of, read, write};
use crate::testing::{NEXUS, SMALL, World, lun, sense};
use crate::{
    AllowedOperations, DERIVATIONS_MAX, Derivation, DeriveError, DerivedExtent, LogicalUnit, UnitOptions, Volatility,
};

fn error(world: &World, parent: u16, derivation: Derivation) -> DeriveError {
    let parent = world.units.get(lun(parent)).unwrap();
    LogicalUnit::derive(identity(9), &parent, derivation, UnitOptions::default()).unwrap_err()
}

#[test]
fn extents_that_are_none_are_refused_and_say_which() {
    let world = World::small();
    let end = SMALL.length_bytes / 512;
    for (extents, expected) in [
        (&[][..], DeriveError::Extents(ExtentError::None)),
        (&[(0, 8), (8, 0)], DeriveError::Extents(ExtentError::Empty(2))),
        (&[(0, 8), (4, 8)], DeriveError::Extents(ExtentError::Overlap(1, 2))),
        (
            &[(0, 8), (end - 1, 2)],
            DeriveError::PastEnd { number: 2, end_bytes: (end + 1) * 512, length_bytes: end * 512 },
        ),
    ] {
        assert_eq!(error(&world, 0, of(extents)), expected, "{extents:?}");
    }
    for (offset_bytes, length_bytes) in [(100, 512), (512, 100)] {
        let extents = vec![DerivedExtent { offset_bytes, length_bytes }];
        let expected = DeriveError::Unaligned { number: 1, block_bytes: 512 };
        assert_eq!(error(&world, 0, Derivation { extents, ..of(&[]) }), expected);
    }
    let extents = vec![DerivedExtent { offset_bytes: u64::MAX - 511, length_bytes: 512 }];
    let expected = DeriveError::Extents(ExtentError::Overflow(1));
    assert_eq!(error(&world, 0, Derivation { extents, ..of(&[]) }), expected);
    let many: Vec<_> = (0..1025).map(|at| (2 * at % 2048, 1)).collect();
    assert_eq!(error(&world, 0, of(&many)), DeriveError::Extents(ExtentError::TooMany(1025)));
}

#[test]
fn nothing_is_derived_that_is_wider_than_its_parent() {
    let world = World::small();
    let operations = AllowedOperations::of(OperationClasses::READ);
    world.derive(1, Derivation { operations: operations.clone(), ..of(&[(8, 8)]) });
    let narrow = Derivation { operations: operations.clone(), ..of(&[(0, 8)]) };
    assert_eq!(error(&world, 1, of(&[(0, 8)])), DeriveError::Operations("write".into()));
    let single = operations.with_operation(0x8a, None);
    let expected = DeriveError::Operations("operation 8Ah".into());
    assert_eq!(error(&world, 1, Derivation { operations: single, ..of(&[(0, 8)]) }), expected);
    let past = DeriveError::PastEnd { number: 1, end_bytes: 9 * 512, length_bytes: 8 * 512 };
    assert_eq!(error(&world, 1, Derivation { extents: of(&[(0, 9)]).extents, ..narrow }), past);
}

#[test]
fn units_are_derived_from_each_other_so_often_only() {
    let world = World::small();
    let mut unit = world.root();
    for depth in 1..=DERIVATIONS_MAX as u16 {
        unit = world.derive_from(&unit, depth, of(&[(0, 8)]));
    }
    assert_eq!(error(&world, DERIVATIONS_MAX as u16, of(&[(0, 8)])), DeriveError::TooDeep);
}

#[test]
fn operations_that_no_disk_has_and_options_that_have_no_sense_are_refused() {
    let world = World::small();
    for (code, action, named) in [(0xbe, None, "operation BEh"), (0xa4, Some(0x0a), "operation A4h/0Ah")] {
        let operations = AllowedOperations::all().with_operation(code, action);
        let expected = DeriveError::UnknownOperation(named.into());
        assert_eq!(error(&world, 0, Derivation { operations, ..of(&[(0, 8)]) }), expected);
    }
    let derive = |options| LogicalUnit::derive(identity(1), &world.root(), of(&[(0, 8)]), options).unwrap_err();
    let volatility = Volatility { verifier: [1; 16], has_failed: false, tenure: None, keeper: None };
    let options = UnitOptions { volatility: Some(volatility), ..UnitOptions::default() };
    assert_eq!(derive(options), DeriveError::Volatility);
    let device_type = sanwire_core::DeviceType::Optical;
    assert_eq!(derive(UnitOptions { device_type, ..UnitOptions::default() }), DeriveError::DeviceType);
    let drive = UnitOptions { device_type, ..UnitOptions::default() };
    let drive = Arc::new(LogicalUnit::empty(identity(3), drive).unwrap());
    let from_drive = LogicalUnit::derive(identity(1), &drive, of(&[(0, 8)]), UnitOptions::default());
    assert_eq!(from_drive.unwrap_err(), DeriveError::DeviceType);
}

/// A store that has become shorter than it was.
#[derive(Debug)]
struct Shrinking {
    store: RamStore,
    length_bytes: AtomicU64,
}

impl Store for Shrinking {
    fn geometry(&self) -> Geometry {
        Geometry { length_bytes: self.length_bytes.load(Ordering::SeqCst), ..self.store.geometry() }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        match self.geometry().check(&request) {
            Ok(()) => self.store.start(request, completions),
            Err(error) => Started::Done(Err(error)),
        }
    }
}

#[test]
fn of_a_parent_that_shrinks_what_is_left_goes_on() {
    let world = World::small();
    let store = RamStore::new(64 * BLOCK, 512);
    let store = Arc::new(Shrinking { store, length_bytes: AtomicU64::new(64 * BLOCK) });
    let parent = LogicalUnit::new(identity(9), store.clone(), UnitOptions::default()).unwrap();
    let parent = world.units.add(lun(9), parent).unwrap();
    world.derive_from(&parent, 1, of(&[(60, 4), (0, 4)]));
    good(world.run_task(NEXUS, write(1, 0, &blocks(&[1, 2, 3, 4, 5, 6, 7, 8]))));
    store.length_bytes.store(62 * BLOCK, Ordering::SeqCst);
    for (lba, count) in [(2, 1), (1, 2), (0, 8), (3, 2)] {
        assert_eq!(sense(&world.run_task(NEXUS, read(1, lba, count))), OUT_OF_RANGE, "{lba} {count}");
    }
    assert_eq!(sense(&world.run_task(NEXUS, write(1, 3, &blocks(&[9])))), OUT_OF_RANGE);
    good(world.run_task(NEXUS, write(1, 5, &blocks(&[9]))));
    assert_eq!(good(world.run_task(NEXUS, read(1, 4, 4))), blocks(&[5, 9, 7, 8]));
    assert_eq!(good(world.run_task(NEXUS, read(1, 0, 2))), blocks(&[1, 2]));
    let capacity = good(world.on(1, build::read_capacity_16(32), &[]));
    assert_eq!(Capacity::parse_sixteen(&capacity).unwrap().blocks, 8, "hosts find the same device as before");
}
