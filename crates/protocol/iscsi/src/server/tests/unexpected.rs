//! An initiator over RDMA that has said how many PDUs it takes which it does not expect (RFC 7145 6.7).

use super::*;
use crate::wire::field::{Field, U32};
use crate::wire::{NopIn, NopOut, ScsiResponse};

/// The status number of the login's answer is 100.
const FIRST_STATUS: u32 = 101;

/// A session whose initiator takes so many.
fn world(unexpected_max: u32) -> World {
    World::with_session(SessionParameters { unexpected_max, ..parameters() })
}

/// Sends a PDU that only targets send, and acknowledges statuses by it; how many rejects there are.
fn provoke(world: &mut World, expected_status: u32) -> usize {
    let mut header = ScsiResponse::default().write();
    U32::<28>::set(&mut header, expected_status);
    world.send(1, header, &[]);
    rejects(world)
}

fn rejects(world: &mut World) -> usize {
    let sent = world.take(1);
    assert!(sent.iter().all(|(header, _)| header.opcode() == Some(Opcode::Reject)), "{sent:?}");
    sent.len()
}

/// A sign of life, which answers the NOP-In of a transfer tag.
fn sign(world: &mut World, transfer_tag: u32, expected_status: u32) {
    let sign = NopOut { is_immediate: true, is_final: true, task_tag: TAG_NONE, transfer_tag, ..NopOut::default() };
    let mut header = sign.write();
    U32::<28>::set(&mut header, expected_status);
    world.send(1, header, &[]);
}

/// The connection is silent for so long that it is asked for a sign of life.
fn be_silent(world: &mut World) {
    world.now += Duration::from_secs(20);
    world.server.handle_timeout(world.now);
}

#[test]
fn rejects_wait_until_those_before_them_are_acknowledged() {
    let mut world = world(3);
    assert_eq!([(); 4].map(|()| provoke(&mut world, FIRST_STATUS)), [1, 1, 0, 0], "one place is for a NOP-In");
    sign(&mut world, TAG_NONE, FIRST_STATUS + 9);
    assert_eq!(rejects(&mut world), 0, "a number that is ahead says nothing");
    sign(&mut world, TAG_NONE, FIRST_STATUS + 1);
    assert_eq!(rejects(&mut world), 1);
    sign(&mut world, TAG_NONE, FIRST_STATUS + 3);
    assert_eq!(rejects(&mut world), 1);
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
fn who_takes_no_more_rejects_is_asked_for_a_sign_of_life_and_lives_on() {
    let mut world = world(2);
    assert_eq!([(); 2].map(|()| provoke(&mut world, FIRST_STATUS)), [1, 0]);
    for _ in 0..5 {
        be_silent(&mut world);
        let asked = world.take_one(1).0;
        assert_eq!(asked.opcode(), Some(Opcode::NopIn));
        sign(&mut world, NopIn::read(&asked).transfer_tag, FIRST_STATUS);
        assert_eq!(rejects(&mut world), 0);
    }
    assert!(world.server.poll_event().is_none());
}

#[test]
fn a_second_question_waits_for_the_answer_to_the_first() {
    let mut world = world(2);
    be_silent(&mut world);
    let asked = world.take_one(1).0;
    // It says something, but no answer.
    sign(&mut world, TAG_NONE, FIRST_STATUS);
    be_silent(&mut world);
    assert!(world.take(1).is_empty());
    sign(&mut world, NopIn::read(&asked).transfer_tag, FIRST_STATUS);
    be_silent(&mut world);
    assert_eq!(world.take_one(1).0.opcode(), Some(Opcode::NopIn));
}

#[test]
fn the_wish_that_it_leave_waits_too() {
    let mut world = world(2);
    assert_eq!(provoke(&mut world, FIRST_STATUS), 1);
    world.server.shut_down(world.now);
    assert!(world.take(1).is_empty());
    sign(&mut world, TAG_NONE, FIRST_STATUS + 1);
    assert_eq!(world.take_one(1).0.opcode(), Some(Opcode::AsyncMessage));
}
