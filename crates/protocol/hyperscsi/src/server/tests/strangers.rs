//! Handshakes of strangers: a flood costs the server little, and keeps nobody out.

use std::time::Duration;

use sanwire_core::quota::{
    HALF_OPENS, HANDSHAKES_OF_ADDRESS, HANDSHAKES_PROVEN, HANDSHAKES_UNPROVEN, HINTS, LOOSE_PACKETS, Quota, Unit, Usage,
};
use sanwire_core::{Instant, LinkId, Path, Peer};

use super::handshakes::Way;
use super::world::{MS, World, bytes};
use super::{client, exchange, path, server};
use crate::Server;
use crate::server::loose_packet;
use crate::wire::setup::{AdnRequest, Cookie, Discovery};
use crate::wire::{Opcode, Prefix, RawPacket};

/// Somebody who sends the same first step again and again, as one attempt after the other.
struct Stranger {
    discovery: Vec<u8>,
    attempts: u64,
}

impl Stranger {
    fn new() -> Self {
        let (_, packet) = client(9).poll_transmit(Instant::ZERO).unwrap();
        Stranger { discovery: bytes(&packet), attempts: 0 }
    }

    /// The next attempt.
    fn attempt(&mut self) -> u64 {
        self.attempts += 1;
        self.attempts
    }

    fn packet(&self, attempt: u64, cookie: Option<&Cookie>) -> Vec<u8> {
        let (prefix, _, body) = Prefix::read(&self.discovery).unwrap();
        let (discovery, _) = Discovery::read(body).unwrap();
        let body = Discovery { cookie, ..discovery }.write();
        bytes(&loose_packet(Opcode::DeviceDiscovery, prefix.connection, attempt, &body))
    }
}

fn host(number: u32) -> Path {
    Path { link: LinkId(0), peer: Peer::Udp((number.to_be_bytes(), 7).into()) }
}

enum Heard {
    Nothing,
    SecondStep,
    Cookie(Cookie),
}

/// What a server says to a packet. No answer is longer than the question.
fn ask(server: &mut Server, from: Path, question: &[u8], now: Instant) -> Heard {
    server.handle_input(from, question, now);
    let Some((to, answer)) = server.poll_transmit(now) else { return Heard::Nothing };
    let answer = bytes(&answer);
    assert!(to == from && answer.len() < question.len() && server.poll_transmit(now).is_none());
    match AdnRequest::read(RawPacket::read(&answer).unwrap().body).unwrap() {
        AdnRequest::Handshake(_) => Heard::SecondStep,
        AdnRequest::Cookie(cookie) => Heard::Cookie(cookie),
        other => panic!("{other:?}"),
    }
}

/// Handshakes of a quota within a time.
fn most(quota: &Quota, time: Duration) -> u64 {
    let Unit::PerSecond { burst } = quota.unit else { panic!("{quota:?}") };
    u64::from(burst) + quota.limit * time.as_millis() as u64 / 1000
}

#[test]
fn a_flood_from_forged_addresses_costs_few_handshakes_and_no_memory() {
    let (mut server, mut stranger, mut now) = (server(), Stranger::new(), Instant::ZERO);
    let mut begun = 0;
    for number in 0..20_000u32 {
        let attempt = stranger.attempt();
        let question = stranger.packet(attempt, Some(&[1; 16]).filter(|_| number % 2 == 0));
        begun += u64::from(matches!(ask(&mut server, host(number), &question, now), Heard::SecondStep));
        now += Duration::from_micros(50);
    }
    assert!(begun <= most(&HANDSHAKES_UNPROVEN, Duration::from_secs(1)), "{begun} handshakes begun");
    assert_eq!(server.counters().challenged, 20_000 - begun);
}

#[test]
fn who_receives_what_is_sent_to_him_begins_no_more_than_an_address_may() {
    let (mut server, mut stranger, mut now) = (server(), Stranger::new(), Instant::ZERO);
    let mut begun = 0;
    for _ in 0..10_000 {
        let attempt = stranger.attempt();
        let mut heard = ask(&mut server, host(1), &stranger.packet(attempt, None), now);
        if let Heard::Cookie(cookie) = heard {
            heard = ask(&mut server, host(1), &stranger.packet(attempt, Some(&cookie)), now);
        }
        begun += u64::from(matches!(heard, Heard::SecondStep));
        now += Duration::from_micros(100);
    }
    let time = Duration::from_secs(1);
    assert!(begun <= most(&HANDSHAKES_UNPROVEN, time) + most(&HANDSHAKES_OF_ADDRESS, time), "{begun} handshakes begun");
    assert!(server.counters().crowded > 5000);
}

