//! Requests to manage the server: encrypted both ways whatever units want, done once, and answered to nobody else.

use std::time::Duration;

use sanwire_core::{Lun, Protection};
use sanwire_exchange::RequestHead;
use sanwire_scsi::Cdb;
use sanwire_visa::wire::header::RawPacket;
use sanwire_visa::wire::message::Prologue;
use sanwire_visa::wire::{Guarding, Header, Kind};
use sanwire_visa::{Ask, ClientEvent, Failure, Wishes};

use super::connected;
use super::world::{Habits, World, path};

const SECOND: Duration = Duration::from_secs(1);

const STRONGEST: Guarding = Guarding::By(Protection::STRONGEST);

/// Where packets have no check.
fn unchecked() -> Habits {
    let [of_server, of_client] = Habits::default().wishes;
    let wishes = [of_server, Wishes { unchecked: true, ..of_client }];
    Habits { protection: Protection::Checksum, wishes, ..Habits::default() }
}

fn is_data(packet: &[u8]) -> bool {
    RawPacket::read(packet).unwrap().header.kind == Kind::Data
}

fn guarding(packet: &[u8]) -> Guarding {
    RawPacket::read(packet).unwrap().header.guarding
}

/// What the client or the server has sent from there on, of commands and answers.
fn data_sent(world: &World, from: usize, by_client: bool) -> Vec<&[u8]> {
    let sent = world.sent[from..].iter().filter(|(client, packet)| *client == by_client && is_data(packet));
    sent.map(|(_, packet)| &packet[..]).collect()
}

/// What anybody can send in the client's name where packets have no check, in the place of the client's last packet or after it.
fn forged(world: &World, (number, ask): (u64, Ask), after: u32) -> Vec<u8> {
    let last = RawPacket::read(data_sent(world, 0, true).last().unwrap()).unwrap().header;
    let lun = Lun::default().to_wire();
    let head = RequestHead { number, settled_below: 0, receipts: 0, lun, data_in_max_bytes: 4096, ask }.write();
    let body = [&Prologue { head_bytes: head.len() as u16, data_bytes: 0 }.write()[..], &head[..]].concat();
    let header = Header {
        first: true,
        last: true,
        guarding: Guarding::None,
        tag: 9,
        sequence: last.sequence + after,
        payload_bytes: body.len() as u16,
        ..Header::single(Kind::Data, false, last.connection)
    };
    [&header.write(0)[..], &body].concat()
}

#[test]
fn management_goes_encrypted_both_ways_whatever_units_want() {
    let checked = Habits { protection: Protection::Checksum, ..Habits::default() };
    for habits in [checked, unchecked(), Habits { is_stream: true, ..unchecked() }] {
        let mut world = connected(habits);
        // The unit that has this number has said that it wants less.
        world.write(0, &[1; 512]);
        assert!(world.answered().is_some());
        let before = world.sent.len();
        let (request, answer) = (vec![b'q'; 20_000], vec![b'a'; 30_000]);
        world.administer(&request);
        world.run_for(SECOND);
        let asked = std::mem::take(&mut world.asked);
        assert_eq!(asked.len(), 1);
        let (handle, json, room_bytes) = &asked[0];
        assert_eq!((&json[..], *room_bytes), (&request[..], 1 << 16));
        world.server.administered(*handle, Some(answer.clone().into()), world.now);
        world.run_for(SECOND);
        assert_eq!(world.answered(), Some(answer));
        for by_client in [true, false] {
            let packets = data_sent(&world, before, by_client);
            assert!(!packets.is_empty() && packets.iter().all(|packet| guarding(packet) == STRONGEST));
        }
        let shows = |packet: &[u8]| packet.windows(8).any(|part| part == [b'q'; 8] || part == [b'a'; 8]);
        assert!(!world.sent.iter().any(|(_, packet)| shows(packet)), "nobody else reads it");
        // The unit is guarded as it was.
        assert_eq!(world.client.protection(Lun::default()), Some(Protection::Checksum));
        assert_eq!((world.server.counters().violations, world.server.counters().downgrades), (0, 0));
        assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
    }
}

#[test]
fn a_request_to_manage_that_comes_again_after_a_cut_is_answered_from_memory() {
    let mut world = connected(Habits::default());
    world.loses = |from_client, packet| !from_client && is_data(packet);
    world.administer(b"once");
    let handle = world.asked[0].0;
    world.server.administered(handle, Some(b"done".to_vec().into()), world.now);
    world.run_for(SECOND / 2);
    assert_eq!((world.asked.len(), world.client.in_transit()), (1, 1));
    world.loses = |_, _| true;
    world.run_for(5 * SECOND);
    assert!(world.client.server().is_none());
    world.loses = |_, _| false;
    world.run_for(5 * SECOND);
    assert_eq!(world.answered(), Some(b"done".to_vec()));
    // Whoever has heard it says it again.
    let heard: Vec<Vec<u8>> = data_sent(&world, 0, true).into_iter().map(<[u8]>::to_vec).collect();
    for packet in &heard {
        world.server.handle_input(path(2), packet, world.now);
    }
    world.run_for(SECOND);
    assert_eq!((world.asked.len(), world.client.in_transit()), (1, 0), "it is not done again");
}

/// One that was done must not be done again, and nobody knows whether this one was.
#[test]
fn a_request_to_manage_that_a_restarted_server_does_not_know_is_in_doubt() {
    let mut world = connected(Habits::default());
    world.administer(b"once");
    assert_eq!(world.asked.len(), 1);
    world.restart();
    world.run_for(5 * SECOND);
    let is_in_doubt = |event: &ClientEvent| matches!(event, ClientEvent::Failed { failure: Failure::InDoubt, .. });
    assert!(world.events.iter().any(is_in_doubt));
    assert_eq!((world.asked.len(), world.client.in_transit()), (1, 0));
}

#[test]
fn who_has_no_key_manages_nothing_where_packets_have_no_check() {
    let mut world = connected(unchecked());
    world.write(0, &[1; 512]);
    let packet = forged(&world, (1, Ask::Administer), 1);
    world.server.handle_input(path(2), &packet, world.now);
    world.drain();
    assert!(world.asked.is_empty());
    assert_eq!(world.server.counters().downgrades, 1, "it was understood");
}

/// Its answer is remembered for whoever asks under its number.
#[test]
fn who_has_no_key_does_not_get_an_answer_in_the_clear_by_asking_for_it_again() {
    let mut world = connected(unchecked());
    world.loses = |from_client, packet| !from_client && is_data(packet);
    world.administer(b"what is it");
    let handle = world.asked[0].0;
    world.server.administered(handle, Some(b"a secret".to_vec().into()), world.now);
    world.drain();
    world.loses = |_, _| true;
    world.run_for(5 * SECOND);
    assert!(world.client.server().is_none());
    // The client asks for it again, by its new connection, and somebody else is faster.
    world.loses = |from_client, packet| from_client && is_data(packet);
    world.run_for(5 * SECOND);
    assert!(world.client.server().is_some() && world.client.in_transit() == 1);
    let before = world.sent.len();
    let packet = forged(&world, (0, Ask::Command(Cdb::new(&[0; 6]).unwrap())), 0);
    world.server.handle_input(path(2), &packet, world.now);
    world.drain();
    let answers = data_sent(&world, before, false);
    assert!(!answers.is_empty(), "it was understood");
    assert!(answers.iter().all(|packet| guarding(packet) == STRONGEST));
    assert!(!answers.iter().any(|packet| packet.windows(8).any(|part| part == b"a secret")));
}
