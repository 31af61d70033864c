use super::*;
use crate::testing::{lun, ports, task};
use crate::{NexusPorts, Progress};
use sanwire_core::Principal;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Extent, Task};
use sanwire_store::Outcome;
use std::sync::Arc;

#[test]
fn capabilities_are_told() {
    assert_eq!(world().good([0x5e, 2, 0, 0, 0, 0, 0, 0, 8, 0], &[]), [0, 8, 0x1c, 0xb0, 0xea, 1, 0, 0]);
    for action in 4..32 {
        assert_eq!(world().bad([0x5e, action, 0, 0, 0, 0, 0, 0, 8, 0], &[]), Sense::invalid_field_in_cdb(1, Some(4)));
    }
}

#[test]
fn a_key_is_registered_changed_and_taken_back() {
    let world = world();
    assert_eq!(out(&world, ONE, REGISTER, 0, (5, 7)), Status::ReservationConflict, "not registered with 5");
    assert_eq!(out(&world, ONE, REGISTER, 0, (0, 0)), Status::Good);
    assert_eq!(ask(&world, 0), (0, vec![]), "nothing was done");
    assert_eq!(out(&world, ONE, REGISTER, 0, (0, 7)), Status::Good);
    assert_eq!(out(&world, ONE, REGISTER, 0, (0, 8)), Status::ReservationConflict);
    assert_eq!((keys(&world), ask(&world, 0).0), (vec![7], 1));
    assert_eq!(out(&world, ONE, REGISTER, 0, (7, 8)), Status::Good);
    assert_eq!(out(&world, ONE, REGISTER_AND_IGNORE, 0, (99, 9)), Status::Good);
    assert_eq!((keys(&world), ask(&world, 0).0), (vec![9], 3));
    assert_eq!(world.good([0x5e, 0, 0, 0, 0, 0, 0, 0, 9, 0], &[]), [0, 0, 0, 3, 0, 0, 0, 8, 0], "cut");
    assert_eq!(out(&world, ONE, REGISTER, 0, (9, 0)), Status::Good);
    assert_eq!((keys(&world), ask(&world, 0).0), (vec![], 4));
}

#[test]
fn a_registration_outlives_its_nexus() {
    let world = world();
    register(&world, ONE, 7);
    assert_eq!(out(&world, ONE, RESERVE, 3, (7, 0)), Status::Good);
    world.units.nexus_lost(ONE);
    let again = NexusId(9);
    world.units.nexus_established(again, ports(ONE.0, 1));
    told(&world, again);
    let read = build::read_16(Extent { lba: 0, blocks: 1 });
    assert_eq!(world.run(again, read, &[]).status, Status::Good);
    assert_eq!(world.run(TWO, read, &[]).status, Status::ReservationConflict);
    world.units.nexus_established(NexusId(10), ports(ONE.0, 2));
    told(&world, NexusId(10));
    assert_eq!(world.run(NexusId(10), read, &[]).status, Status::ReservationConflict, "by another target port");
    assert!(world.units.logical_unit_reset(lun(0)));
    told(&world, again);
    told(&world, TWO);
    assert_eq!(world.run(TWO, read, &[]).status, Status::ReservationConflict, "a reset changes nothing");
    assert_eq!(out(&world, again, RELEASE, 3, (7, 0)), Status::Good);
}

