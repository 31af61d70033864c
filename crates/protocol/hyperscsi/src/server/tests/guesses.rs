//! Somebody who guesses the password, in all ways that spare him the wait.

use std::time::Duration;

use sanwire_core::quota::{GUESSES_OF_NETWORK, Unit};
use sanwire_core::{Instant, Path};

use super::world::bytes;
use super::{ListsOne, client_config, id, path, server, server_for};
use crate::handshake::Initiator;
use crate::keys::Randomness;
use crate::server::loose_packet;
use crate::wire::setup::{AdnRequest, Discovery, steering_word, write_adn_reply};
use crate::wire::{Opcode, Prefix, RawPacket};
use crate::{Client, ClientConfig, Identity, Psk, Server};

/// A client with this key and a wrong password that is another one for each number.
fn guesser(key: u16, number: u16) -> Client {
    let mut config = ClientConfig { psk: [0xee; 32], ..client_config(1) };
    config.psk[..2].copy_from_slice(&number.to_be_bytes());
    config.seed[..2].copy_from_slice(&number.to_be_bytes());
    let mut private = [200; 32];
    private[..2].copy_from_slice(&key.to_be_bytes());
    Client::new(ClientConfig { identity: Identity::from_private(private).unwrap(), ..config }, Instant::ZERO)
}

/// Takes the client to its third step, which is the guess.
fn third_step(server: &mut Server, guesser: &mut Client, from: Path, now: Instant) -> Option<Vec<u8>> {
    while let Some((_, packet)) = guesser.poll_transmit(now) {
        let packet = bytes(&packet);
        if Prefix::read(&packet).unwrap().0.header.opcode == Opcode::AdnReply {
            return Some(packet);
        }
        server.handle_input(from, &packet, now);
        while let Some((_, answer)) = server.poll_transmit(now) {
            guesser.handle_input(path(1), &bytes(&answer), now);
        }
    }
    None
}

/// So many guesses, whose handshakes are all begun before the first is made, and then made at one moment; how many were read.
fn read_at_once(guesses: u16, key: impl Fn(u16) -> u16) -> u64 {
    let (mut server, now) = (server(), Instant::ZERO);
    let begun: Vec<_> = (0..guesses)
        .filter_map(|number| {
            let from = path(1000 + number);
            third_step(&mut server, &mut guesser(key(number), number), from, now).map(|third| (from, third))
        })
        .collect();
    assert!(begun.len() >= 8);
    for (from, third) in begun {
        server.handle_input(from, &third, now);
        while server.poll_transmit(now).is_some() {}
    }
    assert_eq!(server.connections(), 0);
    server.counters().not_authentic
}

#[test]
fn handshakes_that_were_begun_before_give_no_further_guess() {
    assert_eq!(read_at_once(64, |_| 1), 1);
}

#[test]
fn a_fresh_key_for_each_guess_gives_few_more() {
    let read = read_at_once(200, |number| number);
    assert!(read <= 16, "{read} guesses at one moment");
}

#[test]
fn fresh_keys_guess_no_faster_for_long() {
    let (mut server, mut now) = (server(), Instant::ZERO);
    const SECONDS: u16 = 20;
    for number in 0..SECONDS * 50 {
        now += Duration::from_millis(20);
        server.handle_timeout(now);
        let mut guesser = guesser(number, number);
        guesser.handle_timeout(now);
        if let Some(third) = third_step(&mut server, &mut guesser, path(100), now) {
            server.handle_input(path(100), &third, now);
            while server.poll_transmit(now).is_some() {}
        }
    }
    let read = server.counters().not_authentic;
    assert!(read <= 16 + 2 * u64::from(SECONDS) + 1, "{read} guesses in {SECONDS} s");
}

#[test]
fn who_has_a_session_does_not_wait_for_those_who_guess_beside_it() {
    let (mut server, mut now) = (server(), Instant::ZERO);
    let mut honest = [super::client(1)];
    super::exchange(&mut server, &mut honest, now);
    assert_eq!(server.connections(), 1);
    for number in 0..40 {
        if let Some(third) = third_step(&mut server, &mut guesser(number, number), path(100), now) {
            server.handle_input(path(100), &third, now);
            while server.poll_transmit(now).is_some() {}
        }
    }
    // The same client again, at the same host.
    now += Duration::from_millis(1);
    let mut again = [Client::new(ClientConfig { seed: [77; 32], ..client_config(1) }, now)];
    super::exchange(&mut server, &mut again, now);
    assert!(again[0].server().is_some());
}

