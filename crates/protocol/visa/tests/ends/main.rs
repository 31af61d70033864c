//! Both ends of VISA together: who gets in, what commands come to, and what happens when an end, or a packet, is lost.

mod dissection;
mod world;

use std::time::Duration;

use sanwire_core::Protection;
use sanwire_visa::wire::header::RawPacket;
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
    let mut world = World::new(Habits { client_psk: [1; 32], ..Habits::default() });
    world.run_for(Duration::from_secs(3));
    assert!(world.events.iter().any(|event| matches!(event, ClientEvent::GivenUp(Failure::NotAuthentic))));
    let is_guess = |event: &&ServerEvent| matches!(event, ServerEvent::Refused { offence: Offence::WrongPassword, .. });
    assert!(world.told.iter().filter(is_guess).count() >= 1);
    assert_eq!(world.server.sessions(), 0);
}

#[test]
fn another_server_than_the_pinned_one_is_not_taken() {
    let mut world = World::new(Habits { server_key: Some(*identity(7).public()), ..Habits::default() });
    world.run_for(Duration::from_secs(6));
    assert!(world.events.iter().any(|event| matches!(event, ClientEvent::GivenUp(Failure::OtherServer))));
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

#[test]
fn a_full_server_says_so_and_makes_room_of_what_nobody_uses() {
    let mut world = connected(Habits::default());
    for number in 3..6 {
        world.replace_client(number);
        world.run_for(Duration::from_millis(200));
        assert!(world.client.server().is_some(), "{number}");
    }
    world.replace_client(6);
    world.run_for(Duration::from_millis(900));
    assert!(world.client.server().is_none(), "there are four");
    // Those that are gone are missed after some keep-alives.
    world.run_for(Duration::from_secs(10));
    world.replace_client(6);
    world.run_for(Duration::from_secs(2));
    assert!(world.client.server().is_some());
}

#[test]
fn many_handshakes_at_once_bring_back_a_cookie_first() {
    let mut world = World::new(Habits::default());
    for number in 10..200 {
        world.replace_client(number);
        world.drain();
        world.client.disconnect();
        world.drain();
        if world.server.counters().challenged > 0 {
            return;
        }
    }
    panic!("nobody was asked for a cookie");
}

#[test]
fn who_breaks_the_rules_loses_the_connection_and_nothing_else() {
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
