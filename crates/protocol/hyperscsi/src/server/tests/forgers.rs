//! Somebody who sees what both ends say, and whose packets are there before theirs: forged steps of a handshake keep no client out.

use std::collections::BTreeSet;
use std::time::Duration;

use sanwire_core::Instant;

use super::world::{MS, bytes};
use super::{client, client_config, path, server};
use crate::handshake::Responder;
use crate::keys::Randomness;
use crate::server::loose_packet;
use crate::wire::offer::Offer;
use crate::wire::setup::{AdnRequest, Discovery, SecondStep, read_adn_reply, write_adn_reply};
use crate::wire::{Opcode, Prefix, Protection};
use crate::{Client, ClientConfig, DesiredOptions, Identity, Server};

/// The private key of the server.
const SERVER: [u8; 32] = [1; 32];

/// Both ends, and somebody who acts before each packet of the client's is at the server.
struct Scene<F> {
    server: Server,
    client: Client,
    now: Instant,
    forge: F,
}

impl<F: FnMut(&[u8], &mut Server, &mut Client, Instant)> Scene<F> {
    fn new(client: Client, forge: F) -> Self {
        Scene { server: server(), client, now: Instant::ZERO, forge }
    }

    /// Lets time pass until the client is connected; whether it is in the end.
    fn connects_within(&mut self, length: Duration) -> bool {
        let end = self.now + length;
        while self.now < end && self.client.server().is_none() {
            self.now += MS;
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
            while let Some((_, packet)) = self.client.poll_transmit(self.now) {
                (self.forge)(&bytes(&packet), &mut self.server, &mut self.client, self.now);
                self.server.handle_input(path(100), &bytes(&packet), self.now);
            }
            while let Some((_, packet)) = self.server.poll_transmit(self.now) {
                self.client.handle_input(path(1), &bytes(&packet), self.now);
            }
        }
        self.client.server().is_some()
    }
}

/// So many forged second steps for each discovery, of which each is another one.
fn garbage(seen: &[u8], number: u32, client: &mut Client, now: Instant) {
    let (prefix, ..) = Prefix::read(seen).unwrap();
    if prefix.header.opcode != Opcode::DeviceDiscovery {
        return;
    }
    for connection in 1..=number {
        let mut noise = [7; 160];
        noise[..4].copy_from_slice(&connection.to_be_bytes());
        answer(&prefix, SecondStep { connection, noise: &noise, mark: [1; 16] }, client, now);
    }
}

fn answer(prefix: &Prefix, second: SecondStep<'_>, client: &mut Client, now: Instant) {
    let body = AdnRequest::Handshake(second).write();
    let packet = loose_packet(Opcode::AdnRequest, prefix.connection, prefix.number, &body);
    client.handle_input(path(1), &bytes(&packet), now);
}

/// So many servers with keys of their own that answer each discovery in the server's place.
fn pose(seen: &[u8], number: u8, client: &mut Client, now: Instant) {
    let keys = (100..100 + number).map(|key| [key; 32]);
    answer_with(keys, seen, client, now);
}

/// So many second steps of the server with this key.
fn relay(seen: &[u8], number: usize, client: &mut Client, now: Instant) {
    answer_with(std::iter::repeat_n(SERVER, number), seen, client, now);
}

/// Second steps of servers with these keys.
fn answer_with(keys: impl Iterator<Item = [u8; 32]>, seen: &[u8], client: &mut Client, now: Instant) {
    let (prefix, _, body) = Prefix::read(seen).unwrap();
    if prefix.header.opcode != Opcode::DeviceDiscovery {
        return;
    }
    let (discovery, prologue) = Discovery::read(body).unwrap();
    let offer = Offer {
        packet_max_bytes: 1500,
        receive_capacity_packets: 100,
        commands_max: 64,
        transfer_max_bytes: 1 << 20,
        keep_alive_ms: 5000,
        instance: 1,
        name: "poser".into(),
        unanswered: None,
        options: DesiredOptions::default().options(Protection::Checksum).unwrap(),
    };
    for (connection, key) in (100..).zip(keys) {
        let own = Identity::from_private(key).unwrap();
        let mut seed = [connection as u8; 32];
        seed[0] = (connection >> 8) as u8;
        let mut random = Randomness::new(seed);
        let said = (connection, &offer.write()[..]);
        let (_, noise, mark) =
            Responder::new((&own, &[0xee; 32]), prologue, discovery.noise, said, &mut random).unwrap();
        answer(&prefix, SecondStep { connection, noise: &noise, mark }, client, now);
    }
}

