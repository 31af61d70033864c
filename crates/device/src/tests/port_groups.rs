use std::collections::BTreeMap;
use std::sync::Arc;

use sanwire_core::Instant;
use sanwire_scsi::port_groups::{AccessState, PortGroup, StateCause};
use sanwire_scsi::{AdditionalSense, Cdb, DeviceIdentification, Extent, Sense, SenseKey, build};

use crate::testing::{NEXUS, OTHER, SMALL, TestStore, World, disk, lun, ports, sense, task};
use crate::{LogicalUnits, NexusPorts};

const STATES: [(AccessState, AdditionalSense); 3] = [
    (AccessState::Standby, AdditionalSense::NOT_READY_TARGET_PORT_STANDBY),
    (AccessState::Unavailable, AdditionalSense::NOT_READY_TARGET_PORT_UNAVAILABLE),
    (AccessState::Transitioning, AdditionalSense::NOT_READY_ASYMMETRIC_ACCESS_STATE_TRANSITION),
];

fn report(format: u8) -> Cdb {
    [0xa3, 0x0a | format << 5, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0].into()
}

fn set(list: &[u8]) -> Cdb {
    [0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0, 0].into()
}

fn attention(world: &World, nexus: sanwire_core::NexusId) -> Option<AdditionalSense> {
    let reply = world.run(nexus, build::mode_sense_6(sanwire_scsi::PageControl::Current, 8, 255), &[]);
    (!reply.sense.is_empty()).then(|| sense(&reply).additional)
}

