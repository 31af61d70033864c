//! Somebody who breaks the rules where connections share something of an adapter: receives, and keys of memory windows.

use sanwire_iscsi::Step;
use sanwire_iscsi::wire::Opcode;
use sanwire_iser::QueuePair;
use sanwire_iser::wire::Window;
use sanwire_iwarp::Stag;
use sanwire_sim::rdma::{Adapter, AdapterPlan};

use super::hostile_by_adapter::{Bare, CREDITS, LENGTH, ping, response};

fn sharing(shared_receives: usize) -> [Adapter; 2] {
    let plan = AdapterPlan { waits_for_receives: true, shared_receives, queue_max: 2000, ..AdapterPlan::plain() };
    [plan; 2].map(Adapter::new)
}

fn with_windows() -> [Adapter; 2] {
    let plan = AdapterPlan { has_memory_windows: true, ..AdapterPlan::plain() };
    [plan; 2].map(Adapter::new)
}

fn is_ping(step: &Step) -> bool {
    matches!(step, Step::Pdu(pdu) if pdu.header.opcode() == Some(Opcode::NopOut))
}

/// What our end was told before the connection ended, it still has.
fn frame_of(bare: &mut Bare) -> sanwire_buffer::Frame {
    bare.ours.withdraw().remove(0).1
}

#[test]
fn who_sends_more_than_was_allowed_loses_its_connection_and_others_keep_theirs() {
    let adapters = sharing(20);
    let [mut greedy, mut modest] = [(); 2].map(|()| Bare::target_on(&adapters));
    for _ in 0..CREDITS {
        greedy.say(ping(), None);
    }
    assert!(greedy.theirs.is_established());
    greedy.say(ping(), None);
    assert!(!greedy.theirs.is_established());
    assert!(greedy.ours.trouble().is_some_and(|why| why.contains("no buffer")), "{:?}", greedy.ours.trouble());
    modest.say(ping(), None);
    assert!(is_ping(&modest.ours.poll()) && modest.theirs.is_established());
    assert_eq!(adapters[1].free_receives(), 20);
    drop((greedy, modest));
    assert_eq!(adapters[1].free_receives(), 20);
}

/// All receives are taken by one, whose messages nobody has looked at: those of others wait, and are not lost.
#[test]
fn messages_wait_while_others_have_all_receives() {
    let adapters = sharing(20);
    let [mut greedy, mut modest] = [(); 2].map(|()| Bare::target_on(&adapters));
    (0..30).for_each(|_| greedy.post(ping(), None).expect("room"));
    assert_eq!(adapters[1].free_receives(), 0);
    modest.say(ping(), None);
    assert!(matches!(modest.ours.poll(), Step::Starving));
    greedy.pass();
    modest.pass();
    assert!(is_ping(&modest.ours.poll()) && greedy.theirs.is_established());
    assert_eq!(std::iter::from_fn(|| is_ping(&greedy.ours.poll()).then_some(())).count(), 30);
    assert_eq!(adapters[1].free_receives(), 20);
}

#[test]
fn a_connection_that_dies_with_messages_that_nobody_took_gives_its_receives_back() {
    let adapters = sharing(20);
    let mut dying = Bare::target_on(&adapters);
    (0..30).for_each(|_| dying.post(ping(), None).expect("room"));
    assert_eq!(adapters[1].free_receives(), 0);
    drop(dying);
    assert_eq!(adapters[1].free_receives(), 20);
    let mut next = Bare::target_on(&adapters);
    next.say(ping(), None);
    assert!(is_ping(&next.ours.poll()));
}

#[test]
fn the_key_of_another_connection_opens_nothing() {
    let adapters = with_windows();
    let [mut honest, mut hostile] = [(); 2].map(|()| Bare::initiator_on(&adapters));
    let theirs = honest.window_of(5, true);
    let own = hostile.window_of(5, true);
    assert_ne!(theirs.stag, own.stag, "they are of one adapter");
    hostile.write(theirs, &[1; LENGTH]);
    assert!(hostile.is_torn());
    honest.write(theirs, &[7; LENGTH]);
    honest.say(response(5), Some(theirs.stag));
    let Step::Pdu(pdu) = honest.ours.poll() else { panic!("no data") };
    assert!(pdu.data.is_some_and(|frame| frame.iter().all(|byte| *byte == 7)));
    assert!(frame_of(&mut hostile).iter().all(|byte| *byte == 0));
}

#[test]
fn the_key_of_another_connection_is_not_ended() {
    let adapters = with_windows();
    let [mut honest, mut hostile] = [(); 2].map(|()| Bare::initiator_on(&adapters));
    let theirs = honest.window_of(5, true);
    hostile.window_of(5, true);
    hostile.say(response(5), Some(theirs.stag));
    assert!(hostile.is_torn());
    honest.write(theirs, &[7; LENGTH]);
    assert!(honest.theirs.is_established());
}

/// The window is used again for the next command, by another key.
#[test]
fn a_key_that_has_ended_opens_nothing_any_more() {
    for is_told in [true, false] {
        let mut bare = Bare::initiator_on(&with_windows());
        let first = bare.window_of(5, true);
        bare.write(first, &[7; LENGTH]);
        bare.say(response(5), Some(first.stag).filter(|_| is_told));
        for expected in [Opcode::DataIn, Opcode::ScsiResponse] {
            let Step::Pdu(pdu) = bare.ours.poll() else { panic!("no {expected:?}") };
            assert_eq!(pdu.header.opcode(), Some(expected));
        }
        let next = bare.window_of(6, true);
        assert_eq!(is_told, next.stag == Stag(first.stag.0 + 1), "{first:?} {next:?}");
        assert_ne!(first.stag, next.stag);
        bare.write(Window { offset: next.offset, ..first }, &[1; LENGTH]);
        assert!(bare.is_torn());
        assert!(frame_of(&mut bare).iter().all(|byte| *byte == 0));
    }
}
