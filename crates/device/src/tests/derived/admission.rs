//! Who finds a derived unit, and what is counted of whom.

use std::sync::Arc;

use sanwire_core::{Instant, NexusId, Principal};
use sanwire_scsi::{
    AdditionalSense, Extent, Identity, OperationClasses, Status, build, inquiry, operation_code, report,
    unmap_parameters,
};
use sanwire_store::RamStore;

use super::super::copy::{A, B, SECOND, aborted, list, run, segment};
use super::{DENIED, NOT_THERE, OUT_OF_RANGE, blocks, good, identity, of, on, read, write};
use crate::testing::{NEXUS, OTHER, UUID, World, lun, ports, sense};
use crate::{Admission, AllowedOperations, Derivation, LogicalUnit, NexusPorts, PrincipalUsage, UnitOptions};

/// Admits initiators of these names.
#[derive(Debug)]
struct Named(&'static [&'static str]);

impl Admission for Named {
    fn admits(&self, principal: &Principal) -> bool {
        principal.initiator_name.as_deref().is_some_and(|name| self.0.contains(&name))
    }
}

fn named(name: &str) -> Principal {
    Principal { initiator_name: Some(name.into()), ..Principal::default() }
}

fn only(names: &'static [&'static str], extents: &[(u64, u64)]) -> Derivation {
    Derivation { admission: Some(Arc::new(Named(names))), ..of(extents) }
}

impl World {
    /// An initiator of this name comes and hears of power on.
    fn come_as(&self, nexus: NexusId, name: &str) {
        let ports = NexusPorts { principal: named(name), ..NexusPorts::clone(&ports(nexus.0, 1)) };
        self.units.nexus_established(nexus, Arc::new(ports));
        for (number, _) in self.units.iter() {
            self.run_task(nexus, on(number.number(), build::test_unit_ready(), &[]));
        }
    }

    fn listed(&self, nexus: NexusId) -> Vec<u16> {
        let bytes = good(self.run_task(nexus, on(0, build::report_luns(256), &[])));
        report::parse_luns(&bytes).unwrap().into_iter().map(|lun| lun.number()).collect()
    }
}

#[test]
fn who_is_not_admitted_finds_no_unit_and_can_do_nothing_to_it() {
    let world = World::small();
    let unit = world.derive(1, only(&["a"], &[(0, 8)]));
    world.come_as(NEXUS, "a");
    world.come_as(OTHER, "b");
    assert_eq!((world.listed(NEXUS), world.listed(OTHER)), (vec![0, 1], vec![0]));
    good(world.run_task(NEXUS, write(1, 0, &blocks(&[1]))));
    for task in [write(1, 0, &blocks(&[2])), read(1, 0, 1), on(1, build::test_unit_ready(), &[])] {
        assert_eq!(sense(&world.run_task(OTHER, task)), NOT_THERE);
    }
    let asked = good(world.run_task(OTHER, on(1, build::inquiry(None, 255), &[])));
    assert_eq!(asked, inquiry::absent_inquiry());
    let now = Instant::ZERO;
    assert!(world.units.may_reset(OTHER, lun(1), now).is_none() && world.units.may_reset(NEXUS, lun(1), now).is_some());
    let all = world.units.may_reset_all(OTHER, now).unwrap();
    assert_eq!(all.iter().map(|(lun, _)| lun.number()).collect::<Vec<_>>(), [0]);
    assert_eq!(unit.derived().unwrap().statistics().not_admitted, 5, "with its first command");
    // Nobody who cannot use it keeps its medium in.
    world.units.lock_media(OTHER, true);
    assert!(!unit.is_removal_prevented());
    world.units.lock_media(NEXUS, true);
    assert!(unit.is_removal_prevented());
}

#[test]
fn who_turns_out_to_be_somebody_else_is_asked_for_again() {
    let world = World::small();
    let unit = world.derive(1, only(&["a"], &[(0, 8)]));
    world.come_as(NEXUS, "a");
    good(world.run_task(NEXUS, read(1, 0, 1)));
    world.units.identify(NEXUS, named("b"));
    assert_eq!(sense(&world.run_task(NEXUS, read(1, 0, 1))), NOT_THERE);
    world.units.identify(NEXUS, named("a"));
    good(world.run_task(NEXUS, read(1, 0, 1)));
    assert!(unit.admits(&named("a")) && !unit.admits(&named("b")) && world.root().admits(&named("b")));
}

