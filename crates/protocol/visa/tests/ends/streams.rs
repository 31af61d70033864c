//! Connections of TCP: what is kept for one that takes nothing, and what becomes of one from which nothing is taken.

use std::time::Duration;

use sanwire_visa::wire::Kind;
use sanwire_visa::wire::header::RawPacket;
use sanwire_visa::{ServerEvent, discovery};

use super::world::{Habits, World, bytes, identity, path};
use super::{connected, has_been_lost};

fn over_tcp() -> World {
    connected(Habits { is_stream: true, memory_bytes: 1 << 20, ..Habits::default() })
}

#[test]
fn nothing_is_kept_for_a_connection_of_tcp_that_takes_no_answers() {
    let mut world = World::new(Habits { is_stream: true, ..Habits::default() });
    let question = bytes(&discovery(identity(2).client_id(), "", 5));
    for _ in 0..100_000 {
        world.server.handle_input(path(9), &question, world.now);
        while let Some(ready) = world.server.poll_stream(world.now) {
            assert_eq!(ready, path(9));
        }
    }
    let kept = std::iter::from_fn(|| world.server.poll_transmit_on(path(9), world.now)).count();
    assert!((1..=16).contains(&kept), "{kept}");
    // Others have answers as ever.
    world.server.handle_input(path(8), &question, world.now);
    assert!(world.server.poll_transmit_on(path(8), world.now).is_some());
}

#[test]
fn who_lives_is_not_missed_while_the_store_keeps_all_memory() {
    let mut world = over_tcp();
    world.read(0, 512 << 10);
    let full = world.memory.frame(world.memory.length_bytes()).unwrap();
    world.write(0, &[1; 512]);
    assert!(world.server.is_starved_at(path(2)));
    world.read(0, 512 << 10);
    world.run_for(Duration::from_secs(40));
    assert!(!has_been_lost(&world) && world.executed == 1, "{}", world.executed);
    drop(full);
    world.run_for(Duration::from_millis(100));
    assert_eq!((world.executed, world.client.in_transit()), (3, 0));
    world.run_for(Duration::from_secs(40));
    assert!(!has_been_lost(&world));
}

#[test]
fn who_is_gone_while_nothing_is_read_is_missed_as_soon_as_that_is_over() {
    let mut world = over_tcp();
    let full = world.memory.frame(world.memory.length_bytes()).unwrap();
    world.write(0, &[1; 512]);
    world.loses = |from_client, _| from_client;
    world.run_for(Duration::from_secs(40));
    drop(full);
    world.run_for(Duration::from_secs(6));
    assert!(world.told.iter().any(|event| matches!(event, ServerEvent::Hangup { .. })));
}

#[test]
fn who_takes_nothing_of_tcp_is_missed_also_while_it_waits_for_memory() {
    let mut world = over_tcp();
    world.takes = false;
    world.read(0, 512 << 10);
    let full = world.memory.frame(world.memory.length_bytes()).unwrap();
    world.write(0, &[1; 512]);
    world.run_for(Duration::from_secs(35));
    assert_eq!((world.server.counters().standstills, world.server.is_starved()), (1, false));
    drop(full);
}

#[test]
fn who_is_dropped_hears_so_before_the_connection_of_tcp_is_closed() {
    let mut world = over_tcp();
    world.server.drop_client(identity(2).client_id());
    let close = std::iter::from_fn(|| world.server.poll_transmit_on(path(2), world.now)).last();
    assert_eq!(RawPacket::read(&bytes(&close.unwrap())).unwrap().header.kind, Kind::Close);
    world.drain();
    assert!(world.told.iter().any(|event| matches!(event, ServerEvent::Hangup { .. })));
}

#[test]
fn who_acknowledges_nothing_comes_again_after_some_answers_and_keeps_no_data() {
    let mut world = over_tcp();
    world.loses = |from_client, packet| from_client && RawPacket::read(packet).unwrap().header.kind == Kind::Ack;
    for asked in 1..=1152 {
        world.read(0, 64 << 10);
        assert_eq!((world.executed, world.client.in_transit()), (asked, 0));
    }
    assert_eq!(world.server.counters().hoarders, 0);
    world.read(0, 512);
    assert_eq!(world.server.counters().hoarders, 1);
}
