//! Both ends of VISA together: who gets in, what commands come to, and what happens when an end, or a packet, is lost.

mod dissection;
mod management;
mod streams;
mod succession;
mod world;

use std::time::Duration;

use sanwire_core::Protection;
use sanwire_security::keys::NO_PASSWORD;
use sanwire_visa::wire::header::{RawPacket, open_packet};
use sanwire_visa::wire::setup::{Accept, Refusal};
use sanwire_visa::wire::{Guarding, Kind};
use sanwire_visa::{ClientEvent, Failure, Mode, Offence, ServerEvent, Wishes, discovery, found};

use self::world::{Habits, World, bytes, identity, path};

fn connected(habits: Habits) -> World {
    let mut world = World::new(habits);
    world.run_for(Duration::from_secs(1));
    assert!(world.client.server().is_some());
    world
}

#[test]
fn what_is_written_is_read_in_every_mode_and_guarding() {
    let classic = Wishes { classic: true, ..Habits::default().wishes[0] };
    let unchecked = Wishes { unchecked: true, ..Habits::default().wishes[0] };
    for protection in Protection::ALL {
        for (wishes, is_stream) in [(Habits::default().wishes[0], false), (classic, false), (unchecked, true)] {
            let wishes = [Habits::default().wishes[0], wishes];
            let mut world = connected(Habits { protection, wishes, is_stream, ..Habits::default() });
            let data: Vec<u8> = (0..200 * 512).map(|at| (at / 7) as u8).collect();
            world.write(3, &data);
            world.run_for(Duration::from_secs(2));
            assert!(world.answered().is_some());
            world.read(3, data.len());
            world.run_for(Duration::from_secs(2));
            assert_eq!(world.answered().as_ref(), Some(&data), "{protection}");
            let mode = world.client.server().unwrap().terms.mode;
            assert_eq!(mode == Mode::Classic, wishes[1].classic);
            world.client.disconnect();
            world.run_for(Duration::from_secs(1));
            assert_eq!((world.server.sessions(), world.memory.free_bytes()), (0, world.memory.length_bytes()));
        }
    }
}

#[test]
fn data_is_guarded_as_the_unit_demands_from_the_first_packet_on() {
    for protection in Protection::ALL {
        let mut world = connected(Habits { protection, ..Habits::default() });
        for lba in 0..3 {
            world.write(lba, &[1; 512]);
        }
        let data = world.sent.iter().filter_map(|(_, packet)| {
            let header = RawPacket::read(packet).unwrap().header;
            (header.kind == Kind::Data).then_some(header.guarding)
        });
        // Nobody knows before its first answer what a unit wants.
        let data: Vec<Guarding> = data.collect();
        assert_eq!(data[0], Guarding::By(Protection::STRONGEST));
        assert!(data.len() >= 6 && data[2..].iter().all(|guarding| *guarding == Guarding::By(protection)));
        assert_eq!(world.client.protection(Default::default()), Some(protection));
    }
}

#[test]
fn who_does_not_know_the_password_learns_so_and_waits() {
    for (client_psk, expected) in [([1; 32], Failure::WrongPassword), (NO_PASSWORD, Failure::NoPassword)] {
        let mut world = World::new(Habits { client_psk, ..Habits::default() });
        world.run_for(Duration::from_secs(3));
        assert!(world.events.iter().any(|event| matches!(event, ClientEvent::GivenUp(told) if *told == expected)));
        let is_guess =
            |event: &&ServerEvent| matches!(event, ServerEvent::Refused { offence: Offence::WrongPassword, .. });
        assert!(world.told.iter().filter(is_guess).count() >= 1);
        assert_eq!(world.server.sessions(), 0);
    }
}

#[test]
fn another_server_than_the_pinned_one_is_not_taken() {
    let [pinned, received] = [7, 1].map(|number| *identity(number).public());
    let mut world = World::new(Habits { server_key: Some(pinned), ..Habits::default() });
    world.run_for(Duration::from_secs(6));
    let told = Failure::OtherServer { pinned, received };
    assert!(world.events.iter().any(|event| matches!(event, ClientEvent::GivenUp(failure) if *failure == told)));
    let pinned = Habits { server_key: Some(*identity(1).public()), ..Habits::default() };
    connected(pinned);
}