/// The other one has written, and is gone, when they come: no reservation is in their way.
#[test]
fn nothing_is_written_that_was_given_before_a_preemption_was_heard_of() {
    for action in [PREEMPT, PREEMPT_AND_ABORT, CLEAR] {
        let world = world();
        [ONE, TWO].iter().for_each(|&nexus| register(&world, nexus, nexus.0));
        assert_eq!(out(&world, ONE, RESERVE, 7, (1, 0)), Status::Good);
        assert_eq!(out(&world, TWO, action, 7, (2, 1)), Status::Good);
        if action != CLEAR {
            assert_eq!(out(&world, TWO, RELEASE, 7, (2, 0)), Status::Good);
            assert_eq!(out(&world, TWO, REGISTER, 0, (2, 0)), Status::Good);
        }
        let had = world.receipts.lock().unwrap().issued();
        let write = || Task { receipts: had, ..task(build::write_16(Extent { lba: 0, blocks: 1 }, false), &[9; 512]) };
        world.store.take_log();
        for _ in 0..100 {
            assert_eq!(world.run_task(ONE, write()).status, Status::CheckCondition);
        }
        assert_eq!(world.store.take_log(), []);
        assert_eq!(told(&world, ONE), None, "it has heard that");
        assert_eq!(world.run_task(ONE, write()).status, Status::Good);
    }
}

#[test]
fn releasing_is_for_the_holder_and_tells_registrants() {
    let world = world();
    [ONE, TWO].iter().for_each(|&nexus| register(&world, nexus, nexus.0));
    assert_eq!(out(&world, THREE, RESERVE, 5, (0, 0)), Status::ReservationConflict, "not registered");
    assert_eq!(out(&world, ONE, RESERVE, 5, (2, 0)), Status::ReservationConflict, "another's key");
    for kind in [1, 3, 5, 6, 7, 8] {
        assert_eq!(out(&world, ONE, RESERVE, kind, (1, 0)), Status::Good);
        assert_eq!(out(&world, ONE, RESERVE, kind, (1, 0)), Status::Good, "again");
        let other = if kind == 1 { 3 } else { 1 };
        assert_eq!(out(&world, ONE, RESERVE, other, (1, 0)), Status::ReservationConflict, "as another type");
        let joins = if kind >= 7 { Status::Good } else { Status::ReservationConflict };
        assert_eq!(out(&world, TWO, RESERVE, kind, (2, 0)), joins);
        let wrong = send(&world, ONE, RELEASE, other, &list(1, 0, 0));
        assert_eq!(sense(&wrong), illegal(AdditionalSense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION));
        if kind < 7 {
            assert_eq!(out(&world, TWO, RELEASE, kind, (2, 0)), Status::Good, "not its own: nothing happens");
        }
        assert_eq!(held(&world), Some((if kind >= 7 { 0 } else { 1 }, kind)));
        assert_eq!(out(&world, ONE, RELEASE, kind, (1, 0)), Status::Good);
        assert_eq!(held(&world), None);
        let released = (kind >= 5).then_some(AdditionalSense::RESERVATIONS_RELEASED);
        assert_eq!((told(&world, TWO), told(&world, ONE), told(&world, THREE)), (released, None, None), "{kind}");
    }
    assert_eq!(ask(&world, 0).0, 2, "only registering has counted");
}

#[test]
fn who_unregisters_gives_up_what_it_holds() {
    let world = world();
    for kind in [1, 3, 5, 6, 7, 8] {
        [ONE, TWO].iter().for_each(|&nexus| register(&world, nexus, nexus.0));
        assert_eq!(out(&world, ONE, RESERVE, kind, (1, 0)), Status::Good);
        assert_eq!(out(&world, ONE, REGISTER, 0, (1, 0)), Status::Good);
        assert_eq!(held(&world).is_some(), kind >= 7, "the others hold type {kind} as well");
        let is_told = matches!(kind, 5 | 6);
        assert_eq!(told(&world, TWO), is_told.then_some(AdditionalSense::RESERVATIONS_RELEASED));
        assert_eq!(out(&world, TWO, REGISTER, 0, (2, 0)), Status::Good);
        assert_eq!((held(&world), keys(&world)), (None, vec![]), "the last one is gone");
    }
}

#[test]
fn clear_ends_all_and_tells_all() {
    let world = world();
    [ONE, TWO].iter().for_each(|&nexus| register(&world, nexus, nexus.0));
    assert_eq!(out(&world, ONE, RESERVE, 3, (1, 0)), Status::Good);
    assert_eq!(out(&world, THREE, CLEAR, 0, (0, 0)), Status::ReservationConflict);
    assert_eq!(out(&world, TWO, CLEAR, 0, (2, 0)), Status::Good);
    assert_eq!((held(&world), ask(&world, 0)), (None, (3, vec![])));
    assert_eq!(told(&world, ONE), Some(AdditionalSense::RESERVATIONS_PREEMPTED));
    assert_eq!((told(&world, TWO), told(&world, THREE)), (None, None));
}