/// A packet whose third step was spoilt in this place, from its end.
fn spoilt(seen: &[u8], at: usize) -> Vec<u8> {
    let (prefix, _, body) = Prefix::read(seen).unwrap();
    let mut noise = read_adn_reply(body).unwrap().to_vec();
    let bits = noise.len() * 8;
    noise[(bits - 1 - at % bits) / 8] ^= 1 << (at % 8);
    bytes(&loose_packet(Opcode::AdnReply, prefix.connection, prefix.number, &write_adn_reply(&noise)))
}

#[test]
fn third_steps_of_which_another_bit_is_spoilt_each_time_make_no_client_wait() {
    let mut at = 0;
    let mut scene = Scene::new(client(1), |seen: &[u8], server: &mut Server, _: &mut Client, now| {
        if Prefix::read(seen).is_ok_and(|(prefix, ..)| prefix.header.opcode == Opcode::AdnReply) {
            for _ in 0..50 {
                server.handle_input(path(100), &spoilt(seen, at), now);
                at += 1;
            }
        }
    });
    assert!(scene.connects_within(3 * MS), "{:?}", scene.server.counters());
    let counters = scene.server.counters();
    assert_eq!((counters.not_authentic, counters.throttled), (50, 0));
}

#[test]
fn a_hundred_forged_second_steps_before_each_true_one_keep_no_client_out() {
    for seed in 0..10 {
        let client = Client::new(ClientConfig { seed: [seed; 32], ..client_config(1) }, Instant::ZERO);
        let mut scene = Scene::new(client, |seen: &[u8], _: &mut Server, client: &mut Client, now| {
            garbage(seen, 100, client, now);
        });
        assert!(scene.connects_within(Duration::from_secs(5)), "with seed {seed}");
    }
}

#[test]
fn who_answers_first_in_the_servers_name_keeps_no_client_out() {
    let mut scene = Scene::new(client(1), |seen: &[u8], _: &mut Server, client: &mut Client, now| {
        pose(seen, 5, client, now);
    });
    assert!(scene.connects_within(3 * MS), "at once, when they are few");
    for seed in 0..5 {
        let mut scene = Scene::new(patient(seed), |seen: &[u8], _: &mut Server, client: &mut Client, now| {
            pose(seen, 15, client, now);
        });
        assert!(scene.connects_within(Duration::from_secs(60)), "with seed {seed}");
    }
}

/// A client that goes on to seek.
fn patient(seed: u8) -> Client {
    let connect_patience = Duration::from_secs(3600);
    Client::new(ClientConfig { seed: [seed; 32], connect_patience, ..client_config(1) }, Instant::ZERO)
}

#[test]
fn who_poses_as_many_servers_has_few_guesses_at_the_password() {
    let (mut client, mut now, mut answered) = (patient(1), Instant::ZERO, BTreeSet::new());
    let seconds = 20;
    while now < Instant::ZERO + Duration::from_secs(seconds) {
        now += MS;
        client.handle_timeout(now);
        while let Some((_, packet)) = client.poll_transmit(now) {
            let packet = bytes(&packet);
            let (prefix, _, body) = Prefix::read(&packet).unwrap();
            if prefix.header.opcode == Opcode::AdnReply {
                answered.insert(body.to_vec());
            }
            pose(&packet, 50, &mut client, now);
        }
    }
    let most = 16 + 2 * seconds as usize + 1;
    assert!((8..=most).contains(&answered.len()), "{} guesses in {seconds} s", answered.len());
}

/// A client that knows the server's key.
fn pinned() -> Client {
    let server_key = Some(*Identity::from_private(SERVER).unwrap().public());
    Client::new(ClientConfig { server_key, ..client_config(1) }, Instant::ZERO)
}

/// Whoever asks the server in the client's name, from however many ports, has as many second steps that are the server's own.
#[test]
fn who_relays_what_the_server_says_again_and_again_does_not_take_a_clients_processor() {
    let (mut client, now) = (pinned(), Instant::ZERO);
    let (_, discovery) = client.poll_transmit(now).unwrap();
    relay(&bytes(&discovery), 400, &mut client, now);
    let read = 400 - client.counters().duplicates;
    assert!((16..=120).contains(&read), "{read} are read");
    let mut scene = Scene::new(pinned(), |seen: &[u8], _: &mut Server, client: &mut Client, now| {
        relay(seen, 50, client, now);
    });
    assert!(scene.connects_within(Duration::from_secs(5)));
}

