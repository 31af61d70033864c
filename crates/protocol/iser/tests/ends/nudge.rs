//! A target that sleeps through the login: Linux' software iWARP reads what came before it watched its socket only when something else
//! comes.

use std::time::Duration;

use sanwire_iscsi::ClientEvent;

use super::world::{World, config, name};

/// FPDU of 14 bytes: tagged, last, an RDMA Write, to key 0 at offset 0; and its CRC.
const NUDGE_START: [u8; 16] = [0, 14, 0xc1, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const NUDGE_BYTES: usize = NUDGE_START.len() + 4;
const NUDGE_AFTER: Duration = Duration::from_millis(100);

/// A client that has asked for an RDMA connection, and has the answer.
fn connected() -> World {
    let mut world = World::new(config(Some(name())), usize::MAX);
    world.order(0, 0, None, 0);
    assert!(world.step() && world.sent.len() == 2, "a request and its answer");
    world
}

/// What passes next to the target.
fn next(world: &mut World) -> Vec<u8> {
    let before = world.sent.len();
    world.step();
    let (_, bytes) = world.sent[before..].iter().find(|(to_target, _)| *to_target).expect("something to the target");
    bytes.clone()
}

fn is_nudge(bytes: &[u8]) -> bool {
    bytes.len() == NUDGE_BYTES && bytes.starts_with(&NUDGE_START)
}

/// Whether nothing is due before the session asks for a sign of life.
fn is_left_alone(world: &World) -> bool {
    world.client.poll_timeout().is_some_and(|at| at >= world.now + Duration::from_secs(1))
}

#[test]
fn a_target_that_has_slept_through_the_login_is_nudged() {
    let mut world = connected();
    let mut after = NUDGE_AFTER;
    for _ in 0..3 {
        let began = world.now;
        world.pass_time();
        assert_eq!(world.now, began + after);
        world.drain();
        after *= 2;
    }
    let bytes = next(&mut world);
    let (login, nudges) = bytes.split_at(bytes.len() - 3 * NUDGE_BYTES);
    assert!(nudges.chunks(NUDGE_BYTES).all(is_nudge), "{nudges:02x?}");
    assert!(!login.is_empty() && !is_nudge(login), "the login is before them");
    world.settle();
    assert!(matches!(world.events[0], ClientEvent::Connected { .. }), "{:?}", world.events);
    assert!(is_left_alone(&world), "a target that answers");
}

#[test]
fn what_has_not_been_sent_cannot_have_been_slept_through() {
    let mut world = World::new(config(Some(name())), usize::MAX);
    world.drain();
    world.pass_time();
    world.drain();
    let request = next(&mut world);
    assert!(request.starts_with(b"MPA ID Req Frame") && request.len() == 28, "{request:02x?}");
}

#[test]
fn a_login_that_is_answered_goes_without() {
    let mut world = connected();
    world.settle();
    assert!(is_left_alone(&world));
}