#[test]
fn preempting_takes_over_or_strikes_out() {
    let world = world();
    [(ONE, 1), (TWO, 2), (THREE, 2)].iter().for_each(|&(nexus, key)| register(&world, nexus, key));
    assert_eq!(out(&world, ONE, PREEMPT, 3, (1, 9)), Status::ReservationConflict, "nobody has 9");
    let no_key = send(&world, ONE, PREEMPT, 3, &list(1, 0, 0));
    assert_eq!(sense(&no_key), Sense::invalid_field_in_parameters(8, None));
    assert_eq!(out(&world, ONE, PREEMPT, 0x44, (1, 2)), Status::Good, "scope and type do not matter");
    assert_eq!((keys(&world), held(&world)), (vec![1], None));
    let preempted = Some(AdditionalSense::REGISTRATIONS_PREEMPTED);
    assert_eq!((told(&world, TWO), told(&world, THREE), told(&world, ONE)), (preempted, preempted, None));

    [TWO, THREE].iter().for_each(|&nexus| register(&world, nexus, nexus.0));
    assert_eq!(out(&world, ONE, RESERVE, 5, (1, 0)), Status::Good);
    let bad_type = send(&world, TWO, PREEMPT, 4, &list(2, 1, 0));
    assert_eq!(sense(&bad_type), Sense::invalid_field_in_cdb(2, Some(3)));
    assert_eq!((keys(&world), held(&world)), (vec![1, 2, 3], Some((1, 5))), "nothing has changed");
    assert_eq!(out(&world, TWO, PREEMPT, 3, (2, 1)), Status::Good);
    assert_eq!((keys(&world), held(&world)), (vec![2, 3], Some((2, 3))));
    let released = Some(AdditionalSense::RESERVATIONS_RELEASED);
    assert_eq!((told(&world, ONE), told(&world, TWO), told(&world, THREE)), (preempted, None, released));

    assert_eq!(out(&world, TWO, PREEMPT, 8, (2, 2)), Status::Good, "itself, for another type");
    assert_eq!((told(&world, THREE), held(&world)), (released, Some((0, 8))));
    assert_eq!(out(&world, THREE, PREEMPT, 1, (3, 0)), Status::Good, "all of all registrants");
    assert_eq!((told(&world, TWO), keys(&world), held(&world)), (preempted, vec![3], Some((3, 1))));
}

#[test]
fn preempt_and_abort_names_the_commands_to_end() {
    let world = world();
    [ONE, TWO].iter().for_each(|&nexus| register(&world, nexus, nexus.0));
    let other_disk = world.units.add(lun(1), crate::testing::disk("b", world.store.clone(), true)).unwrap();
    let cdb = [0x5f, PREEMPT_AND_ABORT, 0, 0, 0, 0, 0, 0, 24, 0];
    told(&world, ONE);
    let progress = world.begin(ONE, task(cdb, &list(1, 2, 0)));
    let Progress::Abort(execution, scope) = progress else { panic!("{progress:?}") };
    let disk = world.units.get(lun(0)).unwrap();
    assert!(scope.covers(disk.id(), TWO) && !scope.covers(disk.id(), ONE) && !scope.covers(disk.id(), THREE));
    assert!(!scope.covers(other_disk.id(), TWO), "another disk");
    let Progress::Done(reply) = world.units.resume(execution, Ok(Outcome::Done), &world.memory) else { panic!() };
    assert_eq!((reply.status, keys(&world)), (Status::Good, vec![1]));
}

