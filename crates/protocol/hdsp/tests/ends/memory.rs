//! Clients that keep memory from others, and those others.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_buffer::{Frame, Shortage, UNIT_BYTES};
use sanwire_core::NexusId;
use sanwire_hdsp::wire::flow::Flow;
use sanwire_hdsp::wire::pcu::RawPcu;
use sanwire_hdsp::wire::pdu::Fields;
use sanwire_hdsp::wire::{Class, DiskType, Pdu};
use sanwire_hdsp::{ClientEvent, Outcome};

use crate::sessions::connected;
use crate::world::{Habits, Sender, World, client, path, write};

/// Of each write the packet with this sector never arrives.
fn lose_sector(world: &mut World, sector: u64) {
    world.loses = Box::new(move |from, packet| {
        let fields = Pdu::read(packet).map(|pdu| pdu.fields);
        from == Sender::Client && matches!(fields, Ok(Fields::Ata(register)) if register.lba == sector)
    });
}

/// What is written to these sectors never arrives.
fn lose_below(world: &mut World, end: u64) {
    world.loses = Box::new(move |from, packet| {
        let fields = Pdu::read(packet).map(|pdu| pdu.fields);
        from == Sender::Client && matches!(fields, Ok(Fields::Ata(register)) if register.lba < end)
    });
}

fn disconnections(events: &[ClientEvent]) -> usize {
    events.iter().filter(|event| matches!(event, ClientEvent::Disconnected)).count()
}

fn good(events: &[ClientEvent]) -> usize {
    let is_good = |event: &&ClientEvent| matches!(event, ClientEvent::Ended { outcome: Outcome::Ata(registers), .. } if registers.is_success());
    events.iter().filter(is_good).count()
}

#[test]
fn a_command_that_does_not_go_on_loses_its_connection_and_its_memory() {
    let mut world = connected();
    lose_sector(&mut world, 6);
    world.client.order(write(DiskType::Sata, 0, &[1; 16 * 512]), world.now).unwrap();
    assert_eq!(disconnections(&world.wait(Duration::from_secs(29))), 0, "it may be the network");
    assert!(world.memory.free_bytes() < world.memory.length_bytes());
    assert_eq!(disconnections(&world.wait(Duration::from_secs(2))), 1);
    world.loses = Box::new(|_, _| false);
    assert_eq!(good(&world.wait(Duration::from_secs(2))), 1);
}

#[test]
fn who_keeps_memory_from_others_in_a_command_that_does_not_go_on_gives_it_back_sooner() {
    let mut world = connected();
    lose_sector(&mut world, 6);
    world.client.order(write(DiskType::Sata, 0, &[1; 16 * 512]), world.now).unwrap();
    let starving = world.memory.share(world.memory.length_bytes());
    let relieve = |world: &mut World| {
        assert!(starving.frame(world.memory.length_bytes()).is_none());
        let shortage: Shortage = [(NexusId(99), &starving)].into_iter().collect();
        world.server.relieve(&shortage, world.now);
        disconnections(&world.wait(Duration::from_millis(10)))
    };
    world.wait(Duration::from_millis(1500));
    assert_eq!(relieve(&mut world), 0);
    world.wait(Duration::from_millis(1000));
    world.server.relieve(&Shortage::default(), world.now);
    assert!(world.wait(Duration::from_millis(10)).is_empty(), "nobody needs it");
    assert_eq!(relieve(&mut world), 1);
}

#[test]
fn who_waits_for_memory_is_known() {
    let mut world = World::new(Habits { memory_bytes: 32 << 10, ..Habits::default() });
    world.client.order(write(DiskType::Sata, 0, &[1; 64 << 10]), world.now).unwrap();
    world.wait(Duration::from_millis(300));
    assert!(world.server.is_starved());
    assert_eq!(world.server.starving().map(|(nexus, _)| nexus).collect::<Vec<_>>(), world.opened);
    world.client.close();
    world.wait(Duration::from_millis(10));
    assert!(!world.server.is_starved() && world.memory.free_bytes() == world.memory.length_bytes());
}