#[test]
fn no_number_of_addresses_begins_more_handshakes_than_a_shard_has_time_for() {
    let (mut server, mut stranger, mut now) = (server(), Stranger::new(), Instant::ZERO);
    let mut begun = 0;
    for number in 0..10_000 {
        let attempt = stranger.attempt();
        let mut heard = ask(&mut server, host(number % 1000), &stranger.packet(attempt, None), now);
        if let Heard::Cookie(cookie) = heard {
            heard = ask(&mut server, host(number % 1000), &stranger.packet(attempt, Some(&cookie)), now);
        }
        begun += u64::from(matches!(heard, Heard::SecondStep));
        now += Duration::from_micros(100);
    }
    let time = Duration::from_secs(1);
    assert!(begun <= most(&HANDSHAKES_UNPROVEN, time) + most(&HANDSHAKES_PROVEN, time), "{begun} handshakes begun");
}

#[test]
fn a_new_client_connects_in_the_midst_of_a_flood_and_the_connected_ones_are_served() {
    let mut world = World::new();
    let mut stranger = Stranger::new();
    let mut newcomer = client(2);
    for number in 0..200 {
        let attempt = stranger.attempt();
        ask(&mut world.server, host(number), &stranger.packet(attempt, None), world.now);
    }
    let begun = world.now;
    let mut sent = 0;
    while newcomer.server().is_none() {
        for number in 0..20u32 {
            let attempt = stranger.attempt();
            world.server.handle_input(host(number), &stranger.packet(attempt, None), world.now);
        }
        newcomer.handle_timeout(world.now);
        while let Some((_, packet)) = newcomer.poll_transmit(world.now) {
            world.server.handle_input(path(200), &bytes(&packet), world.now);
            sent += 1;
        }
        world.server.handle_timeout(world.now);
        while let Some((to, packet)) = world.server.poll_transmit(world.now) {
            match () {
                () if to == path(200) => newcomer.handle_input(path(1), &bytes(&packet), world.now),
                () if to == path(100) => world.client.handle_input(path(1), &bytes(&packet), world.now),
                () => {}
            }
        }
        world.now += MS;
        assert!(world.now < begun + Duration::from_secs(2), "kept out, after {sent} packets");
    }
    assert!(world.server.counters().challenged > 0);
    world.order(0);
    world.pass(5 * MS);
    assert_eq!(world.come(), [0]);
    world.pass(5 * MS);
    assert_eq!(world.answers(), 1);
}

fn usage(server: &Server, quota: &Quota) -> Usage {
    server.quotas().into_iter().find(|usage| usage.quota == quota).unwrap()
}

#[test]
fn a_flood_of_handshakes_that_nobody_ends_leaves_time_to_who_ends_his() {
    let (mut server, mut stranger, mut now) = (server(), Stranger::new(), Instant::ZERO);
    let mut flood = |server: &mut Server, number: u32, now: Instant| {
        let attempt = stranger.attempt();
        if let Heard::Cookie(cookie) = ask(server, host(number), &stranger.packet(attempt, None), now) {
            ask(server, host(number), &stranger.packet(attempt, Some(&cookie)), now);
        }
    };
    for number in 0..2000 {
        flood(&mut server, number, now);
        now += 2 * MS;
    }
    let full = usage(&server, &HALF_OPENS);
    assert!(full.most == Some(HALF_OPENS.limit) && full.refused > 0, "{full:?}");
    // Far away: its third step comes 200 ms after the second.
    let (mut newcomer, mut there, mut back, begun) = (client(2), Way::default(), Way::default(), now);
    newcomer.handle_timeout(now);
    for number in 2000.. {
        flood(&mut server, number, now);
        for (from, packet) in there.arrived(now) {
            server.handle_input(from, &packet, now);
        }
        while let Some((to, packet)) = server.poll_transmit(now) {
            back.put(now + 100 * MS, to, bytes(&packet));
        }
        for (_, packet) in back.arrived(now) {
            newcomer.handle_input(path(1), &packet, now);
        }
        newcomer.handle_timeout(now);
        while let Some((_, packet)) = newcomer.poll_transmit(now) {
            there.put(now + 100 * MS, path(200), bytes(&packet));
        }
        now += 2 * MS;
        if newcomer.server().is_some() {
            break;
        }
        assert!(now < begun + Duration::from_secs(4), "kept out");
    }
    assert!(usage(&server, &HALF_OPENS).refused > full.refused + 100, "all the while");
}

