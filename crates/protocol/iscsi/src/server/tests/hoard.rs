//! Initiators that keep memory while others have none, and those that do nothing wrong.

use sanwire_buffer::Shortage;

use super::*;
use crate::wire::ReadyToTransfer;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);

/// Another session, which has not the least that it needs.
struct Needy {
    share: Region,
    _rest: Option<Frame>,
}

impl Needy {
    fn beside(world: &World) -> Self {
        let share = world.memory.share(4096);
        let rest = world.memory.frame(world.memory.free_bytes());
        assert!(share.frame(4096).is_none());
        Needy { share, _rest: rest }
    }

    /// Time passes while something is done each time that it is looked; gives the connections that are cut.
    fn wait(&self, world: &mut World, duration: Duration, mut each: impl FnMut(&mut World)) -> Vec<u64> {
        let (until, mut cut) = (world.now + duration, Vec::new());
        while world.now < until {
            each(world);
            world.now += LOOK;
            let shortage: Shortage = [(NexusId(99), &self.share)].into_iter().collect();
            world.server.drop_hoards(&shortage, world.now);
            cut.extend(std::iter::from_fn(|| world.server.poll_event()).filter_map(|event| match event {
                ServerEvent::Cut { connection } => Some(connection.0),
                _ => None,
            }));
        }
        cut
    }
}

/// A session that was asked for the data of a WRITE; gives the transfer tag.
fn asked(world: &mut World, bytes: u32) -> u32 {
    let number = world.next_number();
    world.send(1, write_command(5, bytes, number).write(), &[]);
    ReadyToTransfer::read(&world.take_one(1).0).transfer_tag
}

const S: Duration = Duration::from_secs(1);

#[test]
fn silence_counts_from_what_was_asked_for_and_not_from_what_was_heard_before() {
    let mut world = World::with_session(parameters());
    let all = world.memory.frame(world.memory.length_bytes());
    world.send(1, write_command(5, 20_000, 1).write(), &[]);
    world.now += 10 * S;
    drop(all);
    world.server.handle_timeout(world.now);
    assert_eq!(world.take_one(1).0.opcode(), Some(Opcode::ReadyToTransfer));
    let needy = Needy::beside(&world);
    assert_eq!(needy.wait(&mut world, 19 * S / 10, |_| ()), [0; 0]);
    assert_eq!(needy.wait(&mut world, S / 2, |_| ()), [1], "it does not send what it was asked for");
    assert!(needy.share.frame(4096).is_some());
}

#[test]
fn who_was_not_asked_for_anything_may_be_silent_beside_another_connection_of_its_session() {
    let mut world = World::with_session(parameters());
    world.join(2, 1, parameters(), 1);
    world.take_one(2);
    let tag = asked(&mut world, 65_536);
    let needy = Needy::beside(&world);
    let data = pattern(65_536);
    let mut parts = data.chunks(4096).zip(0..);
    let cut = needy.wait(&mut world, 3 * S, |world| {
        if world.now.as_nanos() % 200_000_000 == 0
            && let Some((part, number)) = parts.next()
        {
            world.send(1, data_out(5, tag, number, number * 4096, number == 15).write(), part);
        }
    });
    assert_eq!(cut, [0; 0]);
    assert_eq!([1, 2].map(|id| world.server.connection(ConnectionId(id)).is_some()), [true; 2]);
}

#[test]
fn who_sends_a_byte_now_and_then_is_as_who_sends_nothing() {
    for with_command in [true, false] {
        let mut world = World::with_session(parameters());
        let bytes = if with_command {
            pdu(write_command(5, 16_384, 1).write(), &pattern(16_384), Digests::default())
        } else {
            let tag = asked(&mut world, 20_000);
            pdu(data_out(5, tag, 0, 0, true).write(), &pattern(20_000), Digests::default())
        };
        world.send_bytes(1, &bytes[..6000]);
        let needy = Needy::beside(&world);
        let mut rest = bytes[6000..].iter();
        let cut = needy.wait(&mut world, 5 * S, |world| _ = world.send_bytes(1, &[*rest.next().unwrap()]));
        assert_eq!(cut, [1], "{with_command}");
    }
}

#[test]
fn who_takes_a_packet_now_and_then_is_as_who_takes_nothing() {
    let mut world = World::with_session(parameters());
    let handle = world.read(5, 1 << 20);
    let share = world.server.sessions[&NexusId(1)].memory.clone();
    world.reply(handle, share.frame(1 << 20).map(Frame::freeze));
    drop(share);
    let needy = Needy::beside(&world);
    let mut looks = 0;
    let cut = needy.wait(&mut world, 5 * S, |world| {
        looks += 1;
        if looks % 20 == 0 {
            world.server.poll_transmit(ConnectionId(1));
        }
    });
    assert_eq!(cut, [1]);
    assert!(needy.share.frame(4096).is_some());
}