/// The one that has begun first comes first, but not for ever.
#[test]
fn a_command_that_never_ends_does_not_keep_others_from_theirs() {
    let mut world = World::new(Habits { memory_bytes: 56 << 10, ..Habits::default() });
    world.wait(Duration::from_millis(100));
    lose_sector(&mut world, 6);
    world.client.order(write(DiskType::Sata, 0, &[1; 32 << 10]), world.now).unwrap();
    world.wait(Duration::from_millis(100));
    let mut other = client(Habits::default(), 9, vec![path(0)], world.now);
    other.order(write(DiskType::Sata, 128, &[2; 48 << 10]), world.now).unwrap();
    world.other = Some(other);
    world.wait(Duration::from_secs(3));
    assert_eq!(good(&world.other_events), 0);
    world.wait(Duration::from_secs(12));
    assert_eq!(good(&world.other_events), 1);
}

/// The network has kept a packet back by which a client may send next to nothing.
#[test]
fn a_change_that_a_later_one_has_overtaken_is_ignored() {
    let mut world = connected();
    let change = Flow::Change { window_packets: 1, group_packets: 1, rate_bytes_per_second: 1 }.write();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&kept);
    world.loses = Box::new(move |from, packet| {
        let is_change =
            RawPcu::read(packet).is_ok_and(|raw| raw.pcu.class == Class::Flow && raw.operation.len() == change.len());
        let is_kept = from == Sender::Server && is_change;
        if is_kept {
            keeps.lock().unwrap().push(packet.to_vec());
        }
        is_kept
    });
    world.server.change_flow(world.opened[0], 1, 1, 1, world.now);
    world.wait(Duration::from_millis(10));
    world.loses = Box::new(|_, _| false);
    world.server.change_flow(world.opened[0], 64, 32, 0, world.now);
    world.wait(Duration::from_millis(10));
    let kept = kept.lock().unwrap().clone();
    assert_eq!(kept.len(), 1);
    world.client.handle_input(path(0), &kept[0], world.now);
    world.client.order(write(DiskType::Sata, 0, &[1; 8 << 10]), world.now).unwrap();
    let burst = std::iter::from_fn(|| world.client.poll_transmit(world.now)).count();
    assert!(burst >= 8, "{burst} packets at once");
}

/// The network has lost the packet by which a client may send as much as ever again, and there is nothing that would have it sent anew.
#[test]
fn a_change_that_was_lost_is_told_again() {
    let mut world = connected();
    world.server.change_flow(world.opened[0], 1, 1, 1, world.now);
    world.wait(Duration::from_millis(10));
    for lba in [0, 16] {
        world.client.order(write(DiskType::Sata, lba, &[1; 16 * 512]), world.now).unwrap();
    }
    assert_eq!(good(&world.wait(Duration::from_secs(1))), 0, "a byte in a second");
    world.loses = Box::new(|from, packet| {
        from == Sender::Server && RawPcu::read(packet).is_ok_and(|raw| raw.pcu.class == Class::Flow)
    });
    world.server.change_flow(world.opened[0], 64, 32, 0, world.now);
    world.wait(Duration::from_millis(10));
    world.loses = Box::new(|_, _| false);
    assert_eq!(good(&world.wait(Duration::from_secs(3))), 2);
}