#[test]
fn who_is_not_allowed_hears_nothing() {
    let mut world = World::new(Habits { is_allowed: false, ..Habits::default() });
    world.run_for(Duration::from_secs(6));
    let question = discovery(identity(2).client_id(), "", 5);
    world.server.handle_input(path(2), &bytes(&question), world.now);
    world.run_for(Duration::from_secs(1));
    assert!(world.sent.iter().all(|(from_client, _)| *from_client), "it was answered");
    assert!(world.told.iter().any(|event| matches!(event, ServerEvent::NotAllowed { .. })));
    assert!(world.events.iter().any(|event| matches!(event, ClientEvent::GivenUp(Failure::NoAnswer))));
}

#[test]
fn a_question_who_is_there_is_answered_and_leaves_nothing_behind() {
    let mut world = World::new(Habits::default());
    let question = discovery(identity(2).client_id(), "", 5);
    world.server.handle_input(path(2), &bytes(&question), world.now);
    let answer = world.server.poll_transmit(world.now).map(|(_, packet)| bytes(&packet)).unwrap();
    assert!(answer.len() <= bytes(&question).len(), "an answer amplifies nothing");
    let server = found(&answer, 5).unwrap();
    assert_eq!((&server.name[..], server.packet_max_bytes), ("vault", 1472));
    assert!(found(&answer, 6).is_none());
    let other = discovery(identity(2).client_id(), "another", 5);
    world.server.handle_input(path(2), &bytes(&other), world.now);
    assert!(world.server.poll_transmit(world.now).is_none());
}

#[test]
fn a_command_whose_answer_is_lost_with_its_connection_runs_once() {
    let mut world = connected(Habits::default());
    world.loses = |from_client, packet| !from_client && RawPacket::read(packet).unwrap().header.kind == Kind::Data;
    world.write(1, &[5; 512]);
    world.run_for(Duration::from_millis(500));
    assert_eq!((world.executed, world.client.in_transit()), (1, 1));
    // Nothing passes for so long that the client seeks anew; the server has kept the answer.
    world.loses = |_, _| true;
    world.run_for(Duration::from_secs(5));
    assert!(world.client.server().is_none());
    world.loses = |_, _| false;
    world.run_for(Duration::from_secs(5));
    let resumed = world.events.iter().any(|event| matches!(event, ClientEvent::Connected { resumed: true, .. }));
    assert!(resumed && world.answered().is_some());
    assert_eq!((world.executed, world.client.in_transit()), (1, 0));
}

/// It may come when its connection has long been in use; what was asked there since is not what it speaks of.
#[test]
fn what_a_client_waits_for_is_kept_though_it_says_so_late() {
    let mut world = World::new(Habits::default());
    let kind = |packet: &[u8]| RawPacket::read(packet).unwrap().header.kind;
    world.loses = |from_client, packet| {
        let lost = if from_client { Kind::Agree } else { Kind::Data };
        RawPacket::read(packet).unwrap().header.kind == lost
    };
    world.run_for(Duration::from_secs(1));
    world.write(1, &[5; 512]);
    world.run_for(Duration::from_millis(300));
    assert_eq!((world.executed, world.client.in_transit()), (1, 1));
    let late = world.sent.iter().find(|(client, packet)| *client && kind(packet) == Kind::Agree).unwrap().1.clone();
    world.server.handle_input(path(2), &late, world.now);
    world.loses = |_, _| true;
    world.run_for(Duration::from_secs(5));
    world.loses = |_, _| false;
    world.run_for(Duration::from_secs(5));
    assert!(world.answered().is_some());
    assert_eq!((world.executed, world.server.counters().violations), (1, 0));
}

#[test]
fn packets_that_wait_for_one_that_never_comes_do_not_wait_for_ever() {
    let mut world = connected(Habits::default());
    world.loses = |from_client, packet| {
        let header = RawPacket::read(packet).unwrap().header;
        from_client && header.kind == Kind::Data && header.sequence == 0
    };
    world.write(1, &[5; 4096]);
    world.run_for(Duration::from_secs(25));
    assert!(!has_been_lost(&world));
    world.run_for(Duration::from_secs(8));
    assert!(has_been_lost(&world), "what it keeps others could need");
}

#[test]
fn a_first_step_that_comes_again_begins_no_other_handshake() {
    let mut world = connected(Habits::default());
    let first = world.sent.iter().find(|(client, _)| *client).unwrap().1.clone();
    world.drain();
    world.server.handle_input(path(2), &first, world.now);
    assert!(world.server.poll_transmit(world.now).is_none());
    assert_eq!(world.server.counters().duplicates, 1);
}

