//! Refusals of somebody who has overheard who talks to whom: they are not authentic, and cost no connection.

use sanwire_core::Instant;

use super::world::{MS, World, bytes};
use super::{client, path, server};
use crate::server::loose_packet;
use crate::wire::setup::{AdnRequest, Refusal};
use crate::wire::{Opcode, Prefix};

const ALL: [Refusal; 4] = [Refusal::UnknownConnection, Refusal::NotAuthentic, Refusal::Full, Refusal::Options];

/// Refuses what was overheard, in all ways that there are.
fn refusals(overheard: &[u8]) -> Vec<Vec<u8>> {
    let (prefix, ..) = Prefix::read(overheard).unwrap();
    let body = |refusal| AdnRequest::Refusal(refusal, None).write();
    ALL.map(|refusal| bytes(&loose_packet(Opcode::AdnRequest, prefix.connection, prefix.number, &body(refusal))))
        .to_vec()
}

/// Something that a connected client has sent.
fn overheard(world: &mut World) -> Vec<u8> {
    world.order(0);
    let (_, packet) = world.client.poll_transmit(world.now).unwrap();
    world.server.handle_input(path(100), &bytes(&packet), world.now);
    world.pass(5 * MS);
    world.come();
    world.pass(100 * MS);
    bytes(&packet)
}

#[test]
fn what_a_third_says_from_elsewhere_is_not_even_asked_about() {
    let mut world = World::new();
    let overheard = overheard(&mut world);
    let sent = world.sent;
    for refusal in refusals(&overheard) {
        for _ in 0..100 {
            world.client.handle_input(path(9), &refusal, world.now);
        }
    }
    world.pass(500 * MS);
    assert_eq!((world.sent, world.answers()), (sent, 1));
}

#[test]
fn what_a_third_says_in_the_servers_name_costs_a_few_questions_and_no_connection() {
    let mut world = World::new();
    let overheard = overheard(&mut world);
    let sent = world.sent;
    for _ in 0..1000 {
        for refusal in refusals(&overheard) {
            world.client.handle_input(path(1), &refusal, world.now);
        }
        world.pass(MS);
    }
    // The server has 50 ms to answer each; only then is there another question.
    assert!((1..=2 * 20 + 2).contains(&(world.sent - sent)), "{} packets in a second", world.sent - sent);
    world.order(20_000);
    world.pass(5 * MS);
    assert_eq!(world.come(), [20_000]);
    world.pass(5 * MS);
    assert_eq!(world.answers(), 2);
}

#[test]
fn who_refuses_each_step_of_a_handshake_before_the_server_answers_does_not_keep_the_client_out() {
    for from in [path(1), path(9)] {
        let (mut server, mut client, now) = (server(), client(1), Instant::ZERO);
        let mut steps = 0;
        while let Some((_, step)) = client.poll_transmit(now) {
            let step = bytes(&step);
            for refusal in refusals(&step) {
                client.handle_input(from, &refusal, now);
            }
            server.handle_input(path(100), &step, now);
            while let Some((_, answer)) = server.poll_transmit(now) {
                client.handle_input(path(1), &bytes(&answer), now);
            }
            steps += 1;
            assert!(steps < 100, "it does not end");
        }
        assert!(client.server().is_some());
    }
}
