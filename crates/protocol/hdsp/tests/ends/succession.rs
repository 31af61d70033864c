//! Commands that are given again, wait for others, or are not executed at all.

use std::time::Duration;

use sanwire_ata::{DEVICE_LBA, Registers, TaskFile, command_code, error};
use sanwire_hdsp::wire::DiskType;
use sanwire_hdsp::{Answer, ClientEvent, Command, Order, Outcome, Request};

use crate::sessions::{MOMENT, connected, cut};
use crate::world::{Habits, World, client, order, path, read, write};

fn ended(events: &[ClientEvent]) -> usize {
    events.iter().filter(|event| matches!(event, ClientEvent::Ended { .. })).count()
}

/// What a write has written first, of each that was asked for.
fn written(world: &World) -> Vec<u8> {
    let first = |request: &Request| match request {
        Request::Ata { data, .. } | Request::Scsi { data, .. } => data.first().map(|data| data[0]),
    };
    world.asked.iter().filter_map(|(_, request)| first(request)).collect()
}

#[test]
fn a_session_begins_when_the_disk_has_ended_what_its_client_has_abandoned() {
    let mut world = connected();
    world.executes = false;
    world.client.order(write(DiskType::Sata, 0, &[1; 512]), world.now).unwrap();
    world.wait(MOMENT);
    world.loses = Box::new(|_, _| true);
    let events = world.wait(Duration::from_secs(40));
    assert_eq!(ended(&events), 1, "its client has lost patience");
    world.loses = Box::new(|_, _| false);
    world.client.order(write(DiskType::Sata, 0, &[2; 512]), world.now).unwrap();
    world.wait(Duration::from_secs(3));
    assert!(world.opened.len() == 2 && world.client.is_connected());
    assert_eq!(written(&world), [1], "the second one might be there first");
    world.executes = true;
    assert_eq!(ended(&world.wait(MOMENT)), 1);
    assert_eq!(written(&world), [1, 2]);
}

#[test]
fn a_client_that_starts_anew_waits_for_what_it_gave_before() {
    for is_withdrawn in [false, true] {
        let mut world = connected();
        world.executes = false;
        world.client.order(write(DiskType::Sata, 0, &[1; 512]), world.now).unwrap();
        world.client.order(write(DiskType::Sata, 8, &[2; 512]), world.now).unwrap();
        world.wait(MOMENT);
        cut(&mut world);
        world.loses = Box::new(|_, _| true);
        world.wait(Duration::from_secs(6));
        world.loses = Box::new(|_, _| false);
        world.client = client(Habits::default(), 9, vec![path(0)], world.now);
        world.client.order(write(DiskType::Sata, 0, &[3; 512]), world.now).unwrap();
        world.wait(MOMENT);
        assert!(world.client.is_connected() && world.server.sessions() == 2);
        assert_eq!(written(&world), [1, 2]);
        if is_withdrawn {
            for (handle, _) in world.asked.clone() {
                world.server.withdraw(handle, world.now);
            }
            world.skip();
        }
        world.executes = true;
        assert_eq!(ended(&world.wait(MOMENT)), 1);
        assert_eq!(written(&world), [1, 2, 3]);
    }
}

#[test]
fn what_a_killed_program_has_given_does_not_begin_when_its_successor_is_there() {
    let mut world = connected();
    world.executes = false;
    // More than there is room for in answers, and a write that waits behind it.
    for lba in 0..17 {
        world.client.order(read(DiskType::Sata, lba, 128), world.now).unwrap();
    }
    world.client.order(write(DiskType::Sata, 0, &[1; 512]), world.now).unwrap();
    world.wait(MOMENT);
    assert_eq!((world.asked.len(), written(&world).len()), (16, 0));
    // It says nothing, and the server has not missed it yet.
    world.client = client(Habits::default(), 9, vec![path(0)], world.now);
    world.client.order(write(DiskType::Sata, 0, &[2; 512]), world.now).unwrap();
    while world.opened.len() < 2 {
        world.wait(Duration::from_micros(10));
    }
    // There is room now: the answers have no data.
    for (handle, request) in world.asked.clone() {
        let Request::Ata { task_file, .. } = request else { panic!("a read") };
        let registers = Registers::failure(&task_file, error::ABRT);
        world.server.reply(handle, &Answer::Ata { registers, data: None }, false, world.now);
    }
    world.skip();
    world.executes = true;
    world.wait(Duration::from_secs(3));
    assert_eq!(written(&world), [2]);
}