#[test]
fn a_unit_admits_those_only_whom_what_it_is_derived_from_admits_too() {
    let world = World::small();
    let first = world.derive(1, only(&["a", "b"], &[(0, 8)]));
    let second = world.derive_from(&first, 2, only(&["b", "c"], &[(0, 4)]));
    for (nexus, name, found) in [(1, "a", vec![0, 1]), (2, "b", vec![0, 1, 2]), (3, "c", vec![0])] {
        world.come_as(NexusId(nexus), name);
        assert_eq!(world.listed(NexusId(nexus)), found, "{name}");
        assert_eq!(second.admits(&named(name)), found.contains(&2));
    }
}

/// The world's disk, and a unit that is derived from it, of the name that copies give to their second.
fn with_part(derivation: Derivation) -> (World, Arc<LogicalUnit>) {
    let world = World::small();
    let name = Identity::new("vol", SECOND).unwrap();
    let unit = LogicalUnit::derive(name, &world.root(), derivation, UnitOptions::default()).unwrap();
    let unit = world.units.add(lun(1), unit).unwrap();
    (world, unit)
}

#[test]
fn a_copy_goes_to_and_from_a_derived_unit_as_it_allows() {
    let copies = OperationClasses::COPY_SOURCE | OperationClasses::COPY_TARGET;
    let of_classes = |classes| Derivation { operations: AllowedOperations::of(classes), ..only(&["a"], &[(64, 8)]) };
    let denied = aborted(AdditionalSense::ACCESS_DENIED_NO_ACCESS_RIGHTS);
    for (classes, as_source, as_target) in [
        (copies, Ok(()), Ok(())),
        (OperationClasses::COPY_SOURCE, Ok(()), denied),
        (OperationClasses::COPY_TARGET, denied, Ok(())),
        (OperationClasses::READ | OperationClasses::WRITE, denied, denied),
    ] {
        let (world, unit) = with_part(of_classes(classes));
        world.come_as(NEXUS, "a");
        good(world.run_task(NEXUS, write(0, 0, &blocks(&[1, 2, 3, 4]))));
        assert_eq!(run(&world, &list(1, &[segment(A, B, 4, 0, 2)])), as_target, "{classes:?}");
        let copied = if as_target.is_ok() { [1, 2, 3, 4] } else { [0; 4] };
        assert_eq!(world.store.bytes(66 * 512, 2048), blocks(&copied));
        assert_eq!(run(&world, &list(2, &[segment(B, A, 4, 2, 32)])), as_source, "{classes:?}");
        let usage = unit.derived().unwrap().statistics().principals[0].usage;
        let counted = |is_well: bool| if is_well { 2048 } else { 0 };
        assert_eq!((usage.written_bytes, usage.read_bytes), (counted(as_target.is_ok()), counted(as_source.is_ok())));
    }
    let (world, _) = with_part(of_classes(copies));
    world.come_as(NEXUS, "b");
    let unreachable = aborted(AdditionalSense::COPY_TARGET_DEVICE_NOT_REACHABLE);
    assert_eq!(run(&world, &list(1, &[segment(A, B, 4, 0, 2)])), unreachable, "it finds no such unit");
    let (world, unit) = with_part(of_classes(copies));
    world.come_as(NEXUS, "a");
    assert!(run(&world, &list(1, &[segment(A, B, 4, 0, 6)])).is_err(), "behind its end");
    assert_eq!(world.store.bytes(72 * 512, 1024), blocks(&[0, 0]));
    unit.revoke();
    assert_eq!(run(&world, &list(1, &[segment(A, B, 4, 0, 2)])), unreachable);
}

#[test]
fn an_overlapping_copy_between_a_unit_and_a_part_of_it_copies_what_was_there() {
    let (world, _) = with_part(of(&[(64, 64)]));
    let content: Vec<u8> = (0..64).collect();
    good(world.run_task(NEXUS, write(0, 60, &blocks(&content))));
    run(&world, &list(1, &[segment(A, B, 60, 60, 0)])).unwrap();
    assert_eq!(world.store.bytes(64 * 512, 60 * 512), blocks(&content[..60]));
}

