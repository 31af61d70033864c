//! What the owner of a unit ends, who is no initiator.

use std::sync::{Arc, mpsc};

use super::*;
use crate::testing::lun;
use crate::{ClearedReservations, LogicalUnit, NotCleared};

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn unit(world: &World) -> Arc<LogicalUnit> {
    world.units.get(lun(0)).unwrap()
}

pub(super) fn clear(world: &World, key: Option<u64>, forced: bool) -> Result<ClearedReservations, NotCleared> {
    let (sender, told) = mpsc::channel();
    unit(world).state().clear_reservations(key, forced, move |cleared| sender.send(cleared).unwrap());
    told.try_recv().unwrap()
}

#[test]
fn all_are_told_when_everything_is_ended_and_may_write_again() {
    let world = world();
    register(&world, ONE, 1);
    register(&world, TWO, 2);
    assert_eq!(out(&world, ONE, RESERVE, 1, (1, 0)), Status::Good);
    assert_eq!(world.run(THREE, WRITE, &[]).status, Status::ReservationConflict);
    let Err(NotCleared::Connected(who)) = clear(&world, None, false) else { panic!("they are connected") };
    assert_eq!((who.len(), held(&world)), (2, Some((1, 1))), "{who:?}");
    assert_eq!(unit(&world).would_clear_reservations(None, true).unwrap().registrations.len(), 2);
    assert_eq!(held(&world), Some((1, 1)), "it was only looked at");
    let (generation, _) = ask(&world, 0);
    let cleared = clear(&world, None, true).unwrap();
    assert_eq!((cleared.registrations.len(), cleared.kind.map(|kind| kind as u8)), (2, Some(1)));
    assert_eq!((ask(&world, 0), held(&world)), ((generation + 1, vec![]), None));
    for nexus in [ONE, TWO] {
        assert_eq!(told(&world, nexus), Some(AdditionalSense::RESERVATIONS_PREEMPTED));
        assert_eq!(told(&world, nexus), None);
    }
    assert_eq!((told(&world, THREE), world.run(THREE, WRITE, &[]).status), (None, Status::Good));
    assert_eq!(clear(&world, None, false), Ok(ClearedReservations::default()), "there is nothing any more");
    assert_eq!(ask(&world, 0).0, generation + 1);
}

#[test]
fn those_of_one_key_are_ended_and_the_others_stay() {
    let world = world();
    register(&world, ONE, 1);
    register(&world, TWO, 2);
    register(&world, THREE, 2);
    // Exclusive access, registrants only: the others are told when it is over.
    assert_eq!(out(&world, TWO, RESERVE, 6, (2, 0)), Status::Good);
    assert_eq!(clear(&world, Some(7), true), Err(NotCleared::Unknown));
    let cleared = clear(&world, Some(2), true).unwrap();
    assert_eq!((cleared.registrations.len(), cleared.kind.map(|kind| kind as u8)), (2, Some(6)));
    assert_eq!((keys(&world), held(&world)), (vec![1], None));
    assert_eq!(told(&world, ONE), Some(AdditionalSense::RESERVATIONS_RELEASED));
    for nexus in [TWO, THREE] {
        assert_eq!(told(&world, nexus), Some(AdditionalSense::REGISTRATIONS_PREEMPTED));
    }
    // One of several holders goes, and the reservation of all stays with those that are left.
    register(&world, TWO, 2);
    assert_eq!(out(&world, ONE, RESERVE, 8, (1, 0)), Status::Good);
    assert_eq!(clear(&world, Some(2), true).unwrap().kind, None);
    assert_eq!((keys(&world), held(&world)), (vec![1], Some((0, 8))));
    assert_eq!(clear(&world, Some(1), true).unwrap().kind.map(|kind| kind as u8), Some(8));
    assert_eq!((keys(&world), held(&world)), (vec![], None));
}

#[test]
fn who_is_gone_keeps_nobody_from_it() {
    let world = world();
    register(&world, ONE, 1);
    register(&world, TWO, 2);
    assert_eq!(out(&world, ONE, RESERVE, 3, (1, 0)), Status::Good);
    world.units.nexus_lost(ONE);
    assert_eq!(world.run(TWO, READ, &[]).status, Status::ReservationConflict);
    assert!(matches!(clear(&world, Some(2), false), Err(NotCleared::Connected(_))));
    assert!(clear(&world, Some(1), false).unwrap().kind.is_some());
    assert_eq!((keys(&world), world.run(TWO, READ, &[]).status), (vec![2], Status::Good));
}

#[test]
fn reserve_of_spc_2_is_ended_too() {
    let world = world();
    assert_eq!(world.run(ONE, [0x16, 0, 0, 0, 0, 0], &[]).status, Status::Good);
    assert_eq!(world.run(TWO, READ, &[]).status, Status::ReservationConflict);
    assert!(matches!(clear(&world, None, false), Err(NotCleared::Connected(who)) if who.len() == 1));
    assert_eq!(clear(&world, Some(1), true), Err(NotCleared::Unknown));
    assert_eq!(clear(&world, None, true).unwrap().reserved_by, Some(ONE));
    assert_eq!(told(&world, ONE), Some(AdditionalSense::RESERVATIONS_PREEMPTED));
    assert_eq!(world.run(TWO, READ, &[]).status, Status::Good);
}