/// It says nothing of whether its answer was heard before further commands were given.
#[test]
fn request_sense_tells_of_a_preemption_and_does_not_end_it() {
    let world = world();
    [ONE, TWO].iter().for_each(|&nexus| register(&world, nexus, nexus.0));
    assert_eq!(out(&world, TWO, PREEMPT, 3, (2, 1)), Status::Good);
    for _ in 0..2 {
        let asked = world.run(ONE, build::request_sense(18), &[]);
        let told = Sense::parse(&asked.data_in.unwrap().to_vec()).unwrap();
        assert_eq!(told.additional, AdditionalSense::REGISTRATIONS_PREEMPTED);
    }
    let write = task(build::write_16(Extent { lba: 0, blocks: 1 }, false), &[9; 512]);
    assert_eq!(sense(&world.run_task(ONE, write)).additional, AdditionalSense::REGISTRATIONS_PREEMPTED);
}

/// Two sessions of a client are one registrant where the wire knows a client by its id alone.
#[test]
fn who_preempts_its_own_key_is_told_of_to_other_sessions_of_its_port() {
    for action in [PREEMPT, PREEMPT_AND_ABORT] {
        let (world, successor) = (world(), NexusId(9));
        register(&world, ONE, 7);
        assert_eq!(out(&world, ONE, RESERVE, 1, (7, 0)), Status::Good);
        world.units.nexus_established(successor, ports(ONE.0, 1));
        told(&world, successor);
        register(&world, successor, 8);
        assert_eq!(told(&world, ONE), None, "the reservation is still what it was");
        let had = world.receipts.lock().unwrap().issued();
        let progress = world.begin(successor, task([0x5f, action, 1, 0, 0, 0, 0, 0, 24, 0], &list(8, 8, 0)));
        match (action, progress) {
            (PREEMPT, Progress::Done(reply)) => assert_eq!(reply.status, Status::Good),
            (PREEMPT_AND_ABORT, Progress::Abort(execution, scope)) => {
                let disk = world.units.get(lun(0)).unwrap().id();
                assert!(scope.covers(disk, ONE) && !scope.covers(disk, successor) && !scope.covers(disk, TWO));
                assert_eq!(world.finish(Progress::Abort(execution, scope)).status, Status::Good);
            }
            (_, progress) => panic!("{progress:?}"),
        }
        assert_eq!((keys(&world), held(&world)), (vec![8], Some((8, 1))));
        let write =
            |receipts| Task { receipts, ..task(build::write_16(Extent { lba: 0, blocks: 1 }, false), &[9; 512]) };
        for _ in 0..3 {
            assert_eq!(sense(&world.run_task(ONE, write(had))).additional, AdditionalSense::REGISTRATIONS_PREEMPTED);
        }
        assert_eq!(world.run_task(successor, write(0)).status, Status::Good);
        assert_eq!(told(&world, TWO), None);
    }
}

#[test]
fn a_reservation_moves_to_a_port_that_may_come_later() {
    let world = world();
    register(&world, ONE, 1);
    let to = ports(77, 2).initiator.clone();
    let go = |flags, keys, id: &TransportId| send(&world, ONE, REGISTER_AND_MOVE, 0, &move_list(keys, flags, 2, id));
    assert_eq!(go(0, (1, 5), &to).status, Status::ReservationConflict, "nothing is held");
    assert_eq!(out(&world, ONE, RESERVE, 7, (1, 0)), Status::Good);
    assert_eq!(go(0, (1, 5), &to).status, Status::ReservationConflict, "held by all");
    assert_eq!(out(&world, ONE, PREEMPT, 3, (1, 0)), Status::Good);
    assert_eq!(go(0, (2, 5), &to).status, Status::ReservationConflict, "not its key");
    let own = send(&world, ONE, REGISTER_AND_MOVE, 0, &move_list((1, 5), 0, 1, &ports(1, 1).initiator));
    assert_eq!(sense(&own), Sense::invalid_field_in_parameters(24, None));
    assert_eq!(go(0, (1, 5), &to).status, Status::Good);
    assert_eq!((held(&world), keys(&world)), (Some((5, 3)), vec![1, 5]));
    assert_eq!(go(2, (1, 6), &to).status, Status::ReservationConflict, "no longer the holder");
    world.units.nexus_established(NexusId(9), ports(77, 2));
    told(&world, NexusId(9));
    let back = move_list((5, 1), 2, 1, &ports(1, 1).initiator);
    assert_eq!(send(&world, NexusId(9), REGISTER_AND_MOVE, 0, &back).status, Status::Good, "and unregister");
    assert_eq!((held(&world), keys(&world)), (Some((1, 3)), vec![1]));
}

