//! How many registrations there may be, and whose.

use super::rules::iscsi;
use super::*;
use crate::testing::{lun, ports};
use sanwire_core::quota::REGISTRATIONS;

/// What is left when one quarter is kept for those who register themselves.
const SHARED: u64 = REGISTRATIONS.limit / 4 * 3;

/// Made-up initiators.
fn many(count: u64) -> Vec<TransportId> {
    (0..count).map(|number| ports(1000 + number, 1).initiator.clone()).collect()
}

fn is_refused(reply: &Reply) -> bool {
    reply.status == Status::CheckCondition
        && sense(reply) == illegal(AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES)
}

/// A volume of which one client has registered as many initiators as it may.
fn crowded() -> World {
    let world = world();
    assert!(is_refused(&send(&world, ONE, REGISTER, 0, &list_with(0, 5, 0, &many(SHARED)))));
    assert_eq!(keys(&world), [0; 0], "nothing has happened");
    assert_eq!(send(&world, ONE, REGISTER, 0, &list_with(0, 5, 0, &many(SHARED - 1))).status, Status::Good);
    world
}

#[test]
fn who_registers_initiators_without_number_leaves_room_for_others_to_fence_it_off() {
    let world = crowded();
    assert_eq!(out(&world, ONE, RESERVE, 1, (5, 0)), Status::Good);
    let moved = move_list((5, 5), 0, 1, &ports(9, 1).initiator);
    assert!(is_refused(&send(&world, ONE, REGISTER_AND_MOVE, 0, &moved)), "nor by moving its reservation");
    let pair = list_with(0, 6, 0, &[ports(9, 1).initiator.clone()]);
    assert!(is_refused(&send(&world, TWO, REGISTER, 0, &pair)), "what is kept is for who registers itself");
    assert_eq!(out(&world, TWO, REGISTER, 0, (0, 6)), Status::Good);
    assert_eq!(out(&world, TWO, PREEMPT, 1, (6, 5)), Status::Good);
    assert_eq!((keys(&world), held(&world)), (vec![6], Some((6, 1))));
    let usage = world.units.get(lun(0)).unwrap().quotas()[0];
    assert_eq!((usage.most, usage.refused), (Some(SHARED + 1), 3));
}

#[test]
fn who_registers_itself_by_ever_more_ports_takes_few_of_what_is_kept() {
    let world = crowded();
    (100..120).for_each(|nexus| iscsi(&world, nexus, nexus as u8));
    let taken = (100..120).filter(|nexus| out(&world, NexusId(*nexus), REGISTER, 0, (0, 7)) == Status::Good);
    assert_eq!(taken.count(), 16);
    assert_eq!(out(&world, TWO, REGISTER, 0, (0, 6)), Status::Good);
}

#[test]
fn a_registration_that_is_changed_needs_no_room() {
    let world = crowded();
    assert_eq!(out(&world, ONE, REGISTER, 0, (5, 8)), Status::Good);
    assert_eq!(out(&world, ONE, CLEAR, 0, (8, 0)), Status::Good);
    register(&world, TWO, 6);
    let taken = list_with(0, 5, 0, &[ports(TWO.0, 1).initiator.clone()]);
    assert_eq!(send(&world, ONE, REGISTER, 0, &taken).status, Status::ReservationConflict);
}
