//! Packets of every length that an Ethernet carries: less than they say, and more.

use std::time::Duration;

use sanwire_hdsp::ClientEvent;
use sanwire_hdsp::wire::DiskType;

use crate::world::{Habits, World, path, read, write};

/// The payload of a frame of 9,018 bytes.
const PAYLOAD_MAX_BYTES: usize = 9_004;

fn is_of_client(packet: &[u8]) -> bool {
    packet[0] & 8 == 0
}

fn is_data(packet: &[u8]) -> bool {
    packet[2] >> 4 == 1
}

/// Gives a packet to one of both ends; says how many come back.
fn give(world: &mut World, is_to_server: bool, packet: &[u8]) -> usize {
    if is_to_server {
        world.server.handle_input(path(1), packet, world.now);
        std::iter::from_fn(|| world.server.poll_transmit(world.now)).count()
    } else {
        world.client.handle_input(path(0), packet, world.now);
        std::iter::from_fn(|| world.client.poll_transmit(world.now)).count()
    }
}

/// Both ends after a write, and what they have sent.
fn connected() -> (World, Vec<Vec<u8>>) {
    let mut world = World::new(Habits::default());
    world.ends(write(DiskType::Sata, 0, &[1; 1024]));
    let sent = world.sent.clone();
    (world, sent)
}

/// The connection goes on, and nothing more was executed than the write, and a read.
fn expect_well(mut world: World) {
    assert_eq!((world.asked.len(), world.server.sessions()), (1, 1));
    assert_eq!((world.server.counters().violations, world.client.counters().violations), (0, 0));
    let events = world.wait(Duration::from_millis(100));
    assert!(!events.iter().any(|event| matches!(event, ClientEvent::Disconnected)), "{events:?}");
    assert_eq!(world.ends(read(DiskType::Sata, 0, 2)).1, Some(vec![1; 1024]));
    assert_eq!(world.asked.len(), 2);
}

#[test]
fn what_is_no_packet_or_less_than_it_says_is_dropped_without_an_answer() {
    let (mut world, sent) = connected();
    let zeroes = vec![0; PAYLOAD_MAX_BYTES];
    for length in 0..=PAYLOAD_MAX_BYTES {
        for is_to_server in [true, false] {
            assert_eq!(give(&mut world, is_to_server, &zeroes[..length]), 0, "{length} zeroes");
        }
    }
    for packet in sent {
        for length in 0..packet.len() {
            let answers = give(&mut world, is_of_client(&packet), &packet[..length]);
            assert_eq!(answers, 0, "{length} of {} bytes: {:?}", packet.len(), &packet[..length.min(32)]);
        }
    }
    expect_well(world);
}

/// What stands behind a packet is padding.
#[test]
fn packets_that_come_again_with_more_behind_them_are_known() {
    let (mut world, sent) = connected();
    for is_to_server in [true, false] {
        let packet = sent.iter().rfind(|packet| is_of_client(packet) == is_to_server && is_data(packet));
        let mut packet = packet.expect("it has sent data").clone();
        while packet.len() < PAYLOAD_MAX_BYTES {
            packet.push(0xa5);
            assert!(give(&mut world, is_to_server, &packet) <= 1, "{} bytes", packet.len());
        }
    }
    expect_well(world);
}
