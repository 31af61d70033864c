use super::*;
use crate::testing::{lun, task};
use sanwire_scsi::Cdb;

/// Who a nexus is to a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Holder,
    Registered,
    Stranger,
}

/// Every kind of command, with the columns of SPC-5 table 67 and SBC-4 table 13: from strangers to a write exclusive and
/// to an exclusive access reservation. Registrants of the types for registrants may do all.
const TABLE: [(&[u8], bool, bool); 34] = [
    (&[0x00, 0, 0, 0, 0, 0], true, true),
    (&[0x03, 0, 0, 0, 18, 0], true, true),
    (&[0x08, 0, 0, 0, 1, 0], true, false),
    (&[0x0a, 0, 0, 0, 1, 0], false, false),
    (&[0x12, 0, 0, 0, 96, 0], true, true),
    (&[0x15, 0x10, 0, 0, 0, 0], false, false),
    (&[0x1a, 0, 0x3f, 0, 96, 0], true, false),
    (&[0x1b, 0, 0, 0, 1, 0], true, true),
    (&[0x1b, 0, 0, 0, 4, 0], false, false),
    (&[0x1e, 0, 0, 0, 0, 0], true, true),
    (&[0x1e, 0, 0, 0, 1, 0], false, false),
    (&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], true, true),
    (&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], true, false),
    (&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], false, false),
    (&[0x2e, 0, 0, 0, 0, 0, 0, 0, 1, 0], false, false),
    (&[0x2f, 0, 0, 0, 0, 0, 0, 0, 1, 0], true, false),
    (&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], false, false),
    (&[0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0], false, false),
    (&[0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0], false, false),
    (&[0x55, 0x10, 0, 0, 0, 0, 0, 0, 0, 0], false, false),
    (&[0x5a, 0, 0x3f, 0, 0, 0, 0, 0, 96, 0], true, false),
    (&[0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0], true, true),
    (&[0x5e, 3, 0, 0, 0, 0, 0, 0, 8, 0], true, true),
    (&[0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], true, false),
    (&[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], false, false),
    (&[0x8e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], false, false),
    (&[0x8f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], true, false),
    (&[0x91, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], false, false),
    (&[0x93, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], false, false),
    (&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], true, true),
    (&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], true, true),
    (&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], true, false),
    (&[0xa8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], true, false),
    (&[0xaa, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], false, false),
];

fn is_allowed(world: &World, nexus: NexusId, cdb: &[u8]) -> bool {
    let reply = world.run_task(nexus, task(Cdb::new(cdb).unwrap(), &[0; 512]));
    if reply.status == Status::ReservationConflict {
        assert!(reply.sense.is_empty() && reply.data_in.is_none());
        return false;
    }
    assert_eq!(reply.status, Status::Good, "{cdb:02x?} {:02x?}", reply.sense);
    true
}

#[test]
fn every_command_meets_every_type_of_reservation() {
    for kind in [1, 3, 5, 6, 7, 8] {
        let world = world();
        [ONE, TWO].iter().for_each(|&nexus| register(&world, nexus, nexus.0));
        assert_eq!(out(&world, ONE, RESERVE, kind, (1, 0)), Status::Good);
        let is_write_exclusive = matches!(kind, 1 | 5 | 7);
        for (cdb, under_write_exclusive, under_exclusive_access) in TABLE {
            let for_strangers = if is_write_exclusive { under_write_exclusive } else { under_exclusive_access };
            for (nexus, who) in [(ONE, Who::Holder), (TWO, Who::Registered), (THREE, Who::Stranger)] {
                let expected = match who {
                    Who::Holder => true,
                    Who::Registered => kind >= 5 || for_strangers,
                    Who::Stranger => for_strangers,
                };
                assert_eq!(is_allowed(&world, nexus, cdb), expected, "{cdb:02x?} of {who:?} under type {kind}");
                assert_eq!(world.run(ONE, build::start_stop_unit(true), &[]).status, Status::Good);
                while THREE == nexus && told(&world, ONE).or(told(&world, TWO)).is_some() {}
            }
        }
    }
}

