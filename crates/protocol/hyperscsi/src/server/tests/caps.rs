//! Clients that keep to their cap, and one that does not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_core::{ClientId, Peer};

use super::server_for;
use super::world::{MS, World, bytes};
use crate::server::SecurityEvent;
use crate::wire::{Opcode, Prefix, Protection};
use crate::{Admission, Client, DesiredOptions, ServerEvent};

const CAP: u64 = 1_000_000;

/// The cap that the server wants.
#[derive(Clone)]
struct Cap(Arc<Mutex<Option<u64>>>);

impl Admission for Cap {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }

    fn wishes(&self, _: ClientId) -> DesiredOptions {
        DesiredOptions { rate_cap_bytes_per_second: *self.0.lock().unwrap(), ..DesiredOptions::default() }
    }
}

/// Bytes of the commands that come while the client always has something to send.
fn come(world: &mut World, duration: Duration) -> u64 {
    let (end, mut bytes) = (world.now + duration, 0);
    while world.now < end {
        while world.client.in_transit() < 8 {
            world.order(20_000);
        }
        world.pass(MS);
        bytes += world.come().iter().map(|bytes| *bytes as u64).sum::<u64>();
        world.answers();
    }
    bytes
}

#[test]
fn a_client_that_ignores_its_cap_gets_no_more_than_one_that_keeps_to_it() {
    let mut world = World::with(server_for(Box::new(Cap(Arc::new(Mutex::new(Some(CAP)))))));
    let kept = come(&mut world, Duration::from_secs(10));
    assert!((9 * CAP..11 * CAP).contains(&kept), "{kept}");
    assert_eq!(world.server.counters().excess, 0, "who keeps to it is left alone");
    world.client.ignore_cap();
    let got = come(&mut world, Duration::from_secs(10));
    assert!(got < 11 * CAP, "{got} bytes in 10 s at {CAP} in a second");
    assert!(world.server.counters().excess > 0);
}

#[test]
fn a_cap_that_changes_finds_nobody_in_excess_who_heeds_it() {
    let cap = Cap(Arc::new(Mutex::new(None)));
    let mut world = World::with(server_for(Box::new(cap.clone())));
    for wanted in [None, Some(50 * CAP), Some(CAP), Some(2 * CAP), None, Some(CAP)] {
        *cap.0.lock().unwrap() = wanted;
        world.server.refresh_options(world.now);
        come(&mut world, Duration::from_millis(700));
        assert_eq!(world.server.counters().excess, 0, "{wanted:?}");
    }
}

/// Whether a packet of the server asks for something, sealed.
fn asks(packet: &sanwire_buffer::Packet) -> bool {
    let (prefix, ..) = Prefix::read(&bytes(packet)).unwrap();
    prefix.header.opcode == Opcode::AdnRequest && prefix.protection != Protection::Checksum
}

/// Time passes for a client that hears nothing of what it is asked; what the server tells meanwhile of offences.
fn pass_deaf(world: &mut World, duration: Duration) -> Vec<SecurityEvent> {
    let (end, mut offences) = (world.now + duration, Vec::new());
    while world.now < end {
        // It is there: only to changes it does not answer.
        world.order(0);
        world.run(100 * MS, &mut asks);
        while let Some(event) = world.server.poll_event() {
            match event {
                ServerEvent::Command { handle, .. } => {
                    world.server.reply(handle, sanwire_scsi::Reply::good(None), world.now);
                }
                ServerEvent::Refused { offence, .. } => offences.push(offence),
                _ => {}
            }
        }
        while world.client.poll_event().is_some() {}
    }
    offences
}

#[test]
fn a_client_that_never_answers_a_change_is_capped_nevertheless_and_told_of() {
    let cap = Cap(Arc::new(Mutex::new(None)));
    let mut world = World::with(server_for(Box::new(cap.clone())));
    world.pass(Duration::from_secs(2));
    *cap.0.lock().unwrap() = Some(CAP);
    world.server.refresh_options(world.now);
    assert_eq!(pass_deaf(&mut world, Duration::from_secs(5)), [SecurityEvent::Deaf]);
    assert_eq!(world.client.server().unwrap().options.rate_cap_bytes_per_second, None, "it has heard nothing");
    let got = come(&mut world, Duration::from_secs(10));
    assert!(got < 11 * CAP, "{got} bytes in 10 s at {CAP} in a second");
    assert!(world.server.counters().excess > 0);
}

#[test]
fn a_client_that_never_answers_that_data_is_to_be_guarded_better_is_dropped() {
    let level = Arc::new(Mutex::new(Protection::Checksum));
    let mut server = server_for(Box::new(Cap(Arc::default())));
    let floor = Arc::clone(&level);
    server.config.levels = Box::new(move |_| *floor.lock().unwrap());
    let mut world = World::with(server);
    world.pass(Duration::from_secs(2));
    let connection = |world: &World| *world.server.connections.keys().next().unwrap();
    let first = connection(&world);
    *level.lock().unwrap() = Protection::Aes128Gcm;
    world.server.refresh_options(world.now);
    assert!(pass_deaf(&mut world, Duration::from_secs(8)).contains(&SecurityEvent::Deaf));
    world.pass(Duration::from_secs(2));
    assert_ne!(connection(&world), first, "it has come again, and heard it then");
    assert_eq!(world.client.server().unwrap().options.protection_min, Protection::Aes128Gcm);
}

#[test]
fn data_that_is_guarded_as_before_a_rise_of_the_floor_is_taken_for_five_seconds_and_then_never() {
    let level = Arc::new(Mutex::new(Protection::Checksum));
    let mut server = server_for(Box::new(Cap(Arc::default())));
    let floor = Arc::clone(&level);
    server.config.levels =
        Box::new(move |lun| if lun.is_none() { *floor.lock().unwrap() } else { Protection::Checksum });
    let mut world = World::with(server);
    world.order(0);
    world.pass(2000 * MS);
    assert_eq!(world.come().len(), 1, "the unit has said that it demands nothing");
    world.pass(MS);
    *level.lock().unwrap() = Protection::Hash;
    world.server.refresh_options(world.now);
    world.pass(MS);
    assert_eq!(world.client.server().unwrap().options.protection_min, Protection::Hash);
    world.client.ignore_floors(world.now);
    world.order(20_000);
    world.pass(MS);
    assert_eq!((world.come(), world.server.counters().downgrades), (vec![20_000], 0));
    world.pass(Duration::from_secs(5));
    world.client.ignore_floors(world.now);
    world.order(20_000);
    world.pass(10 * MS);
    assert_eq!(world.come().len(), 0);
    assert!(world.server.counters().downgrades > 0);
    // It is too weak for ever: the connection is made anew, and the command comes by that.
    fn lives(client: &Client) -> bool {
        client.server().is_some()
    }
    world.pass(Duration::from_secs(10));
    assert!(lives(&world.client));
    assert_eq!(world.come(), [20_000]);
}