#[test]
fn one_registration_may_stand_for_all_target_ports() {
    let world = world();
    let by_two = NexusId(9);
    world.units.nexus_established(by_two, ports(1, 2));
    told(&world, by_two);
    register(&world, by_two, 3);
    assert_eq!(send(&world, ONE, REGISTER, 0, &list(0, 4, ALL_PORTS)).status, Status::ReservationConflict);
    assert_eq!(send(&world, ONE, REGISTER_AND_IGNORE, 0, &list(0, 4, ALL_PORTS)).status, Status::Good);
    let (_, status) = ask(&world, 3);
    assert_eq!((keys(&world), status[12] & 2, &status[18..20]), (vec![4], 2, &[0, 0][..]));
    assert_eq!(out(&world, by_two, RESERVE, 3, (4, 0)), Status::Good);
    assert_eq!(out(&world, ONE, RELEASE, 3, (4, 0)), Status::Good, "the same registrant by another port");
    assert_eq!(out(&world, by_two, REGISTER, 0, (4, 0)), Status::Good);
    assert_eq!(keys(&world), [0; 0]);
}

/// A nexus by another port of one iSCSI initiator.
pub(super) fn iscsi(world: &World, nexus: u64, isid: u8) {
    let initiator = TransportId::iscsi_port("iqn.2026-11.org.example:host", [0, 0, 0, 0, 0, isid]).unwrap();
    world.units.nexus_established(
        NexusId(nexus),
        Arc::new(NexusPorts { initiator, target: TargetPort::default(), principal: Principal::default() }),
    );
    told(world, NexusId(nexus));
}

#[test]
fn an_initiators_name_stands_for_its_known_ports() {
    let world = world();
    let device = TransportId::iscsi_device("iqn.2026-11.org.example:host").unwrap();
    let go = |world: &World| send(world, ONE, REGISTER, 0, &list_with(0, 5, 0, std::slice::from_ref(&device)));
    assert_eq!(sense(&go(&world)), Sense::invalid_field_in_parameters(28, None), "none is known");
    (20..23).for_each(|nexus| iscsi(&world, nexus, nexus as u8));
    assert_eq!(go(&world).status, Status::Good);
    assert_eq!(keys(&world), [5; 4]);
    assert_eq!(out(&world, NexusId(21), RESERVE, 1, (5, 0)), Status::Good);
    let late = NexusId(30);
    iscsi(&world, 30, 30);
    assert_eq!(out(&world, late, RESERVE, 1, (5, 0)), Status::ReservationConflict, "it came later");
}

#[test]
fn lists_that_are_not_all_there_are_refused() {
    let world = world();
    let error = illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(world.bad([0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], &[0; 23]), error, "less data than the CDB says");
    assert_eq!(world.bad([0x5f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0], &[0; 24]), error);
    assert_eq!(world.bad([0x5f, 0, 0, 0, 0, 0, 0, 0, 23, 0], &[0; 24]), error, "a shorter list");
    assert_eq!(world.bad([0x5f, 0, 0, 0, 0, 0, 0, 0, 25, 0], &[0; 25]), error, "a longer list");
    let kept = send(&world, ONE, REGISTER, 0, &list(0, 1, KEEP));
    assert_eq!(sense(&kept), Sense::invalid_field_in_parameters(20, Some(0)), "nothing can be kept");
    assert_eq!(keys(&world), [0; 0]);
}
