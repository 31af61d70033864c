//! Several shards behind one address, and steering that errs: what is not a shard's own is not taken.

use sanwire_core::Instant;

use super::world::bytes;
use super::{client, config_for, exchange, id, path};
use crate::server::loose_packet;
use crate::wire::setup::{Discovery, steering_word};
use crate::wire::{Opcode, Prefix};
use crate::{Server, ServerConfig};

const NOW: Instant = Instant::ZERO;

/// Both shards of a server: first that of the client with this number, then the other.
fn shards_for(number: u8) -> [Server; 2] {
    let own = steering_word(id(number)) % 2;
    [own, 1 - own].map(|shard| Server::new(ServerConfig { shard, shards: 2, ..config_for(Box::new(|_, _| true)) }))
}

#[test]
fn a_shard_takes_no_client_of_another() {
    let ([_, mut other], mut clients) = (shards_for(1), [client(1)]);
    exchange(&mut other, &mut clients, NOW);
    assert_eq!((other.connections(), other.counters().misdirected), (0, 1));
    assert!(other.poll_event().is_none() && clients[0].server().is_none());
}

#[test]
fn what_belongs_to_another_shard_is_dropped_and_counted_at_each_step() {
    let ([mut own, mut other], mut client) = (shards_for(1), client(1));
    let mut steps = 0;
    while let Some((_, packet)) = client.poll_transmit(NOW) {
        other.handle_input(path(100), &bytes(&packet), NOW);
        assert!(other.poll_transmit(NOW).is_none(), "not even a refusal");
        own.handle_input(path(100), &bytes(&packet), NOW);
        while let Some((_, answer)) = own.poll_transmit(NOW) {
            client.handle_input(path(1), &bytes(&answer), NOW);
        }
        steps += 1;
    }
    assert!(client.server().is_some() && steps >= 3);
    assert_eq!((other.counters().misdirected, own.counters().misdirected), (steps, 0));
}

/// Whoever makes his own packets could else have a session in each shard.
#[test]
fn a_discovery_must_steer_by_the_client_that_it_names() {
    let [mut own, mut other] = shards_for(1);
    let (_, packet) = client(1).poll_transmit(NOW).unwrap();
    let packet = bytes(&packet);
    let (prefix, _, body) = Prefix::read(&packet).unwrap();
    let (discovery, _) = Discovery::read(body).unwrap();
    for (server, word) in [(&mut own, prefix.connection ^ 2), (&mut other, prefix.connection ^ 1)] {
        for announce_only in [false, true] {
            let body = Discovery { announce_only, ..discovery.clone() }.write();
            let rogue = loose_packet(Opcode::DeviceDiscovery, word, prefix.number, &body);
            server.handle_input(path(100), &bytes(&rogue), NOW);
        }
        assert!(server.poll_transmit(NOW).is_none());
        assert_eq!(server.counters().misdirected, 2);
    }
}