#[test]
fn there_is_one_active_group_at_first() {
    let world = World::small();
    let descriptor = [0, 0x8f, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
    assert_eq!(world.good(report(0), &[]), [&[0, 0, 0, 12][..], &descriptor].concat());
    assert_eq!(world.good(report(1), &[]), [&[0, 0, 0, 16, 0x10, 0, 0, 0][..], &descriptor].concat());
    assert_eq!(world.bad(report(2), &[]), Sense::invalid_field_in_cdb(1, Some(7)));
}

#[test]
fn a_report_that_is_cut_still_tells_how_long_it_is() {
    let world = World::small();
    for format in [0, 1] {
        let whole = world.good(report(format), &[]);
        for allocation_bytes in 0..=whole.len() + 4 {
            let mut cdb = [0xa3, 0x0a | format << 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            cdb[9] = allocation_bytes as u8;
            assert_eq!(world.good(cdb, &[]), whole[..allocation_bytes.min(whole.len())], "{allocation_bytes}");
        }
    }
}

#[test]
fn each_state_passes_what_the_standard_says() {
    let world = World::small();
    let read = build::read_16(Extent { lba: 0, blocks: 1 });
    for (state, additional) in STATES {
        assert_eq!(world.units.set_access_state(1, state), Some(true));
        let refused = Sense::new(SenseKey::NotReady, additional);
        for cdb in [
            build::test_unit_ready(),
            read,
            build::read_capacity_16(32),
            build::write_same_16(Extent { lba: 0, blocks: 1 }, false, true),
        ] {
            assert_eq!(world.bad(cdb, &[]), refused);
        }
        for cdb in [build::inquiry(None, 96), build::report_luns(256), report(0), report(1)] {
            world.good(cdb, &[]);
        }
        assert_eq!(Sense::parse(&world.good(build::request_sense(18), &[])), Some(refused));
        let mode_sense = world.run(NEXUS, build::mode_sense_6(sanwire_scsi::PageControl::Current, 8, 255), &[]);
        assert_eq!(mode_sense.sense.is_empty(), state == AccessState::Standby);
        let nothing = world.run(NEXUS, set(&[]), &[]);
        assert_eq!(nothing.sense.is_empty(), state != AccessState::Transitioning);
    }
    for state in [AccessState::ActiveNonOptimized, AccessState::ActiveOptimized] {
        assert_eq!(world.units.set_access_state(1, state), Some(true));
        world.good(read, &[]);
    }
    let group = PortGroup {
        id: 1,
        state: AccessState::ActiveOptimized,
        is_preferred: false,
        cause: StateCause::Implicit,
        ports: vec![1],
    };
    assert_eq!(world.units.target_port_groups(), [group]);
}

#[test]
fn an_initiator_sees_its_own_port() {
    let world = World::small();
    world.units.nexus_established(NEXUS, ports(1, 7));
    assert_eq!(attention(&world, NEXUS), Some(AdditionalSense::POWER_ON_OR_RESET_OCCURRED));
    let page = DeviceIdentification::parse(&world.good(build::inquiry(Some(0x83), 255), &[])).unwrap();
    assert!(page.designators.iter().any(|of| of.association == 1 && of.bytes == [0, 0, 0, 7]), "{page:?}");
}

#[test]
fn a_state_that_an_initiator_sets_is_told_to_the_others() {
    let world = World::small();
    for nexus in [NEXUS, OTHER] {
        world.establish(nexus);
        attention(&world, nexus);
    }
    let standby = [0, 0, 0, 0, 2, 0, 0, 1];
    world.good(set(&standby), &standby);
    assert_eq!(world.good(report(0), &[])[4..10], [2, 0x8f, 0, 1, 0, 1], "altered by a command");
    assert_eq!(attention(&world, NEXUS), None);
    assert_eq!(attention(&world, OTHER), Some(AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED));
    assert_eq!(attention(&world, OTHER), None);
    world.good(set(&standby), &standby);
    assert_eq!(attention(&world, OTHER), None, "nothing has changed");
    assert_eq!(world.units.set_access_state(1, AccessState::ActiveOptimized), Some(true));
    for nexus in [NEXUS, OTHER] {
        assert_eq!(attention(&world, nexus), Some(AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED));
    }
}

/// Linux makes every path active that it tries: nobody could take a portal out of service.
#[test]
fn initiators_cannot_use_what_the_owner_has_limited() {
    let world = World::small();
    let asked = |state: u8| [0, 0, 0, 0, state, 0, 0, 1];
    let failed = Sense::new(SenseKey::HardwareError, AdditionalSense::SET_TARGET_PORT_GROUPS_COMMAND_FAILED);
    world.good(set(&asked(2)), &asked(2));
    for (state, code) in [(AccessState::Standby, 2), (AccessState::Unavailable, 3)] {
        world.units.set_access_state(1, state);
        for other in [0, 1, 5 - code] {
            assert_eq!(world.bad(set(&asked(other)), &asked(other)), failed);
        }
        world.good(set(&asked(code)), &asked(code));
        assert_eq!(world.units.target_port_groups()[0].state, state);
    }
    world.units.set_access_state(1, AccessState::ActiveNonOptimized);
    for state in [0, 2, 0] {
        world.good(set(&asked(state)), &asked(state));
    }
}

#[test]
fn a_list_with_one_fault_changes_nothing() {
    let world = World::small();
    let unknown = [0, 0, 0, 0, 2, 0, 0, 1, 2, 0, 0, 2];
    assert_eq!(world.bad(set(&unknown), &unknown), Sense::invalid_field_in_parameters(10, None));
    let transition = [0, 0, 0, 0, 0xf, 0, 0, 1];
    assert_eq!(world.bad(set(&transition), &transition), Sense::invalid_field_in_parameters(4, Some(3)));
    let too_short = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    for length in [1, 3, 5, 7] {
        assert_eq!(world.bad(set(&unknown[..length]), &unknown), too_short);
    }
    assert_eq!(world.bad(set(&unknown), &unknown[..8]), too_short, "less data than the CDB says");
    world.good(build::test_unit_ready(), &[]);
}

/// SPC-5 5.17 and 6.36: the ports are those that initiators see in page 83h, and each group has a state of its own.
#[test]
fn the_owner_sets_the_state_of_each_group() {
    let world = World::small();
    world.units.set_target_ports(&BTreeMap::from([(1, vec![2]), (7, vec![8, 9])]));
    for (nexus, group) in [(NEXUS, 1), (OTHER, 7)] {
        let mut ports = NexusPorts::clone(&ports(nexus.0, group + 1));
        ports.target.group = group;
        world.units.nexus_established(nexus, Arc::new(ports));
        attention(&world, nexus);
    }
    let descriptors = |second: u8, cause| {
        let first = [0, 0x8f, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2];
        let second = [second, 0x8f, 0, 7, 0, cause, 0, 2, 0, 0, 0, 8, 0, 0, 0, 9];
        [&[0, 0, 0, 28][..], &first, &second].concat()
    };
    assert_eq!(world.good(report(0), &[]), descriptors(0, 0));
    assert_eq!(world.units.set_access_state(3, AccessState::Standby), None);
    assert_eq!(world.units.set_access_state(7, AccessState::Standby), Some(true));
    assert_eq!(world.units.set_access_state(7, AccessState::Standby), Some(false));
    assert_eq!(attention(&world, NEXUS), Some(AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED));
    assert_eq!(world.good(report(0), &[]), descriptors(2, 2));
    world.good(build::test_unit_ready(), &[]);
    assert_eq!(attention(&world, OTHER), Some(AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED));
    let refused = sense(&world.run(OTHER, build::test_unit_ready(), &[]));
    assert_eq!(refused.additional, AdditionalSense::NOT_READY_TARGET_PORT_STANDBY);
    world.units.set_target_ports(&BTreeMap::from([(1, vec![2]), (7, vec![8, 9])]));
    assert_eq!(world.good(report(0), &[]), descriptors(2, 2), "a group that stays keeps its state");
    world.units.set_target_ports(&BTreeMap::from([(1, vec![2])]));
    assert_eq!(attention(&world, NEXUS), Some(AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED));
    assert_eq!(world.good(report(0), &[])[4..], [0, 0x8f, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2]);
}

/// The states are those of a target's ports, not of a disk that another target has too.
#[test]
fn other_targets_of_a_disk_are_not_told() {
    let world = World::small();
    let other = LogicalUnits::new();
    other.add_shared(lun(0), world.units.get(lun(0)).unwrap()).unwrap();
    world.establish(NEXUS);
    other.nexus_established(OTHER, ports(2, 1));
    let ask = |units: &LogicalUnits, nexus| {
        let reply = world.finish(units.begin(nexus, task(build::test_unit_ready(), &[]), &world.memory, Instant::ZERO));
        (!reply.sense.is_empty()).then(|| sense(&reply).additional)
    };
    ask(&world.units, NEXUS);
    ask(&other, OTHER);
    assert_eq!(world.units.set_access_state(1, AccessState::ActiveNonOptimized), Some(true));
    assert_eq!(ask(&world.units, NEXUS), Some(AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED));
    assert_eq!(ask(&other, OTHER), None);
}

/// Clients that see different units come by the same ports: what one of them sets would hold for the units of all.
#[test]
fn who_sees_a_part_of_the_units_changes_no_state_of_all() {
    let (world, whole) = (World::small(), Arc::new(LogicalUnits::new()));
    let [own, others] = [NEXUS, OTHER].map(|nexus| {
        let part = LogicalUnits::part_of(Arc::clone(&whole));
        let number = lun(nexus.0 as u16);
        let disk = whole.add(number, disk(&number.to_string(), TestStore::new(SMALL), true)).unwrap();
        part.add_shared(lun(0), disk).unwrap();
        part.nexus_established(nexus, ports(nexus.0, 1));
        part
    });
    let ask = |units: &LogicalUnits, nexus, cdb: Cdb, data: &[u8]| {
        let reply = world.finish(units.begin(nexus, task(cdb, data), &world.memory, Instant::ZERO));
        (!reply.sense.is_empty()).then(|| sense(&reply).additional)
    };
    let ready = build::test_unit_ready();
    for (units, nexus) in [(&own, NEXUS), (&others, OTHER)] {
        assert_eq!(ask(units, nexus, ready, &[]), Some(AdditionalSense::POWER_ON_OR_RESET_OCCURRED));
    }
    for state in [1, 2, 3] {
        let list = [0, 0, 0, 0, state, 0, 0, 1];
        let failed = Some(AdditionalSense::SET_TARGET_PORT_GROUPS_COMMAND_FAILED);
        assert_eq!(ask(&own, NEXUS, set(&list), &list), failed, "{state}");
        assert_eq!(ask(&others, OTHER, ready, &[]), None, "{state}");
    }
    let same = [0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(ask(&own, NEXUS, set(&same), &same), None, "nothing would change");
    assert_eq!(whole.set_access_state(1, AccessState::Standby), Some(true));
    assert_eq!(ask(&others, OTHER, ready, &[]), Some(AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED));
}