#[test]
fn what_a_killed_program_has_had_held_begins_before_its_successor() {
    let mut world = connected();
    let held = Order { more: true, ..write(DiskType::Sata, 0, &[1; 512]) };
    world.client.order(held, world.now).unwrap();
    while world.sent.last().is_none_or(|packet| packet.len() < 512) {
        world.wait(Duration::from_micros(10));
    }
    assert!(world.asked.is_empty(), "it is held");
    world.client = client(Habits::default(), 9, vec![path(0)], world.now);
    while world.opened.len() < 2 {
        world.wait(Duration::from_micros(10));
    }
    assert_eq!(written(&world), [1]);
}

#[test]
fn what_is_given_again_while_it_is_executed_takes_no_memory() {
    let mut world = World::new(Habits { memory_bytes: 72 << 10, ..Habits::default() });
    world.executes = false;
    world.client.order(write(DiskType::Sata, 0, &[1; 64 << 10]), world.now).unwrap();
    world.wait(MOMENT);
    assert_eq!(world.asked.len(), 1);
    cut(&mut world);
    assert!(world.client.is_connected() && world.server.counters().no_memory == 0);
    world.executes = true;
    assert_eq!(ended(&world.wait(MOMENT)), 1);
    assert_eq!(world.asked.len(), 1);
}

#[test]
fn a_write_that_is_said_to_be_repeatable_is_answered_from_memory_all_the_same() {
    let mut world = connected();
    world.executes = false;
    world.client.order(write(DiskType::Sata, 0, &[1; 512]), world.now).unwrap();
    world.wait(MOMENT);
    world.loses = Box::new(|_, _| true);
    world.wait(Duration::from_secs(6));
    let (handle, Request::Ata { task_file, .. }) = world.asked[0].clone() else { panic!("a write") };
    let answer = Answer::Ata { registers: sanwire_ata::Registers::success(&task_file), data: None };
    world.server.reply(handle, &answer, true, world.now);
    world.loses = Box::new(|_, _| false);
    assert_eq!(ended(&world.wait(Duration::from_secs(1))), 1);
    assert_eq!(world.asked.len(), 1);
}

#[test]
fn no_more_reads_begin_than_there_is_room_for_their_answers() {
    let mut world = connected();
    world.executes = false;
    for lba in 0..40 {
        world.client.order(read(DiskType::Sata, lba, 128), world.now).unwrap();
    }
    world.wait(MOMENT);
    assert_eq!(world.asked.len(), 16, "a mebibyte");
    world.executes = true;
    assert_eq!(ended(&world.wait(Duration::from_secs(1))), 40);
}

#[test]
fn a_write_that_brings_no_data_is_refused() {
    let mut world = connected();
    let task_file = TaskFile::long(command_code::WRITE_DMA_EXT, 0, 2, [0; 6], DEVICE_LBA);
    let (outcome, _) = world.ends(order(Command::Ata(task_file), None, None));
    let Outcome::Ata(registers) = outcome else { panic!("{outcome:?}") };
    assert!(!registers.is_success() && registers.error == error::ABRT);
    assert!(world.asked.is_empty(), "nobody is asked to write nothing");
}

#[test]
fn a_read_that_is_longer_than_a_transfer_is_not_given() {
    let mut world = connected();
    for order in [read(DiskType::Sata, 0, 2049), read(DiskType::Sata, 0, 0)] {
        assert_eq!(world.ends(order).0, Outcome::TooLong);
    }
    let mut world = World::new(Habits { disk_type: DiskType::Scsi, ..Habits::default() });
    let order = order(Command::Scsi(vec![0x28, 0, 1]), None, Some((1 << 20) + 1));
    assert_eq!(world.ends(order).0, Outcome::TooLong);
}

/// The server goes on with what a client has no patience for any more.
#[test]
fn numbers_of_what_is_still_executed_are_not_given_to_others() {
    let mut world = connected();
    world.executes = false;
    world.client.order(write(DiskType::Sata, 0, &[1; 512]), world.now).unwrap();
    world.wait(MOMENT);
    let (slow, _) = world.asked[0].clone();
    world.skip();
    world.loses = Box::new(|_, _| true);
    world.wait(Duration::from_secs(6));
    world.client.begin_anew(world.now);
    world.loses = Box::new(|_, _| false);
    world.executes = true;
    let lost = world.wait(Duration::from_secs(3));
    assert!(lost.iter().any(|event| matches!(event, ClientEvent::Ended { outcome: Outcome::Lost, .. })), "{lost:?}");
    for number in 0..300 {
        world.client.order(read(DiskType::Sata, number % 64, 1), world.now).unwrap();
    }
    world.wait(MOMENT);
    assert_eq!(world.asked.len(), 1, "the session begins when the disk has ended that");
    world.server.withdraw(slow, world.now);
    assert_eq!(ended(&world.wait(Duration::from_secs(3))), 300);
    assert_eq!((world.server.counters().violations, world.opened.len()), (0, 2));
}