const RESERVE_6: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const RELEASE_6: [u8; 6] = [0x17, 0, 0, 0, 0, 0];
const RESERVE_10: [u8; 10] = [0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const RELEASE_10: [u8; 10] = [0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn reserve_shuts_all_others_out() {
    let world = world();
    let run = |nexus, cdb: &[u8]| world.run_task(nexus, task(Cdb::new(cdb).unwrap(), &[0; 512])).status;
    for (reserve, release) in [(&RESERVE_6[..], &RELEASE_10[..]), (&RESERVE_10, &RELEASE_6)] {
        assert_eq!((run(ONE, reserve), run(ONE, reserve)), (Status::Good, Status::Good), "twice");
        assert_eq!(run(TWO, reserve), Status::ReservationConflict);
        assert_eq!(run(TWO, release), Status::Good, "it has nothing to release");
        for (cdb, _, under_exclusive_access) in TABLE.into_iter().filter(|(cdb, ..)| cdb[0] != 0x5e) {
            // SPC-2 table 9: TEST UNIT READY conflicts, though no persistent reservation forbids it.
            let expected = under_exclusive_access && cdb[0] != 0x00;
            assert_eq!(is_allowed(&world, TWO, cdb), expected, "{cdb:02x?}");
        }
        for nexus in [ONE, TWO] {
            assert_eq!(run(nexus, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0]), Status::ReservationConflict);
            assert_eq!(out(&world, nexus, REGISTER, 0, (0, 1)), Status::ReservationConflict);
        }
        assert_eq!(told(&world, ONE), None);
        assert_eq!(
            (run(ONE, release), run(TWO, reserve), run(TWO, release)),
            (Status::Good, Status::Good, Status::Good)
        );
    }
    assert_eq!(world.bad([0x16, 0x10, 0, 0, 0, 0], &[]), Sense::invalid_field_in_cdb(1, Some(4)), "third party");
}

#[test]
fn reserve_ends_with_its_nexus_and_with_a_reset() {
    let world = world();
    let reserve = |nexus| world.run(nexus, RESERVE_6, &[]).status;
    assert_eq!((reserve(ONE), reserve(TWO)), (Status::Good, Status::ReservationConflict));
    world.units.nexus_lost(ONE);
    assert_eq!(reserve(TWO), Status::Good);
    assert!(world.units.logical_unit_reset(lun(0)));
    let reset = Some(AdditionalSense::BUS_DEVICE_RESET_FUNCTION_OCCURRED);
    assert_eq!((told(&world, TWO), told(&world, THREE)), (reset, reset));
    assert_eq!(reserve(THREE), Status::Good);
}

#[test]
fn reserve_is_compatible_with_persistent_reservations() {
    let world = world();
    let both = |nexus| {
        let reserve = world.run(nexus, RESERVE_6, &[]).status;
        assert_eq!(world.run(nexus, RELEASE_6, &[]).status, reserve);
        reserve == Status::Good
    };
    [ONE, TWO].iter().for_each(|&nexus| register(&world, nexus, nexus.0));
    assert_eq!([ONE, TWO, THREE].map(both), [false; 3], "registrations alone conflict");
    for kind in [1, 3, 5, 6, 7, 8] {
        assert_eq!(out(&world, ONE, RESERVE, kind, (1, 0)), Status::Good);
        assert_eq!([ONE, TWO, THREE].map(both), [true, kind >= 5, false], "type {kind}");
        assert_eq!(held(&world).map(|(_, kind)| kind), Some(kind), "untouched");
        assert_eq!(out(&world, ONE, RELEASE, kind, (1, 0)), Status::Good);
        told(&world, TWO);
    }
}

/// SAM-5 5.3.3.
#[test]
fn a_conflict_comes_after_a_reset_and_before_other_attentions() {
    let world = world();
    register(&world, ONE, 1);
    assert_eq!(out(&world, ONE, RESERVE, 3, (1, 0)), Status::Good);
    world.establish(NexusId(9));
    world.units.get(lun(0)).unwrap().capacity_changed();
    let read = || world.run(NexusId(9), [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[]);
    assert_eq!(sense(&read()).additional, AdditionalSense::POWER_ON_OR_RESET_OCCURRED);
    assert_eq!(read().status, Status::ReservationConflict);
    assert_eq!(told(&world, NexusId(9)), Some(AdditionalSense::CAPACITY_DATA_HAS_CHANGED));
}
