//! What becomes of sessions when their clients, their disks, or the server are not what they were.

use std::time::Duration;

use sanwire_core::{LinkId, Protection};
use sanwire_hdsp::wire::connection::Step;
use sanwire_hdsp::wire::{Class, DiskType, ErrorCode, Header, Pcu};
use sanwire_hdsp::{ClientEvent, Disk, Order, Outcome};

use crate::world::{Habits, Sender, World, client, is_acceptance, path, read, write};

pub const MOMENT: Duration = Duration::from_millis(100);

pub fn connected() -> World {
    let mut world = World::new(Habits::default());
    world.wait(MOMENT);
    assert!(world.client.is_connected());
    world
}

/// The link is cut for so long that the connection ends.
pub fn cut(world: &mut World) -> Vec<ClientEvent> {
    world.loses = Box::new(|_, _| true);
    let before = world.wait(Duration::from_secs(6));
    assert!(before.iter().any(|event| matches!(event, ClientEvent::Disconnected)));
    world.loses = Box::new(|_, _| false);
    world.wait(Duration::from_secs(1))
}

pub fn connections(events: &[ClientEvent]) -> usize {
    events.iter().filter(|event| matches!(event, ClientEvent::Connected(_))).count()
}

fn is_forgotten(events: &[ClientEvent]) -> bool {
    events.iter().any(|event| matches!(event, ClientEvent::Forgotten))
}

#[test]
fn an_ended_session_is_over_at_once_and_its_client_gets_another_one_if_it_may() {
    let mut world = connected();
    world.executes = false;
    world.client.order(write(DiskType::Sata, 0, &[1; 512]), world.now).unwrap();
    world.wait(MOMENT);
    let nexus = world.opened[0];
    world.server.end(nexus);
    assert_eq!(world.server.sessions(), 0);
    world.server.end(nexus);
    let events = world.wait(MOMENT);
    assert_eq!((world.closed.clone(), world.opened.len()), (vec![nexus], 2));
    assert!(connections(&events) == 1 && is_forgotten(&events));
    world.change_disk(|disk| *disk = None);
    world.server.end(world.opened[1]);
    let events = world.wait(Duration::from_secs(5));
    assert!(connections(&events) == 0 && world.server.sessions() == 0, "it has no disk any more");
}

fn is_gone(events: &[ClientEvent]) -> bool {
    events.iter().any(|event| matches!(event, ClientEvent::VolumeGone))
}

#[test]
fn a_client_whose_volume_was_removed_or_replaced_hears_so_and_nobody_else_does() {
    let scsi = Disk { address: 3, volume: [8; 16], disk_type: DiskType::Scsi, protection: Protection::Hash };
    for now_there in [None, Some(scsi)] {
        let mut world = World::new(Habits { wanted: DiskType::Sata, ..Habits::default() });
        world.wait(MOMENT);
        world.executes = false;
        world.client.order(write(DiskType::Sata, 0, &[1; 512]), world.now).unwrap();
        world.wait(MOMENT);
        world.change_disk(|disk| *disk = now_there);
        world.server.end(world.opened[0]);
        let events = world.wait(Duration::from_secs(3));
        assert!(is_gone(&events) && !world.client.is_connected(), "{events:?}");
        assert_eq!(world.client.in_transit(), 1, "whoever gave it says what becomes of it");
        world.client.close();
        let events: Vec<_> = std::iter::from_fn(|| world.client.poll_event()).collect();
        assert!(matches!(events[..], [ClientEvent::Ended { outcome: Outcome::Lost, .. }]), "{events:?}");
    }
    let mut world = World::new(Habits { volume: "other", ..Habits::default() });
    assert!(!is_gone(&world.wait(Duration::from_secs(10))), "it never had one");
    let mut world = connected();
    world.client.order(write(DiskType::Sata, 0, &[1; 512]), world.now).unwrap();
    assert!(!is_gone(&cut(&mut world)), "the server is away");
}

#[test]
fn another_volume_at_the_address_of_the_former_one_answers_nothing_that_was_asked_of_that() {
    let changes: [fn(&mut Disk); 2] = [|disk| disk.volume = [8; 16], |disk| disk.address = 4];
    for change in changes {
        let mut world = connected();
        world.executes = false;
        let id = world.client.order(write(DiskType::Sata, 0, &[1; 512]), world.now).unwrap();
        world.wait(MOMENT);
        world.change_disk(|disk| disk.iter_mut().for_each(change));
        let events = cut(&mut world);
        assert!(connections(&events) == 1 && is_forgotten(&events), "its client has to look");
        assert_eq!((world.opened.len(), world.closed.clone()), (2, vec![world.opened[0]]));
        world.execute_all();
        assert!(world.wait(MOMENT).is_empty(), "an answer of the former volume");
        world.client.abandon();
        let lost = |event: &ClientEvent| matches!(event, ClientEvent::Ended { id: of, outcome: Outcome::Lost, .. } if *of == id);
        assert!(world.wait(MOMENT).iter().any(lost));
    }
}