#[test]
fn what_each_principal_does_is_counted() {
    let world = World::small();
    let operations = AllowedOperations::of(OperationClasses::READ | OperationClasses::WRITE);
    let unit = world.derive(1, Derivation { operations, ..only(&["a", "b"], &[(0, 8)]) });
    for (nexus, name) in [(1, "a"), (2, "b"), (3, "a")] {
        world.come_as(NexusId(nexus), name);
    }
    let run = |nexus, task| world.run_task(NexusId(nexus), task);
    good(run(1, write(1, 0, &blocks(&[1, 2]))));
    good(run(3, read(1, 0, 4)));
    run(1, read(1, 7, 2));
    assert_eq!(sense(&run(3, on(1, [0x16, 0, 0, 0, 0, 0], &[]))), DENIED);
    assert_eq!(run(2, on(1, build::test_unit_ready(), &[])).status, Status::Good);
    world.units.nexus_lost(NexusId(3));
    let statistics = unit.derived().unwrap().statistics();
    let [of_a, of_b] = &statistics.principals[..] else { panic!("{statistics:?}") };
    let expected = PrincipalUsage {
        commands: 4,
        read_bytes: 2048,
        written_bytes: 1024,
        refused_region: 1,
        refused_operation: 1,
        ..PrincipalUsage::default()
    };
    assert_eq!((of_a.principal.initiator_name.as_deref(), of_a.number, of_a.usage), (Some("a"), 0, expected));
    assert_eq!((of_b.number, of_b.usage), (1, PrincipalUsage::default()));
    let child = world.derive_from(
        &unit,
        2,
        Derivation { operations: unit.derived().unwrap().operations().clone(), ..of(&[(0, 1)]) },
    );
    assert_eq!((child.identity().uuid(), child.derived().unwrap().extents().len()), (identity(2).uuid(), 1));
}

/// What is left to be looked at is looked at as for each disk.
#[test]
fn a_unit_that_allows_everything_counts_what_is_beyond_it_and_refuses_what_is_about_the_target() {
    let world = World::small();
    let unit = world.derive(1, only(&["a"], &[(0, 8)]));
    world.come_as(NEXUS, "a");
    let list = unmap_parameters(&[Extent { lba: 7, blocks: 2 }]).unwrap();
    for task in [read(1, 7, 2), write(1, 8, &blocks(&[1])), on(1, build::unmap(list.len() as u16), &list)] {
        assert_eq!(sense(&world.run_task(NEXUS, task)), OUT_OF_RANGE);
    }
    good(world.run_task(NEXUS, read(1, 0, 8)));
    let set_port_groups = [operation_code::MAINTENANCE_OUT, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(sense(&world.run_task(NEXUS, on(1, set_port_groups, &[]))), DENIED);
    let usage = unit.derived().unwrap().statistics().principals[0].usage;
    let none = PrincipalUsage::default();
    let expected = PrincipalUsage { commands: 5, read_bytes: 4096, refused_region: 3, refused_operation: 1, ..none };
    assert_eq!(usage, expected);
}

#[test]
fn what_is_read_of_a_store_that_shares_its_memory_is_counted_too() {
    let world = World::small();
    world.units.remove(lun(0)).unwrap();
    let (name, store) = (Identity::new("ram", UUID).unwrap(), Arc::new(RamStore::new(1 << 20, 512)));
    world.units.add(lun(0), LogicalUnit::new(name, store, UnitOptions::default()).unwrap()).unwrap();
    let unit = world.derive(1, of(&[(16, 16)]));
    let content = blocks(&[1, 2, 3, 4, 5, 6, 7, 8]);
    good(world.run_task(NEXUS, write(1, 0, &content)));
    let reply = world.run_task(NEXUS, read(1, 0, 8));
    assert!(reply.data_in.as_ref().is_some_and(|data| data.lent_bytes() > 0), "it is shared");
    assert_eq!(good(reply), content);
    let usage = unit.derived().unwrap().statistics().principals[0].usage;
    assert_eq!((usage.commands, usage.read_bytes, usage.written_bytes), (2, 4096, 4096));
}