fn has_been_lost(world: &World) -> bool {
    world.events.iter().any(|event| matches!(event, ClientEvent::Lost { .. }))
}

/// A client that is refused its answers for a while seeks the server anew, by the same connection of TCP.
#[test]
fn a_connection_of_tcp_stays_as_long_as_another_one_of_ours_is_on_it() {
    let mut world = connected(Habits { is_stream: true, ..Habits::default() });
    world.replace_connection();
    assert!(world.client.server().is_some());
    let is_hangup = |event: &ServerEvent| matches!(event, ServerEvent::Hangup { .. });
    assert!(!world.told.iter().any(is_hangup));
    world.client.disconnect();
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.told.iter().filter(|event| is_hangup(event)).count(), 1);
}

/// Else it could have its session in two of them, which know nothing of what the other has executed.
#[test]
fn a_client_is_taken_by_its_own_shard_and_no_other_over_tcp_too() {
    for is_stream in [true, false] {
        let shards = (0..4).map(|shard| {
            let mut world = World::new(Habits { is_stream, shard: (shard, 4), ..Habits::default() });
            world.run_for(Duration::from_secs(1));
            (world.client.server().is_some(), world.server.counters().misdirected > 0)
        });
        let (own, others): (Vec<_>, Vec<_>) = shards.partition(|(is_connected, _)| *is_connected);
        assert_eq!((own, others), (vec![(true, false)], vec![(false, true); 3]));
    }
}

/// One that takes no connections, and says so at once, is not asked more often for that.
#[test]
fn a_way_that_ends_at_once_is_not_tried_without_a_pause() {
    let mut world = World::new(Habits { is_stream: true, ..Habits::default() });
    world.loses = |_, _| true;
    for _ in 0..2000 {
        world.run_for(Duration::from_millis(1));
        world.client.lost(path(1), world.now);
        world.client.lost(path(9), world.now);
        world.drain();
    }
    assert!(world.sent.len() < 15, "{}", world.sent.len());
}

/// Its round trip is longer than a hint takes to be believed where none is known.
#[test]
fn a_forged_hint_on_a_slow_path_ends_nothing() {
    let mut world = World::new(Habits { delay: Duration::from_millis(100), ..Habits::default() });
    for _ in 0..50 {
        world.run_for(Duration::from_millis(20));
        if world.client.server().is_some() {
            break;
        }
    }
    let mut headers = world.sent.iter().map(|(_, packet)| RawPacket::read(packet).unwrap().header);
    let connection = headers.rfind(|header| header.kind == Kind::Agree).unwrap().connection;
    let hint = Accept::Refusal { attempt: 0, reason: Refusal::UnknownConnection, proof: None };
    world.client.handle_input(path(1), &open_packet(Kind::Accept, true, connection, &hint.write()), world.now);
    world.run_for(Duration::from_secs(2));
    assert!(!has_been_lost(&world) && world.client.server().is_some());
}

#[test]
fn a_restarted_server_says_that_it_knows_nothing_and_commands_can_wait_for_that() {
    let mut world = connected(Habits::default());
    world.client.hold_after_restart();
    world.is_hung = true;
    world.write(1, &[5; 512]);
    world.restart();
    world.is_hung = false;
    world.run_for(Duration::from_secs(3));
    assert!(world.events.iter().any(|event| matches!(event, ClientEvent::Connected { resumed: false, .. })));
    assert_eq!((world.executed, world.client.in_transit()), (0, 1), "it is held");
    world.client.release(world.now);
    world.run_for(Duration::from_secs(1));
    assert_eq!((world.executed, world.client.in_transit()), (1, 0));
}

#[test]
fn a_client_that_is_gone_for_good_leaves_nothing() {
    let mut world = connected(Habits::default());
    world.write(1, &[5; 512]);
    world.replace_client(3);
    world.run_for(Duration::from_secs(120));
    assert_eq!(world.server.sessions(), 1, "that of the other one");
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
}

/// Reading one costs as much as all the rest of a handshake.
#[test]
fn a_third_step_that_is_refused_is_read_once() {
    let mut world = World::new(Habits::default());
    world.loses = |from_client, packet| from_client && RawPacket::read(packet).unwrap().header.kind == Kind::Confirm;
    world.drain();
    let confirm = world.sent.last().unwrap().1.clone();
    world.server.admit_no_more();
    for repeats in 0..4 {
        world.server.handle_input(path(2), &confirm, world.now);
        assert_eq!((world.server.counters().duplicates, world.server.sessions()), (repeats, 0));
    }
    assert!(world.server.poll_transmit(world.now).is_none(), "another server may be there already");
}

