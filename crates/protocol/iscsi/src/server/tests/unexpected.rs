//! An initiator over RDMA that has said how many PDUs it takes which it does not expect (RFC 7145 6.7).

use super::*;
use crate::wire::field::{Field, U32};
use crate::wire::{NopIn, NopOut, ScsiResponse};

/// The status number of the login's answer is 100.
const FIRST_STATUS: u32 = 101;

const REJECT: Opcode = Opcode::Reject;

/// A session whose initiator takes so many.
fn world(unexpected_max: u32) -> World {
    World::with_session(SessionParameters { unexpected_max, ..parameters() })
}

/// Sends a PDU that only targets send, which acknowledges nothing; what comes back.
fn provoke(world: &mut World) -> Vec<Opcode> {
    provoke_more(world);
    said(world)
}

/// Without a look at what comes back.
fn provoke_more(world: &mut World) {
    let mut header = ScsiResponse::default().write();
    U32::<28>::set(&mut header, FIRST_STATUS);
    world.send(1, header, &[]);
}

fn said(world: &mut World) -> Vec<Opcode> {
    world.take(1).iter().map(|(header, _)| header.opcode().unwrap()).collect()
}

/// The one thing that is said is a NOP-In that asks; its tag.
fn question(world: &mut World) -> u32 {
    let (header, _) = world.take_one(1);
    assert_eq!(header.opcode(), Some(Opcode::NopIn));
    NopIn::read(&header).transfer_tag
}

/// A sign of life, which answers the NOP-In of a transfer tag.
fn sign(world: &mut World, transfer_tag: u32, expected_status: u32) {
    ping(world, TAG_NONE, transfer_tag, expected_status);
}

/// The same, which also asks by a task tag.
fn ping(world: &mut World, task_tag: u32, transfer_tag: u32, expected_status: u32) {
    let sign = NopOut { is_immediate: true, is_final: true, task_tag, transfer_tag, ..NopOut::default() };
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
    assert_eq!(provoke(&mut world), [REJECT]);
    assert_eq!(provoke(&mut world), [REJECT]);
    assert_eq!(provoke(&mut world), [Opcode::NopIn], "one place is for a question");
    assert_eq!(provoke(&mut world), []);
    sign(&mut world, TAG_NONE, FIRST_STATUS + 9);
    assert_eq!(said(&mut world), [], "a number that is ahead says nothing");
    sign(&mut world, TAG_NONE, FIRST_STATUS + 1);
    assert_eq!(said(&mut world), [REJECT]);
    sign(&mut world, TAG_NONE, FIRST_STATUS + 3);
    assert_eq!(said(&mut world), [REJECT]);
    // It still works.
    let handle = world.read(5, 512);
    world.reply(handle, Some(vec![1; 512].into()));
    assert!(!world.take(1).is_empty());
}

#[test]
fn what_waits_is_asked_for_until_all_of_it_is_said() {
    let mut world = world(2);
    assert_eq!(provoke(&mut world), [REJECT]);
    for _ in 0..3 {
        provoke_more(&mut world);
    }
    let mut tag = question(&mut world);
    for number in 1..=3 {
        sign(&mut world, tag, FIRST_STATUS + number);
        let sent = world.take(1);
        let kinds: Vec<_> = sent.iter().map(|(header, _)| header.opcode().unwrap()).collect();
        let expected = [REJECT, Opcode::NopIn];
        assert_eq!(kinds, expected[..if number < 3 { 2 } else { 1 }]);
        tag = sent.last().map_or(TAG_NONE, |(header, _)| NopIn::read(header).transfer_tag);
    }
}

/// What it says before it answers makes room, and the answer, which is older than what came of that, makes none.
#[test]
fn what_goes_out_while_a_question_is_open_is_asked_for_when_that_is_answered() {
    let mut world = world(2);
    assert_eq!(provoke(&mut world), [REJECT]);
    provoke_more(&mut world);
    provoke_more(&mut world);
    let tag = question(&mut world);
    sign(&mut world, TAG_NONE, FIRST_STATUS + 1);
    assert_eq!(said(&mut world), [REJECT]);
    sign(&mut world, tag, FIRST_STATUS + 1);
    let tag = question(&mut world);
    sign(&mut world, tag, FIRST_STATUS + 2);
    assert_eq!(said(&mut world), [REJECT]);
}

#[test]
fn as_many_go_out_as_there_are_to_who_has_not_said_how_many() {
    let mut world = world(0);
    assert!((0..100).all(|_| provoke(&mut world) == [REJECT]));
}

#[test]
fn who_takes_no_more_rejects_is_asked_for_a_sign_of_life_and_lives_on() {
    let mut world = world(2);
    assert_eq!(provoke(&mut world), [REJECT]);
    provoke_more(&mut world);
    let mut tag = question(&mut world);
    for _ in 0..5 {
        // It acknowledges nothing.
        sign(&mut world, tag, FIRST_STATUS);
        assert_eq!(said(&mut world), [], "it is not asked again at once");
        be_silent(&mut world);
        tag = question(&mut world);
    }
    assert!(world.server.poll_event().is_none());
}

#[test]
fn a_second_question_waits_for_the_answer_to_the_first() {
    let mut world = world(2);
    be_silent(&mut world);
    let tag = question(&mut world);
    // It says something, but no answer.
    sign(&mut world, TAG_NONE, FIRST_STATUS);
    be_silent(&mut world);
    assert_eq!(said(&mut world), []);
    sign(&mut world, tag, FIRST_STATUS);
    be_silent(&mut world);
    question(&mut world);
}

/// RFC 7143 11.18: one NOP-Out may do both.
#[test]
fn an_answer_that_asks_itself_is_one() {
    let mut world = world(2);
    for round in 0..3 {
        be_silent(&mut world);
        let tag = question(&mut world);
        ping(&mut world, 9, tag, FIRST_STATUS + round);
        let (echo, _) = world.take_one(1);
        assert_eq!((echo.opcode(), echo.task_tag()), (Some(Opcode::NopIn), 9));
    }
    assert!(world.server.poll_event().is_none());
}

#[test]
fn the_wish_that_it_leave_waits_too_and_is_asked_for() {
    let mut world = world(2);
    assert_eq!(provoke(&mut world), [REJECT]);
    world.server.shut_down(world.now);
    let tag = question(&mut world);
    sign(&mut world, tag, FIRST_STATUS + 1);
    assert_eq!(said(&mut world), [Opcode::AsyncMessage]);
}

#[test]
fn a_session_that_is_dropped_is_told_so_in_the_last_place() {
    for (unexpected_max, has_asked, expected) in
        [(2, false, &[Opcode::AsyncMessage][..]), (2, true, &[]), (3, true, &[Opcode::AsyncMessage])]
    {
        let mut world = world(unexpected_max);
        assert_eq!(provoke(&mut world), [REJECT]);
        if has_asked {
            be_silent(&mut world);
            question(&mut world);
        }
        world.server.drop_session(NexusId(1));
        assert_eq!(said(&mut world), expected, "{unexpected_max} {has_asked}");
    }
}
