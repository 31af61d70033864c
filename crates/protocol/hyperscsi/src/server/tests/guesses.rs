//! Somebody who guesses the password, in all ways that spare him the wait.

use std::time::Duration;

use sanwire_core::{Instant, Path};

use super::world::bytes;
use super::{client_config, path, server};
use crate::wire::{Opcode, Prefix};
use crate::{Client, ClientConfig, Identity, Server};

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