#[test]
fn many_handshakes_at_once_bring_back_a_cookie_first() {
    let mut world = World::new(Habits::default());
    for number in 10..200 {
        world.replace_client(number);
        world.drain();
        let is_connected = world.client.server().is_some();
        world.client.disconnect();
        world.drain();
        if world.server.counters().challenged > 0 {
            assert!(is_connected, "it brought back what it was asked for");
            return;
        }
    }
    panic!("nobody was asked for a cookie");
}

#[test]
fn what_is_sent_again_or_changed_on_the_way_breaks_no_rule_and_does_nothing() {
    let mut world = connected(Habits { protection: Protection::Checksum, ..Habits::default() });
    world.write(1, &[5; 512]);
    let replayed: Vec<Vec<u8>> = world.sent.iter().filter(|(client, _)| *client).map(|(_, p)| p.clone()).collect();
    let executed = world.executed;
    for packet in replayed.iter().rev().chain(&replayed) {
        world.server.handle_input(path(2), packet, world.now);
        let mut changed = packet.clone();
        changed[13] ^= 1;
        world.server.handle_input(path(2), &changed, world.now);
    }
    world.run_for(Duration::from_secs(1));
    assert_eq!((world.executed, world.server.counters().violations), (executed, 0));
    world.read(1, 512);
    world.run_for(Duration::from_secs(1));
    assert!(world.events.iter().any(|event| matches!(event, ClientEvent::Completed { .. })));
}

/// Without a check anybody can send what breaks the rules.
#[test]
fn who_breaks_the_rules_loses_the_connection_and_is_named_where_that_is_proven() {
    let unchecked = Wishes { unchecked: true, ..Habits::default().wishes[0] };
    let wishes = [Habits::default().wishes[0], unchecked];
    let mut world = connected(Habits { protection: Protection::Checksum, wishes, ..Habits::default() });
    world.write(1, &[5; 512]);
    let is_open = |packet: &[u8]| RawPacket::read(packet).unwrap().header.guarding == Guarding::None;
    world.write(1, &[5; 512]);
    let mut forged = world.sent.iter().rfind(|(client, packet)| *client && is_open(packet)).unwrap().1.clone();
    let sequence = u32::from_be_bytes(forged[12..16].try_into().unwrap());
    forged[12..16].copy_from_slice(&(sequence + 1).to_be_bytes());
    // No message begins in its middle.
    forged[2] &= !1;
    world.server.handle_input(path(2), &forged, world.now);
    world.run_for(Duration::from_secs(5));
    let offences = world.told.iter().filter_map(|event| match event {
        ServerEvent::Refused { offence, .. } => Some(*offence),
        _ => None,
    });
    assert_eq!(offences.collect::<Vec<_>>(), [Offence::UncheckedViolation]);
    assert!(!Offence::UncheckedViolation.is_proven());
    assert_eq!(world.server.counters().violations, 1);
    world.read(1, 512);
    world.run_for(Duration::from_secs(2));
    assert_eq!((world.client.in_transit(), world.server.sessions()), (0, 1), "it comes again");
}

#[test]
fn what_is_forged_is_told_of_with_whose_it_claims_to_be_and_how_often() {
    let mut world = connected(Habits::default());
    world.write(1, &[5; 512]);
    let is_data = |packet: &[u8]| RawPacket::read(packet).unwrap().header.kind == Kind::Data;
    let mut forged = world.sent.iter().rfind(|(client, packet)| *client && is_data(packet)).unwrap().1.clone();
    *forged.last_mut().unwrap() ^= 1;
    for _ in 0..100 {
        world.server.handle_input(path(2), &forged, world.now);
    }
    world.run_for(Duration::from_secs(3));
    let told = world.told.iter().filter_map(|event| match event {
        ServerEvent::Refused { offence, client, count, .. } => Some((*offence, *client, *count)),
        _ => None,
    });
    let client = identity(2).client_id();
    assert_eq!(told.collect::<Vec<_>>(), [(Offence::NotAuthentic, Some(client), 100)]);
    assert_eq!(world.server.counters().not_authentic, 100);
}