/// The third step, without an offer, of somebody with this key and password in the name of client 1, in another session for each
/// number.
fn third_step_as(
    (own, psk): (&Identity, &Psk),
    server: &mut Server,
    number: u16,
    from: Path,
    now: Instant,
) -> Option<Vec<u8>> {
    let mut random = Randomness::new([number as u8; 32]);
    let mut discovery = Discovery {
        announce_only: false,
        client: id(1),
        session: u64::from(number),
        packet_max_bytes: 1500,
        server_name: "",
        noise: &[],
        cookie: None,
    };
    let (initiator, first) = Initiator::new(&discovery.prologue(), &mut random).unwrap();
    discovery.noise = &first;
    let attempt = u64::from(number);
    let asked = loose_packet(Opcode::DeviceDiscovery, steering_word(id(1)), attempt, &discovery.write());
    server.handle_input(from, &bytes(&asked), now);
    let (_, answer) = server.poll_transmit(now)?;
    let answer = bytes(&answer);
    let second = AdnRequest::read(RawPacket::read(&answer).unwrap().body).unwrap();
    let AdnRequest::Handshake(second) = second else { return None };
    let met = initiator.read(second).unwrap();
    let (third, _) = met.answer((own, psk), b"an offer", &mut random).unwrap();
    Some(bytes(&loose_packet(Opcode::AdnReply, second.connection, attempt, &write_adn_reply(&third))))
}

/// Guesses at the password in the name of client 1 with a key of one's own, another one for each number; whether the server says
/// that it is wrong.
fn guess_as_another(server: &mut Server, number: u16, from: Path, now: Instant) -> bool {
    let mut private = [201; 32];
    private[..2].copy_from_slice(&number.to_be_bytes());
    let own = Identity::from_private(private).unwrap();
    let Some(third) = third_step_as((&own, &[0xee; 32]), server, number, from, now) else { return false };
    server.handle_input(from, &third, now);
    server.poll_transmit(now).is_some()
}

/// It opens, so it is computed in full: once, not as often as somebody likes.
#[test]
fn who_knows_the_password_and_says_what_is_no_offer_ends_his_handshake() {
    let (mut server, now) = (server(), Instant::ZERO);
    let third = third_step_as((&client_config(1).identity, &[0; 32]), &mut server, 1, path(5), now).unwrap();
    (0..10).for_each(|_| server.handle_input(path(5), &third, now));
    let counters = server.counters();
    assert_eq!((counters.violations, counters.not_authentic, counters.unknown_connection), (1, 0, 9));
}

#[test]
fn a_client_does_not_wait_for_a_stranger_beside_it_who_gives_wrong_passwords_in_its_name() {
    let (mut server, now) = (server_for(Box::new(ListsOne)), Instant::ZERO);
    let guesses = (0..40).filter(|number| guess_as_another(&mut server, *number, path(5), now)).count();
    assert!(guesses > 0);
    let mut honest = [super::client(1)];
    super::exchange(&mut server, &mut honest, now);
    assert!(honest[0].server().is_some(), "{:?}", server.counters());
}

#[test]
fn the_name_of_a_listed_client_gives_no_more_guesses() {
    let (mut server, mut now) = (server_for(Box::new(ListsOne)), Instant::ZERO);
    const SECONDS: u16 = 10;
    let mut read = 0;
    for number in 0..SECONDS * 50 {
        now += Duration::from_millis(20);
        server.handle_timeout(now);
        read += u64::from(guess_as_another(&mut server, number, path(5), now));
    }
    let Unit::PerSecond { burst } = GUESSES_OF_NETWORK.unit else { panic!("{GUESSES_OF_NETWORK:?}") };
    let most = u64::from(burst) + GUESSES_OF_NETWORK.limit * u64::from(SECONDS) + 1;
    assert!((u64::from(burst)..=most).contains(&read), "{read} guesses in {SECONDS} s");
    assert_eq!(server.counters().not_authentic, read);
}
