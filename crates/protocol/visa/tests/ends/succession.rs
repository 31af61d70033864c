//! Several programs of one host, by one key: one that was killed and runs again, and such that live beside each other.

use std::time::Duration;

use sanwire_visa::wire::Kind;
use sanwire_visa::wire::header::RawPacket;
use sanwire_visa::{ClientEvent, ServerEvent, Wishes};

use super::connected;
use super::world::{Habits, World, path};

const MOMENT: Duration = Duration::from_millis(10);

/// Modern and classic over UDP, and over TCP.
fn every_carrier() -> [Habits; 3] {
    let [of_server, of_client] = Habits::default().wishes;
    let classic = Habits { wishes: [of_server, Wishes { classic: true, ..of_client }], ..Habits::default() };
    [Habits::default(), classic, Habits { is_stream: true, ..Habits::default() }]
}

fn opened(world: &World) -> usize {
    world.told.iter().filter(|event| matches!(event, ServerEvent::SessionOpened { .. })).count()
}

/// How many of its commands were done, and how often it has lost its connection, of the program that was there before.
fn told_beside(world: &mut World) -> (usize, usize) {
    let (mut done, mut lost) = (0, 0);
    while let Some(event) = world.others[0].1.poll_event() {
        done += usize::from(matches!(event, ClientEvent::Completed { .. }));
        lost += usize::from(matches!(event, ClientEvent::Lost { .. }));
    }
    (done, lost)
}

#[test]
fn what_a_killed_program_has_given_does_not_begin_when_its_successor_is_there() {
    for habits in every_carrier() {
        let mut world = connected(habits);
        let full = world.memory.frame(world.memory.length_bytes()).unwrap();
        world.write(0, &[1; 512]);
        world.run_for(MOMENT);
        assert!(world.server.is_starved());
        // It says nothing, and the server has not missed it yet.
        world.start_again(true);
        world.run_for(MOMENT);
        assert_eq!((opened(&world), world.executed), (2, 0));
        drop(full);
        world.run_for(MOMENT);
        world.write(0, &[2; 512]);
        world.run_for(Duration::from_secs(40));
        assert_eq!((world.executed, world.disk[0]), (1, 2));
        assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
    }
}

/// From the buffers of its kernel, or from another socket of the server.
#[test]
fn what_a_killed_program_has_given_does_not_come_after_its_successor() {
    for habits in every_carrier() {
        let mut world = connected(habits);
        let is_data = |packet: &[u8]| RawPacket::read(packet).unwrap().header.kind == Kind::Data;
        world.loses = |from_client, packet| from_client && RawPacket::read(packet).unwrap().header.kind == Kind::Data;
        world.write(0, &[1; 4096]);
        let late: Vec<_> = world.sent.iter().filter(|(client, packet)| *client && is_data(packet)).cloned().collect();
        world.loses = |_, _| false;
        world.start_again(true);
        world.run_for(MOMENT);
        world.write(0, &[2; 512]);
        for (_, packet) in &late {
            world.server.handle_input(path(2), packet, world.now);
        }
        world.run_for(Duration::from_secs(1));
        assert_eq!((opened(&world), world.executed, world.disk[0]), (2, 1, 2));
    }
}

#[test]
fn a_program_that_lives_goes_on_beside_another_one_that_begins() {
    for habits in every_carrier() {
        let mut world = connected(Habits { delay: MOMENT, ..habits });
        world.start_again(false);
        while opened(&world) < 2 {
            world.run_for(Duration::from_millis(1));
        }
        // The server is waiting for its sign of life when this comes.
        world.write_beside(0, &[1; 4096]);
        world.run_for(MOMENT + MOMENT / 2);
        assert_eq!(world.executed, 0);
        world.run_for(Duration::from_secs(2));
        assert_eq!((world.executed, told_beside(&mut world)), (1, (1, 0)));
    }
}

#[test]
fn a_program_that_lives_and_sends_more_than_can_be_kept_connects_again() {
    let mut world = connected(Habits { delay: MOMENT, is_stream: true, ..Habits::default() });
    world.start_again(false);
    while opened(&world) < 2 {
        world.run_for(Duration::from_millis(1));
    }
    (0..4).for_each(|_| world.write_beside(0, &[1; 512 << 10]));
    world.run_for(Duration::from_secs(5));
    assert_eq!((world.executed, told_beside(&mut world)), (4, (4, 1)));
    assert_eq!((opened(&world), world.server.counters().violations), (2, 0));
}