#[test]
fn what_was_withdrawn_is_executed_when_it_is_given_again() {
    let mut world = connected();
    world.executes = false;
    world.client.order(read(DiskType::Sata, 0, 1), world.now).unwrap();
    world.wait(MOMENT);
    let (handle, _) = world.asked[0].clone();
    world.server.withdraw(handle, world.now);
    world.executes = true;
    world.skip();
    let events = world.wait(MOMENT);
    assert!(
        events.iter().any(|event| matches!(event, ClientEvent::Ended { outcome: Outcome::Ata(_), .. })),
        "{events:?}"
    );
    assert_eq!((world.asked.len(), world.opened.len()), (2, 1));
}

/// The server that has begun since may have said so, and the client may not have heard it: it must not take that server for one that
/// knows what it has executed.
#[test]
fn a_restarted_server_knows_no_session_whose_client_has_not_heard_of_it() {
    for run in [1, 2] {
        let mut world = connected();
        let order = Order { may_repeat: false, ..write(DiskType::Sata, 0, &[1; 512]) };
        world.loses = Box::new(|from, packet| from == Sender::Server && packet[2] >> 4 == 1);
        world.client.order(order, world.now).unwrap();
        world.wait(MOMENT);
        world.restart(run);
        world.loses = Box::new(|from, packet| from == Sender::Server && is_acceptance(packet));
        world.wait(Duration::from_secs(7));
        assert!(world.server.sessions() == 1 && !world.client.is_connected());
        world.loses = Box::new(|_, _| false);
        let events = world.wait(Duration::from_secs(3));
        assert!(connections(&events) == 1 && is_forgotten(&events), "run {run}");
        world.client.resume(world.now);
        let events = world.wait(MOMENT);
        assert!(matches!(events[..], [ClientEvent::Ended { outcome: Outcome::Lost, .. }]), "{events:?}");
        assert_eq!(world.asked.len(), 1, "it is executed once");
    }
}

#[test]
fn a_server_whose_acceptance_was_lost_says_so_again_whatever_else_it_says() {
    let mut world = World::new(Habits::default());
    world.loses = Box::new(|from, packet| from == Sender::Server && is_acceptance(packet));
    world.wait(Duration::from_millis(1200));
    assert!(world.sent.iter().any(|packet| packet[8..10] == [5, 1]), "it has asked whether the client is there");
    world.loses = Box::new(|_, _| false);
    assert_eq!(connections(&world.wait(Duration::from_millis(650))), 1);
    assert_eq!(world.opened.len(), 1);
}

#[test]
fn a_proof_that_comes_again_is_answered_until_the_client_is_heard() {
    let mut world = connected();
    let is_proof = |packet: &&Vec<u8>| packet[8..10] == [2, 0] && packet[16] == 3;
    let proof = world.sent.iter().find(is_proof).unwrap().clone();
    for _ in 0..10 {
        world.server.handle_input(path(1), &proof, world.now);
    }
    assert!(world.server.poll_transmit(world.now).is_none());
}

/// Anybody on the link can say that the server does not know a connection.
#[test]
fn a_forged_hint_makes_a_client_ask_and_nothing_more() {
    let mut world = connected();
    let sealed = world.sent.iter().find(|packet| is_acceptance(packet)).unwrap();
    let header = Header { error: Some(ErrorCode::UnknownConnection), ..Header::read(sealed).unwrap() };
    let operation = Step::Refusal { attempt: 0, proof: None }.write();
    let hint = Pcu { header, class: Class::Connection, is_sealed: false, number: 0 }.open_packet(&operation);
    let before = world.sent.len();
    for _ in 0..1000 {
        world.client.handle_input(path(0), &hint, world.now);
        assert!(world.wait(Duration::from_millis(10)).is_empty());
    }
    let handshakes = world.sent[before..].iter().filter(|packet| packet[8..10] == [2, 0]).count();
    assert!(handshakes == 0 && world.sent.len() - before < 200, "{handshakes} of {}", world.sent.len() - before);
}

#[test]
fn a_true_hint_brings_a_client_back_within_a_moment() {
    let mut world = connected();
    world.restart(2);
    world.client.order(write(DiskType::Sata, 0, &[1; 512]), world.now).unwrap();
    let events = world.wait(MOMENT);
    assert!(connections(&events) == 1 && is_forgotten(&events), "{events:?}");
}