/// All sessions share the pages that packets come into; who is alone needs none of them for others.
#[test]
fn who_has_much_under_way_keeps_no_more_than_a_share_of_what_packets_come_into() {
    let mut world = connected();
    world.keeps = true;
    world.client.order(write(DiskType::Sata, 0, &[1; 1 << 20]), world.now).unwrap();
    world.wait(Duration::from_secs(1));
    assert_eq!((world.server.written().in_place, world.server.written().copied), (1 << 20, 0), "it is alone");
    world.other = Some(client(Habits::default(), 9, vec![path(1)], world.now));
    world.wait(Duration::from_secs(1));
    assert_eq!(world.server.sessions(), 2);
    world.executes = false;
    for lba in 0..64 {
        world.client.order(write(DiskType::Sata, lba * 32, &[1; 16 << 10]), world.now).unwrap();
    }
    world.wait(Duration::from_secs(1));
    let written = world.server.written();
    let alone = 1 << 20;
    assert_eq!((written.in_place, written.copied), (alone + (512 << 10), 512 << 10), "512 packets, of a mebibyte");
    world.executes = true;
    world.wait(Duration::from_secs(1));
    world.client.order(write(DiskType::Sata, 0, &[1; 16 << 10]), world.now).unwrap();
    world.wait(Duration::from_secs(1));
    assert_eq!(world.server.written().in_place, alone + ((512 + 16) << 10), "what is answered keeps nothing");
    // What is not whole counts, too.
    world.executes = false;
    world.loses = Box::new(|from, packet| {
        let fields = Pdu::read(packet).map(|pdu| pdu.fields);
        from == Sender::Client && matches!(fields, Ok(Fields::Ata(register)) if register.lba % 32 == 0)
    });
    for lba in 0..64 {
        world.client.order(write(DiskType::Sata, lba * 32, &[1; 16 << 10]), world.now).unwrap();
    }
    world.wait(Duration::from_secs(1));
    assert_eq!(world.server.written().in_place, alone + ((512 + 16) << 10));
    world.loses = Box::new(|_, _| false);
    world.wait(Duration::from_secs(5));
    assert_eq!(world.server.written().in_place, alone + ((2 * 512 + 16) << 10));
}

/// Somebody else has so many bytes of the memory.
fn take(world: &World, bytes: usize) -> Vec<Frame> {
    (0..bytes / UNIT_BYTES).map(|_| world.memory.frame(UNIT_BYTES).unwrap()).collect()
}

/// Otherwise nobody gives it memory, while nobody else may take any.
#[test]
fn the_command_that_comes_first_lacks_memory_whatever_its_client_sends_besides() {
    let mut world = World::new(Habits { memory_bytes: 24 << 10, ..Habits::default() });
    world.wait(Duration::from_millis(100));
    let taken = take(&world, 4 << 10);
    world.client.order(write(DiskType::Sata, 0, &[1; 24 << 10]), world.now).unwrap();
    world.client.order(write(DiskType::Sata, 64, &[1; 24 << 10]), world.now).unwrap();
    for _ in 0..10 {
        world.wait(Duration::from_millis(600));
        let (_, share) = world.server.starving().next().unwrap();
        assert!(share.is_denied());
    }
    world.forgets = true;
    drop(taken);
    assert_eq!(good(&world.wait(Duration::from_secs(2))), 2);
}

/// The window of a client is full of packets of its first command, which were lost, when some of its second one have come: the others of
/// that wait for the first one, so that comes first.
#[test]
fn a_command_that_was_sent_first_comes_before_one_that_came_before_it() {
    let mut world = World::new(Habits { memory_bytes: 24 << 10, ..Habits::default() });
    world.wait(Duration::from_millis(100));
    world.server.change_flow(world.opened[0], 6, 32, 0, world.now);
    world.wait(Duration::from_millis(10));
    lose_below(&mut world, 8);
    world.client.order(write(DiskType::Sata, 0, &[1; 4 << 10]), world.now).unwrap();
    world.client.order(write(DiskType::Sata, 8, &[1; 24 << 10]), world.now).unwrap();
    world.wait(Duration::from_millis(1));
    let taken = take(&world, 20 << 10);
    assert_eq!(world.memory.free_bytes(), 0, "the second one has the rest");
    world.loses = Box::new(|_, _| false);
    world.forgets = true;
    let mut ended = good(&world.wait(Duration::from_secs(2)));
    drop(taken);
    ended += good(&world.wait(Duration::from_secs(3)));
    assert_eq!(ended, 2);
}
