//! An end that tells the other options without end.

use std::time::Duration;

use super::world::{MS, World, bytes};
use super::{id, path};
use crate::ServerEvent;
use crate::options::{DeviceOption, Offered, Options, Stance};
use crate::server::SecurityEvent;
use crate::wire::live::{LiveReply, LiveRequest, NewOptions};
use crate::wire::{Opcode, Prefix, Protection};

/// The server says this, sealed, whatever it is.
fn say(world: &mut World, body: Vec<u8>) {
    let id = *world.server.connections.keys().next().unwrap();
    world.server.connections.get_mut(&id).unwrap().channel.send_control(Opcode::AdnRequest, body);
    world.server.touch(id);
}

fn cap(cap: u64) -> Options {
    let mut options = Options::default();
    let value = cap.to_be_bytes().to_vec();
    options.set(DeviceOption::RateCap.number(), Offered { stance: Stance::Enforced, value }).unwrap();
    options
}

fn capped(change: u32, bytes_per_second: u64) -> Vec<u8> {
    LiveRequest::Options(NewOptions { change, options: cap(bytes_per_second) }).write()
}

/// Whether a command of the client is answered, and its connection is still the first.
fn is_served(world: &mut World) {
    world.order(20_000);
    world.pass(500 * MS);
    assert_eq!(world.come(), [20_000]);
    world.pass(500 * MS);
    assert_eq!(world.answers(), 1);
}

#[test]
fn a_client_takes_a_few_changes_in_a_second_counts_the_others_and_goes_on() {
    let mut world = World::new();
    world.pass(Duration::from_secs(2));
    let sent = world.sent;
    for change in 1..=1000 {
        say(&mut world, capped(change, 100_000_000 + u64::from(change)));
        if change % 10 == 0 {
            world.pass(MS);
        }
    }
    assert_eq!(world.client.counters().violations, 992, "eight are taken");
    assert!(world.sent - sent < 30, "{} answers", world.sent - sent);
    assert_eq!(world.client.server().unwrap().options.rate_cap_bytes_per_second, Some(100_000_008));
    is_served(&mut world);
    world.pass(Duration::from_secs(1));
    say(&mut world, capped(2000, 5_000_000));
    world.pass(MS);
    assert_eq!(
        world.client.server().unwrap().options.rate_cap_bytes_per_second,
        Some(5_000_000),
        "later ones count again"
    );
}

#[test]
fn options_that_are_none_and_such_as_are_old_change_nothing() {
    let mut world = World::new();
    say(&mut world, capped(5, 5_000_000));
    world.pass(MS);
    let agreed = world.client.server().unwrap().options;
    assert_eq!(agreed.rate_cap_bytes_per_second, Some(5_000_000));
    let whole = capped(6, 1);
    let mut twice = capped(6, 1);
    // Two options of one number.
    twice[6] = 2;
    twice.extend_from_within(7..);
    for length in 1..whole.len() {
        say(&mut world, whole[..length].to_vec());
        world.pass(MS);
    }
    say(&mut world, twice);
    world.pass(MS);
    assert_eq!(world.client.counters().violations, whole.len() as u64);
    for change in 0..5 {
        say(&mut world, capped(change, 1));
    }
    world.pass(MS);
    assert_eq!(world.client.server().unwrap().options, agreed);
    is_served(&mut world);
}

/// What the server has told of its clients' offences.
fn refused(world: &mut World) -> Vec<(SecurityEvent, u64)> {
    let of = (Some(id(1)), path(100));
    let events = std::iter::from_fn(|| world.server.poll_event());
    let refused = events.filter_map(|event| match event {
        ServerEvent::Refused { offence, client, path, count } => Some((offence, (client, path), count)),
        _ => None,
    });
    refused.inspect(|(_, who, _)| assert_eq!(*who, of)).map(|(offence, _, count)| (offence, count)).collect()
}

#[test]
fn a_server_counts_answers_to_what_it_did_not_ask_and_such_as_are_none_tells_of_them_and_goes_on() {
    let mut world = World::new();
    let answer = |change| LiveReply::Options { change, options: NewOptions { change: 0, options: cap(1) } }.write();
    for change in 0..500 {
        world.client.say(Opcode::AdnReply, answer(change));
        if change % 10 == 9 {
            world.pass(MS);
        }
    }
    assert_eq!(world.server.counters().violations, 500);
    let whole = answer(0);
    for length in 0..whole.len() {
        world.client.say(Opcode::AdnReply, whole[..length].to_vec());
        world.pass(MS);
    }
    let count = 500 + whole.len() as u64;
    assert_eq!(world.server.counters().violations, count);
    assert_eq!(refused(&mut world), [], "a burst is told when it is over");
    world.pass(Duration::from_secs(1));
    assert_eq!(refused(&mut world), [(SecurityEvent::Violation, count)]);
    let is_capped = |connection: &crate::server::Connection| connection.agreed().rate_cap_bytes_per_second.is_some();
    assert!(!world.server.connections.values().any(is_capped));
    is_served(&mut world);
}

#[test]
fn a_client_that_tells_other_options_without_end_is_answered_a_few_times_counted_and_told_of() {
    let mut world = World::new();
    world.pass(Duration::from_secs(2));
    for change in 1..=1000u32 {
        let options = cap(100_000_000 + u64::from(change));
        world.client.say(Opcode::AdnRequest, LiveRequest::Options(NewOptions { change, options }).write());
        if change % 10 == 0 {
            world.pass(MS);
        }
    }
    assert_eq!(world.server.counters().violations, 992, "eight are taken");
    let agreed = world.server.connections.values().next().unwrap().agreed().rate_cap_bytes_per_second;
    assert_eq!(agreed, Some(100_000_008));
    is_served(&mut world);
    world.pass(Duration::from_secs(1));
    assert_eq!(refused(&mut world), [(SecurityEvent::Violation, 992)]);
}

#[test]
fn data_that_is_replayed_again_and_again_is_answered_once_in_a_while() {
    let mut world = World::new();
    let mut replayed = Vec::new();
    // The first request to a unit is sealed; the next ones are not.
    for _ in 0..2 {
        world.order(0);
        let (_, packet) = world.client.poll_transmit(world.now).unwrap();
        replayed = bytes(&packet);
        world.server.handle_input(path(100), &replayed, world.now);
        world.come();
        world.pass(100 * MS);
    }
    let (prefix, ..) = Prefix::read(&replayed).unwrap();
    assert_eq!((prefix.header.opcode, prefix.protection), (Opcode::HcbeRequest, Protection::Checksum));
    let mut answers = 0;
    for _ in 0..20 {
        for _ in 0..100 {
            world.server.handle_input(path(100), &replayed, world.now);
            answers += std::iter::from_fn(|| world.server.poll_transmit(world.now)).count();
        }
        world.now += MS / 2;
        world.server.handle_timeout(world.now);
    }
    assert!((1..=12).contains(&answers), "{answers} answers to 2,000 packets in 10 ms");
}