#[test]
fn a_link_that_takes_less_than_before_carries_the_session_on_by_smaller_packets() {
    for is_of_server in [true, false] {
        let mut world = connected();
        world.loses = Box::new(|_, packet| packet.len() > 1024);
        world.client.order(write(DiskType::Sata, 0, &[1; 8 * 512]), world.now).unwrap();
        let ended =
            |events: Vec<ClientEvent>| events.iter().filter(|event| matches!(event, ClientEvent::Ended { .. })).count();
        assert_eq!(ended(world.wait(Duration::from_secs(2))), 0);
        match is_of_server {
            true => world.server.set_link(LinkId(0), 1024, world.now),
            false => world.client.set_link(LinkId(0), 1024, world.now),
        }
        assert_eq!(ended(world.wait(Duration::from_secs(2))), 1, "of the server: {is_of_server}");
        assert_eq!((world.opened.len(), world.closed.len()), (1, 0), "the session goes on");
        // One that takes more, or as much, changes nothing.
        world.server.set_link(LinkId(0), 9000, world.now);
        world.client.set_link(LinkId(0), 1024, world.now);
        assert_eq!((connections(&world.wait(MOMENT)), world.client.is_connected()), (0, true));
    }
}

#[test]
fn a_server_that_ends_under_load_answers_what_it_has_begun_and_begins_nothing_more() {
    let mut world = connected();
    world.executes = false;
    world.client.order(write(DiskType::Sata, 0, &[1; 512]), world.now).unwrap();
    world.wait(MOMENT);
    world.server.admit_no_more();
    for lba in 1..9 {
        world.client.order(write(DiskType::Sata, lba, &[2; 512]), world.now).unwrap();
        world.wait(Duration::from_millis(1));
        world.server.release_idle(world.now);
    }
    assert!(world.client.is_connected(), "it waits for an answer that is to come");
    assert_eq!(world.asked.len(), 1);
    world.executes = true;
    let events = world.wait(MOMENT);
    assert_eq!(events.iter().filter(|event| matches!(event, ClientEvent::Ended { .. })).count(), 1);
    world.server.release_idle(world.now);
    let events = world.wait(Duration::from_millis(1));
    assert!(events.iter().any(|event| matches!(event, ClientEvent::Disconnected)), "it hears so at once");
    assert_eq!((world.asked.len(), world.server.connections().count()), (1, 0));
}

#[test]
fn a_client_that_goes_on_with_another_session_holds_what_it_gave_until_it_may_give_it_again() {
    let mut world = connected();
    world.executes = false;
    world.client.order(Order { may_repeat: true, ..write(DiskType::Sata, 0, &[1; 512]) }, world.now).unwrap();
    world.wait(MOMENT);
    world.client.renew(world.now);
    let events = world.wait(MOMENT);
    assert!(connections(&events) == 1 && is_forgotten(&events), "{events:?}");
    assert_eq!((world.closed.clone(), world.opened.len(), world.asked.len()), (vec![world.opened[0]], 2, 1));
    world.execute_all();
    assert!(world.wait(MOMENT).is_empty(), "the answer of the session that is over");
    world.client.resume(world.now);
    world.executes = true;
    assert!(matches!(world.wait(MOMENT)[..], [ClientEvent::Ended { outcome: Outcome::Ata(_), .. }]));
    assert_eq!(world.asked.len(), 2);
}

#[test]
fn a_program_that_is_killed_often_finds_a_place_each_time() {
    let mut world = connected();
    for run in 2..10 {
        world.loses = Box::new(|_, _| true);
        world.wait(Duration::from_secs(6));
        world.loses = Box::new(|_, _| false);
        world.client = client(Habits::default(), run, vec![path(0)], world.now);
        world.wait(Duration::from_secs(1));
        assert!(world.client.is_connected(), "run {run}");
    }
    assert_eq!((world.server.sessions(), &world.closed[..]), (4, &world.opened[..5]), "the oldest have made room");
}

#[test]
fn a_session_whose_commands_are_executed_keeps_its_place() {
    let mut world = connected();
    world.executes = false;
    world.client.order(write(DiskType::Sata, 0, &[1; 512]), world.now).unwrap();
    world.wait(MOMENT);
    for run in 2..7 {
        world.loses = Box::new(|_, _| true);
        world.wait(Duration::from_secs(6));
        world.loses = Box::new(|_, _| false);
        world.client = client(Habits::default(), run, vec![path(0)], world.now);
        world.wait(Duration::from_secs(1));
    }
    assert!(world.client.is_connected() && !world.closed.contains(&world.opened[0]), "{:?}", world.closed);
}