#[test]
fn a_client_that_knows_its_servers_key_finds_it_at_once_in_any_flood() {
    let forge = |seen: &[u8], _: &mut Server, client: &mut Client, now| garbage(seen, 1000, client, now);
    assert!(Scene::new(pinned(), forge).connects_within(3 * MS));

    let is_there = std::cell::Cell::new(false);
    let mut scene = Scene::new(client(1), |seen: &[u8], _: &mut Server, client: &mut Client, now| {
        garbage(seen, if is_there.get() { 1000 } else { 0 }, client, now);
    });
    assert!(scene.connects_within(3 * MS));
    is_there.set(true);
    scene.server = server();
    let mut is_lost = false;
    while !is_lost {
        scene.now += MS;
        scene.client.handle_timeout(scene.now);
        while scene.client.poll_transmit(scene.now).is_some() {}
        is_lost = scene.client.server().is_none();
    }
    assert!(scene.connects_within(1200 * MS), "one that comes back, too: it asks once in a second at least");
}

#[test]
fn a_second_step_that_is_told_of_another_connection_first_does_not_stand_in_for_the_true_one() {
    let (mut server, mut client, now) = (server(), client(1), Instant::ZERO);
    let (_, discovery) = client.poll_transmit(now).unwrap();
    server.handle_input(path(100), &bytes(&discovery), now);
    let second = bytes(&server.poll_transmit(now).unwrap().1);
    let (prefix, _, body) = Prefix::read(&second).unwrap();
    let Ok(AdnRequest::Handshake(step)) = AdnRequest::read(body) else { panic!("a second step") };
    answer(&prefix, SecondStep { connection: step.connection ^ 1, ..step }, &mut client, now);
    assert!(client.poll_transmit(now).is_none());
    client.handle_input(path(1), &second, now);
    super::exchange(&mut server, std::slice::from_mut(&mut client), now);
    assert!(client.server().is_some());
}

#[test]
fn who_passes_on_what_the_server_says_to_him_does_not_stand_in_for_it() {
    let mut scene = Scene::new(client(1), |seen: &[u8], server: &mut Server, client: &mut Client, now| {
        if Prefix::read(seen).is_ok_and(|(prefix, ..)| prefix.header.opcode == Opcode::DeviceDiscovery) {
            server.handle_input(path(666), seen, now);
            while let Some((_, answer)) = server.poll_transmit(now) {
                client.handle_input(path(1), &bytes(&answer), now);
            }
        }
    });
    assert!(scene.connects_within(200 * MS), "{:?}", scene.server.counters());
}

#[test]
fn a_flood_of_forged_second_steps_does_not_take_the_processor() {
    let (mut client, mut now, mut sent) = (client(1), Instant::ZERO, 0);
    while now < Instant::ZERO + Duration::from_secs(1) {
        now += MS;
        client.handle_timeout(now);
        let Some((_, packet)) = client.poll_transmit(now) else { continue };
        garbage(&bytes(&packet), 10_000, &mut client, now);
        sent += 10_000;
    }
    let read = client.counters().not_authentic;
    assert!(sent >= 80_000 && (100..2000).contains(&read), "{read} of {sent} are read");
}

/// Two of them would be sealed with the same key and number.
#[test]
fn a_second_step_that_comes_by_two_ways_has_one_third_step() {
    let (mut server, mut client) = (server(), client(1));
    let mut now = Instant::ZERO;
    let (_, discovery) = client.poll_transmit(now).unwrap();
    server.handle_input(path(100), &bytes(&discovery), now);
    let (_, second) = server.poll_transmit(now).unwrap();
    for port in [1, 2] {
        client.handle_input(path(port), &bytes(&second), now);
    }
    let (mut ways, mut said) = (BTreeSet::new(), BTreeSet::new());
    while now < Instant::ZERO + 200 * MS {
        client.handle_timeout(now);
        while let Some((to, packet)) = client.poll_transmit(now) {
            let packet = bytes(&packet);
            let (prefix, _, body) = Prefix::read(&packet).unwrap();
            if prefix.header.opcode == Opcode::AdnReply {
                ways.insert(format!("{to}"));
                said.insert(body.to_vec());
            }
        }
        now += MS;
    }
    assert_eq!((ways.len(), said.len()), (2, 1));
}
