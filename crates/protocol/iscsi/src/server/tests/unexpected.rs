//! An initiator over RDMA that has said how many PDUs it takes which it does not expect (RFC 7145 6.7).

use super::*;
use crate::wire::field::{Field, U32};
use crate::wire::{NopOut, ScsiResponse};

/// The status number of the login's answer is 100.
const FIRST_STATUS: u32 = 101;

/// A session whose initiator takes so many.
fn world(unexpected_max: u32) -> World {
    World::with_session(SessionParameters { unexpected_max, ..parameters() })
}

/// Sends a PDU that only targets send, and acknowledges statuses by it; how many answers there are.
fn provoke(world: &mut World, expected_status: u32) -> usize {
    let mut header = ScsiResponse::default().write();
    U32::<28>::set(&mut header, expected_status);
    world.send(1, header, &[]);
    let sent = world.take(1);
    assert!(sent.iter().all(|(header, _)| header.opcode() == Some(Opcode::Reject)), "{sent:?}");
    sent.len()
}

/// A sign of life that answers a NOP-In.
fn pong(world: &mut World, expected_status: u32) {
    let pong = NopOut { is_immediate: true, is_final: true, task_tag: TAG_NONE, ..NopOut::default() };
    let mut header = NopOut { transfer_tag: 1, ..pong }.write();
    U32::<28>::set(&mut header, expected_status);
    world.send(1, header, &[]);
}

#[test]
fn no_more_rejects_go_out_than_it_has_room_for_until_it_acknowledges_them() {
    let mut world = world(2);
    assert_eq!([(); 3].map(|()| provoke(&mut world, FIRST_STATUS)), [1, 1, 0]);
    assert_eq!([(); 2].map(|()| provoke(&mut world, FIRST_STATUS + 1)), [1, 0], "one is acknowledged");
    // It still works.
    let handle = world.read(5, 512);
    world.reply(handle, Some(vec![1; 512].into()));
    assert!(!world.take(1).is_empty());
}

#[test]
fn as_many_go_out_as_there_are_to_who_has_not_said_how_many() {
    let mut world = world(0);
    assert!((0..100).all(|_| provoke(&mut world, FIRST_STATUS) == 1));
}

#[test]
fn signs_of_life_and_the_wish_that_it_leave_count_too() {
    let mut world = world(2);
    let silence = Duration::from_secs(20);
    world.now += silence;
    world.server.handle_timeout(world.now);
    assert_eq!(world.take_one(1).0.opcode(), Some(Opcode::NopIn));
    assert_eq!([(); 2].map(|()| provoke(&mut world, FIRST_STATUS)), [1, 0]);
    pong(&mut world, FIRST_STATUS);
    assert_eq!([(); 2].map(|()| provoke(&mut world, FIRST_STATUS)), [1, 0], "the answer makes room");
    // There is none to ask for another, nor to say that the session ends, which it does all the same.
    world.now += silence;
    world.server.handle_timeout(world.now);
    assert!(world.take(1).is_empty());
    world.now += silence;
    world.server.handle_timeout(world.now);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionClosed { .. })));
    world.assert_home();
}