#[test]
fn answers_to_strangers_that_wait_to_be_sent_are_few() {
    let (mut server, mut stranger) = (server(), Stranger::new());
    for number in 0..1000 {
        let attempt = stranger.attempt();
        server.handle_input(host(number), &stranger.packet(attempt, None), Instant::ZERO);
    }
    let waiting = std::iter::from_fn(|| server.poll_transmit(Instant::ZERO)).count();
    assert_eq!(waiting as u64, LOOSE_PACKETS.limit);
    assert_eq!(usage(&server, &LOOSE_PACKETS).refused, 1000 - LOOSE_PACKETS.limit);
}

#[test]
fn a_client_brings_cookies_back_to_where_they_came_from_a_few_times_for_each_discovery() {
    let mut client = client(1);
    let (to, packet) = client.poll_transmit(Instant::ZERO).unwrap();
    assert_eq!(to, path(1));
    let question = bytes(&packet);
    let (prefix, ..) = Prefix::read(&question).unwrap();
    let answer = |number| bytes(&loose_packet(Opcode::AdnRequest, 0, number, &AdnRequest::Cookie([4; 16]).write()));
    client.handle_input(path(5), &answer(prefix.number ^ 1), Instant::ZERO);
    assert!(client.poll_transmit(Instant::ZERO).is_none(), "the answer to another attempt");
    for _ in 0..100 {
        client.handle_input(path(5), &answer(prefix.number), Instant::ZERO);
    }
    let mut again = Vec::new();
    while let Some((to, packet)) = client.poll_transmit(Instant::ZERO) {
        assert_eq!(to, path(5));
        again.push(bytes(&packet));
    }
    assert_eq!(again.len(), 8);
    let (repeated, _, body) = Prefix::read(&again[0]).unwrap();
    assert_eq!((repeated, again[0].len()), (prefix, question.len()));
    assert_eq!(Discovery::read(body).unwrap().0.cookie, Some(&[4; 16]));
}

/// Packets of connections that nobody has had: forged, or of another server's clients.
fn stray(number: u32) -> Vec<u8> {
    bytes(&loose_packet(Opcode::AdnReply, number.wrapping_mul(0x9e37_79b1), 1, &[1, 0, 0]))
}

#[test]
fn after_a_restart_clients_hear_that_they_are_not_known_and_strangers_nothing() {
    let mut world = World::new();
    world.server = server();
    let mut heard = 0;
    for number in 0..10_000 {
        world.server.handle_input(host(number), &stray(number), world.now);
        heard += std::iter::from_fn(|| world.server.poll_transmit(world.now)).count();
        world.now += Duration::from_micros(10);
    }
    assert!(heard < 50, "{heard} strangers of 10,000 were answered");
    assert_eq!(world.server.counters().unknown_connection, 10_000);
    // Long before it would notice by itself.
    world.order(0);
    let World { mut server, client, mut now, .. } = world;
    let (mut clients, late) = ([client], now + Duration::from_millis(200));
    while server.connections() == 0 {
        exchange(&mut server, &mut clients, now);
        now += MS;
        clients[0].handle_timeout(now);
        assert!(now < late, "the client was not told");
    }
}

#[test]
fn who_repeats_packets_of_a_connection_that_was_hears_no_more_than_a_restart_needs() {
    let mut world = World::new();
    let id = *world.server.connections.keys().next().unwrap();
    world.server = server();
    let packet = bytes(&loose_packet(Opcode::AdnReply, id, 1, &[1, 0, 0]));
    let mut heard = 0;
    for number in 0..10_000 {
        world.server.handle_input(host(number), &packet, world.now);
        heard += std::iter::from_fn(|| world.server.poll_transmit(world.now)).count() as u64;
        world.now += Duration::from_micros(10);
    }
    assert!((64..=most(&HINTS, Duration::from_millis(100))).contains(&heard), "{heard}");
}

#[test]
fn many_clients_at_once_are_let_in_with_and_without_cookies() {
    let (mut server, mut clients) = (server(), (0..100).map(client).collect::<Vec<_>>());
    let mut now = Instant::ZERO;
    while clients.iter().any(|client| client.server().is_none()) {
        exchange(&mut server, &mut clients, now);
        now += MS;
        clients.iter_mut().for_each(|client| client.handle_timeout(now));
        server.handle_timeout(now);
        assert!(now < Instant::ZERO + Duration::from_secs(2), "{} are in", server.connections());
    }
    assert_eq!(server.connections(), 100);
}
