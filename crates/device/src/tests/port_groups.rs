use sanwire_scsi::port_groups::{AccessState, PortGroup, StateCause};
use sanwire_scsi::{AdditionalSense, Cdb, DeviceIdentification, Extent, Sense, SenseKey, build};

use crate::testing::{NEXUS, OTHER, World, ports, sense};

const STATES: [(AccessState, AdditionalSense); 3] = [
    (AccessState::Standby, AdditionalSense::NOT_READY_TARGET_PORT_STANDBY),
    (AccessState::Unavailable, AdditionalSense::NOT_READY_TARGET_PORT_UNAVAILABLE),
    (AccessState::Transitioning, AdditionalSense::NOT_READY_ASYMMETRIC_ACCESS_STATE_TRANSITION),
];

fn group(state: AccessState) -> PortGroup {
    PortGroup { id: 1, state, is_preferred: true, cause: StateCause::Implicit, ports: vec![1, 2] }
}

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
fn each_state_passes_what_the_standard_says() {
    let world = World::small();
    let read = build::read_16(Extent { lba: 0, blocks: 1 });
    for (state, additional) in STATES {
        world.units.set_target_port_groups(vec![group(state)]);
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
        world.units.set_target_port_groups(vec![group(state)]);
        world.good(read, &[]);
    }
    assert_eq!(world.units.target_port_groups(), [group(AccessState::ActiveOptimized)]);
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
    world.units.set_target_port_groups(vec![group(AccessState::ActiveOptimized)]);
    for nexus in [NEXUS, OTHER] {
        assert_eq!(attention(&world, nexus), Some(AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED));
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