#[test]
fn who_takes_its_answers_is_left_alone_however_many_they_are() {
    let mut world = World::with_session(parameters());
    let share = world.server.sessions[&NexusId(1)].memory.clone();
    let data = share.frame(1 << 20).map(Frame::freeze);
    let needy = Needy::beside(&world);
    let cut = needy.wait(&mut world, 5 * S, |world| {
        if world.server.connection(ConnectionId(1)).is_some_and(|connection| connection.mover.is_empty()) {
            let handle = world.read(5, 1 << 20);
            world.reply(handle, data.clone());
        }
        // 40 KiB in a second.
        if world.now.as_nanos() % 200_000_000 == 0 {
            world.server.poll_transmit(ConnectionId(1));
        }
    });
    assert_eq!(cut, [0; 0]);
}

#[test]
fn what_was_taken_out_to_be_sent_and_is_not_sent_counts_too() {
    let mut world = World::with_session(parameters());
    let handle = world.read(5, 1 << 20);
    let share = world.server.sessions[&NexusId(1)].memory.clone();
    world.reply(handle, share.frame(1 << 20).map(Frame::freeze));
    let taken: Vec<_> = std::iter::from_fn(|| world.server.poll_transmit(ConnectionId(1))).collect();
    world.server.note_unsent(ConnectionId(1), taken.iter().map(|packet| packet.length_bytes()).sum());
    let needy = Needy::beside(&world);
    assert_eq!(needy.wait(&mut world, 3 * S, |_| ()), [1]);
    assert_eq!(world.server.hoards_dropped(), 1);
}

#[test]
fn what_is_still_to_be_sent_when_a_session_is_over_is_not_kept_for_ever() {
    let mut world = World::with_session(parameters());
    let handle = world.read(5, 1 << 20);
    let share = world.server.sessions[&NexusId(1)].memory.clone();
    world.reply(handle, share.frame(1 << 20).map(Frame::freeze));
    drop(share);
    world.server.drop_target(TargetId(0), world.now);
    let needy = Needy::beside(&world);
    assert_eq!(needy.wait(&mut world, 3 * S, |_| ()), [1]);
    assert!(needy.share.frame(4096).is_some() && world.server.poll_transmit(ConnectionId(1)).is_none());
}

#[test]
fn requests_that_wait_for_one_that_does_not_come_are_not_kept_for_ever() {
    let mut world = World::with_session(parameters());
    world.send(1, write_command(5, 8192, 2).write(), &pattern(8192));
    let needy = Needy::beside(&world);
    assert_eq!(needy.wait(&mut world, 19 * S / 10, |_| ()), [0; 0]);
    assert_eq!(needy.wait(&mut world, S, |_| ()), [1]);
}

#[test]
fn an_initiator_that_logs_in_again_has_the_share_that_it_had() {
    let mut world = World::with_session(parameters());
    let before = world.server.sessions[&NexusId(1)].memory.clone();
    world.admit(2, admitted(parameters()), 2);
    assert!(!world.server.sessions.contains_key(&NexusId(1)));
    assert!(world.server.sessions[&NexusId(2)].memory.is_same_share(&before));
}

#[test]
fn who_takes_the_name_of_another_has_no_part_of_its_share() {
    let mut world = World::with_session(parameters());
    let share = |world: &World, number| world.server.sessions[&NexusId(number)].memory.clone();
    let mut logins = [2, 3, 4].map(|number| Admitted { isid: Isid([number; 6]), ..admitted(parameters()) });
    logins[0].peer = [192, 0, 2, 9].into();
    logins[1].user = Some("another".to_owned());
    logins[2].peer = Ipv4Addr::LOCALHOST.to_ipv6_mapped().into();
    for (login, number) in logins.into_iter().zip(2..) {
        world.admit(number.into(), login, number);
    }
    let owner = share(&world, 1);
    assert_eq!([2, 3, 4].map(|number| share(&world, number).is_same_share(&owner)), [false, false, true]);
    let _all: Vec<_> = std::iter::from_fn(|| share(&world, 2).frame(4096)).collect();
    assert!(owner.frame(4096).is_some(), "and cannot use it up");
}

#[test]
fn a_session_starves_no_more_when_what_has_waited_is_gone() {
    let mut world = World::with_session(parameters());
    world.join(2, 1, parameters(), 1);
    let needy = Needy::beside(&world);
    let bytes = pdu(write_command(5, 8192, 1).write(), &pattern(8192), Digests::default());
    world.send_bytes(2, &bytes);
    assert_eq!(world.server.starving().count(), 1);
    world.server.connection_lost(ConnectionId(2), world.now);
    assert_eq!(world.server.starving().count(), 0);
    let share = &world.server.sessions[&NexusId(1)].memory;
    assert!(!share.is_denied() && needy.share.is_denied());
}

#[test]
fn a_session_that_is_over_and_not_gone_is_cut_too() {
    let mut world = World::with_session(parameters());
    world.server.drop_target(TargetId(0), world.now);
    while world.server.poll_event().is_some() {}
    world.server.cut_session(NexusId(1), world.now);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::Cut { connection: ConnectionId(1) })));
    assert_eq!(world.server.connections_closing(), 0);
}
