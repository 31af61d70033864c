//! Pauses of data: asked by either end, and told by a server that has no memory for what comes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::path;
use super::world::{MS, World, bytes};

#[test]
fn what_finds_no_memory_is_kept_back_until_there_is_some_and_what_needs_none_goes_on() {
    let mut world = World::new();
    let held = world.all_memory();
    world.order(50_000);
    world.order(0);
    world.pass(2 * MS);
    assert_eq!(world.come(), [0], "what needs no memory does not wait");
    let sent = world.sent;
    world.pass(100 * MS);
    assert!(world.sent <= sent + 2, "{} packets that find no memory", world.sent - sent);
    world.pass(Duration::from_secs(5));
    // Each time that the pause has passed there is one attempt, of a window at the most.
    assert!(world.sent <= sent + 25 * 15, "{} packets that find no memory", world.sent - sent);
    world.order(0);
    world.pass(2 * MS);
    assert_eq!(world.come(), [0], "nor later");
    drop(held);
    world.pass(30 * MS);
    assert_eq!(world.come(), [50_000], "it goes when there is memory");
    world.pass(2 * MS);
    assert_eq!(world.answers(), 3);
}

#[test]
fn memory_in_holes_is_no_room_for_what_does_not_fit_into_one() {
    let mut world = World::new();
    let units: Vec<_> = std::iter::from_fn(|| world.server.config.memory.frame(1)).collect();
    let (held, freed): (Vec<_>, Vec<_>) = units.into_iter().enumerate().partition(|(index, _)| index % 2 == 0);
    drop(freed);
    assert!(world.server.config.memory.free_bytes() > 2 * 50_000);
    world.order(50_000);
    world.pass(Duration::from_secs(5));
    assert!(world.sent <= 25 * 15, "{} packets that find no memory", world.sent);
    drop(held);
    world.pass(30 * MS);
    assert_eq!(world.come(), [50_000]);
}

#[test]
fn the_word_that_there_is_memory_is_said_until_it_is_heard() {
    let mut world = World::new();
    let held = world.all_memory();
    world.order(50_000);
    // Just after an attempt: the next one by itself is far.
    while world.server.counters().no_memory == 0 {
        world.pass(MS);
    }
    world.pass(10 * MS);
    drop(held);
    let mut lost = 0;
    world.run(10 * MS, &mut |_| {
        lost += 1;
        lost == 1
    });
    assert!(lost > 0 && world.come().is_empty(), "the word was lost");
    world.pass(100 * MS);
    assert_eq!(world.come(), [50_000]);
}

#[test]
fn a_pause_for_want_of_memory_ends_also_when_no_word_comes() {
    let mut world = World::new();
    let held = world.all_memory();
    world.order(50_000);
    world.pass(10 * MS);
    let count = world.server.counters().no_memory;
    assert!(count > 0);
    drop(held);
    // The server has forgotten that it owes a word.
    world.server.starved.clear();
    world.pass(100 * MS);
    assert_eq!((world.come().len(), world.server.counters().no_memory), (0, count), "it waits");
    world.pass(200 * MS);
    assert_eq!(world.come(), [50_000]);
}

#[test]
fn a_pause_that_is_overtaken_by_its_end_changes_nothing() {
    let mut world = World::new();
    let id = super::id(1);
    let said = |world: &mut World, is_paused: bool| {
        world.server.pause(id, is_paused, world.now);
        bytes(&world.server.poll_transmit(world.now).unwrap().1)
    };
    let (pause, resume) = (said(&mut world, true), said(&mut world, false));
    world.client.handle_input(path(1), &resume, world.now);
    world.client.handle_input(path(1), &pause, world.now);
    world.order(50_000);
    world.pass(10 * MS);
    assert_eq!(world.come(), [50_000]);
}

#[test]
fn a_client_that_has_paused_its_server_may_be_silent_for_longer_but_not_for_ever() {
    let connections_after = |is_paused: bool, seconds: u64| {
        let mut world = World::new();
        world.client.pause(is_paused, world.now);
        world.pass(10 * MS);
        assert!(world.client.is_pause_heard());
        for _ in 0..seconds {
            world.now += Duration::from_secs(1);
            world.server.handle_timeout(world.now);
            while world.server.poll_transmit(world.now).is_some() {}
        }
        world.server.connections()
    };
    assert_eq!([connections_after(false, 14), connections_after(false, 25)], [1, 0]);
    assert_eq!([connections_after(true, 59), connections_after(true, 70)], [1, 0]);
}

#[test]
fn a_client_whose_commands_keep_the_memory_is_held_back_whatever_its_owner_lets_it_do() {
    let mut world = World::new();
    let id = super::id(1);
    let nexus = *world.server.sessions.keys().next().unwrap();
    let held = || [nexus].into();
    world.server.hold_back(held(), world.now);
    world.pass(MS);
    world.order(0);
    world.server.pause(id, true, world.now);
    world.server.pause(id, false, world.now);
    world.pass(Duration::from_secs(20));
    assert!(world.come().is_empty(), "the connection stays");
    world.server.pause(id, true, world.now);
    world.server.hold_back(BTreeSet::new(), world.now);
    world.pass(Duration::from_secs(1));
    assert!(world.come().is_empty(), "nor when only one has ended");
    world.server.hold_back(held(), world.now);
    world.server.pause(id, false, world.now);
    world.server.hold_back(BTreeSet::new(), world.now);
    world.pass(10 * MS);
    assert_eq!(world.come(), [0]);
}

#[test]
fn a_client_that_pauses_its_server_gets_no_answer_until_it_lets_it_go_on() {
    let mut world = World::new();
    world.client.pause(true, world.now);
    world.order(50_000);
    world.pass(10 * MS);
    assert_eq!(world.come(), [50_000], "its commands are executed");
    world.pass(Duration::from_secs(20));
    assert_eq!(world.answers(), 0, "and the connection stays");
    world.client.pause(false, world.now);
    world.pass(10 * MS);
    assert_eq!(world.answers(), 1);
}
