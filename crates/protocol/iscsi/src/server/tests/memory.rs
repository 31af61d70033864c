//! Memory that runs out, and comes back; digests.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::Tally;
use crate::wire::{NopOut, ReadyToTransfer, ScsiResponse};

fn with_memory(bytes: usize) -> World {
    let mut world = World::new(bytes);
    for number in 1..=2 {
        let mut login = admitted(parameters());
        login.isid = Isid([0x40, 0, 0, 0, 0, number]);
        world.admit(number.into(), login, number.into());
        world.take_one(number.into());
        world.server.poll_event();
    }
    world
}

#[test]
fn a_connection_without_memory_waits_until_there_is_some() {
    let mut world = with_memory(16384);
    world.send(1, write_command(5, 16384, 1).write(), &pattern(16384));
    let (handle, task) = world.command();
    let bytes = pdu(write_command(6, 8192, 1).write(), &pattern(8192), Digests::default());
    world.send_bytes(2, &bytes);
    assert!(world.server.poll_event().is_none());
    assert_eq!(world.server.spaces(ConnectionId(2)).map(|space| space.len()), [0, 0], "it is not read from");
    while world.server.poll_ready().is_some() {}
    drop(task);
    world.reply(handle, None);
    let ready: Vec<_> = std::iter::from_fn(|| world.server.poll_ready()).collect();
    assert!(ready.contains(&ConnectionId(2)));
    assert!(world.command().1.data_out.as_ref().map(Slices::to_vec).as_deref() == Some(&pattern(8192)[..]));
}

#[test]
fn memory_that_comes_home_elsewhere_is_looked_for() {
    let mut world = with_memory(16384);
    let told = Arc::<AtomicU32>::default();
    let counter = Arc::clone(&told);
    world.memory.on_release(move || _ = counter.fetch_add(1, Ordering::Relaxed));
    let (taken, due_at) = (world.memory.frame(16384), world.server.poll_timeout());
    let bytes = pdu(write_command(6, 4096, 1).write(), &pattern(4096), Digests::default());
    world.send_bytes(2, &bytes);
    assert_eq!(
        (told.load(Ordering::Relaxed), world.server.poll_timeout()),
        (0, due_at),
        "nothing is looked at meanwhile"
    );
    drop(taken);
    assert_eq!(told.load(Ordering::Relaxed), 1);
    assert!(world.server.poll_event().is_none());
    world.server.handle_timeout(world.now);
    world.command();
}

#[test]
fn data_is_asked_for_once_there_is_memory_and_the_largest_transfer_gets_its_turn() {
    let mut world = with_memory(16384);
    world.send(1, write_command(5, 4096, 1).write(), &[]);
    let first = ReadyToTransfer::read(&world.take_one(1).0);
    world.send(2, write_command(6, 16384, 1).write(), &[]);
    assert!(world.take(2).is_empty(), "no memory yet");
    world.send(1, write_command(7, 4096, 2).write(), &[]);
    assert!(world.take(1).is_empty(), "others were first");
    world.send(1, data_out(5, first.transfer_tag, 0, 0, true).write(), &pattern(4096));
    let (handle, task) = world.command();
    drop(task);
    world.reply(handle, None);
    assert_eq!(world.take_one(2).0.opcode(), Some(Opcode::ReadyToTransfer), "the largest one");
}

/// Sessions that all hold memory and all wait for more would wait forever.
#[test]
fn who_holds_memory_does_not_wait_for_more() {
    let mut world = with_memory(16384);
    world.send(1, write_command(5, 16384, 1).write(), &pattern(4096));
    let asked = ReadyToTransfer::read(&world.take_one(1).0);
    world.send(1, write_command(6, 4096, 2).write(), &pattern(4096));
    let refused = ScsiResponse::read(&world.take_one(1).0);
    assert_eq!((refused.task_tag, refused.status), (6, 0x28), "TASK SET FULL");
    world.send(1, data_out(5, asked.transfer_tag, 0, 4096, true).write(), &pattern(12288));
    world.command();
    world.server.connection_lost(ConnectionId(1), world.now);
    world.assert_home();
}

#[test]
fn a_connection_whose_answers_are_not_taken_is_not_read_from() {
    let mut world = World::with_session(parameters());
    let ping = NopOut { is_immediate: true, is_final: true, task_tag: 8, transfer_tag: TAG_NONE, ..NopOut::default() };
    let bytes = pdu(ping.write(), &[0; 8192], Digests::default());
    let mut pings = 0;
    while world.send_bytes(1, &bytes) == bytes.len() {
        pings += 1;
        assert!(pings < 5000, "it was bounded");
    }
    while world.server.poll_ready().is_some() {}
    assert!(world.take(1).len() >= pings);
    assert_eq!(world.server.poll_ready(), Some(ConnectionId(1)), "it may be read from again");
}

fn with_digests(error_recovery_level: u8) -> World {
    let mut world = World::new(1 << 20);
    let mut login = admitted(SessionParameters { error_recovery_level, ..parameters() });
    login.connection.digests = Digests { header: true, data: true };
    world.admit(1, login, 1);
    world.take_one(1);
    world.server.poll_event();
    world
}

fn send_damaged(world: &mut World, header: Header, data: &[u8]) {
    let mut bytes = pdu(header, data, world.digests(1));
    let last = bytes.len() - 5;
    bytes[last] ^= 1;
    assert_eq!(world.send_bytes(1, &bytes), bytes.len());
}

#[test]
fn digests_are_written_and_checked() {
    let mut world = with_digests(0);
    world.send(1, write_command(5, 511, 1).write(), &pattern(511));
    let (handle, task) = world.command();
    assert!(task.data_out.as_ref().map(Slices::to_vec).as_deref() == Some(&pattern(511)[..]));
    world.reply(handle, None);
    assert_eq!(world.take(1).len(), 1);
    world.command_number = 2;
    let handle = world.read(6, 9001);
    world.reply(handle, Some(pattern(9001).into()));
    assert_eq!(world.take(1).len(), 2);
}

#[test]
fn a_damaged_command_is_rejected_and_its_number_did_not_come() {
    let mut world = with_digests(0);
    send_damaged(&mut world, write_command(5, 512, 1).write(), &pattern(512));
    assert_eq!(rejection(&world.take_one(1)), 2);
    world.assert_home();
    world.send(1, write_command(5, 512, 1).write(), &pattern(512));
    world.command();
}

#[test]
fn damaged_data_fails_its_command_without_recovery() {
    let mut world = with_digests(0);
    world.send(1, write_command(5, 20000, 1).write(), &pattern(8192));
    let asked = ReadyToTransfer::read(&world.take_one(1).0);
    send_damaged(&mut world, data_out(5, asked.transfer_tag, 0, 8192, false).write(), &pattern(8192));
    assert_eq!(rejection(&world.take_one(1)), 2);
    world.send(1, data_out(5, asked.transfer_tag, 1, 16384, true).write(), &pattern(3616));
    let (header, sense) = world.take_one(1);
    assert_eq!((ScsiResponse::read(&header).status, sense[4], &sense[14..16]), (2, 0x0b, &[0x47u8, 5][..]));
    assert!(world.server.poll_event().is_none());
}

#[test]
fn damaged_data_is_asked_for_again_with_recovery() {
    let mut world = with_digests(1);
    let data = pattern(30000);
    world.send(1, write_command(5, 30000, 1).write(), &data[..8192]);
    let asked = ReadyToTransfer::read(&world.take_one(1).0);
    send_damaged(&mut world, data_out(5, asked.transfer_tag, 0, 8192, false).write(), &data[8192..16384]);
    assert_eq!(rejection(&world.take_one(1)), 2);
    world.send(1, data_out(5, asked.transfer_tag, 1, 16384, false).write(), &data[16384..24576]);
    // Number 2 is lost.
    world.send(1, data_out(5, asked.transfer_tag, 3, 28000, true).write(), &data[28000..]);
    let again = ReadyToTransfer::read(&world.take_one(1).0);
    assert_eq!((again.number, again.offset_bytes, again.desired_bytes), (1, 24576, 3424));
    world.send(1, data_out(5, again.transfer_tag, 0, 24576, true).write(), &data[24576..28000]);
    let again = ReadyToTransfer::read(&world.take_one(1).0);
    assert_eq!((again.number, again.offset_bytes, again.desired_bytes), (2, 8192, 8192));
    world.send(1, data_out(5, again.transfer_tag, 0, 8192, true).write(), &data[8192..16384]);
    assert!(world.command().1.data_out.as_ref().map(Slices::to_vec).as_deref() == Some(&data[..]));
    assert_eq!(world.server.tally(), Tally { data_digest_errors: 1, ..Tally::default() });
}

#[test]
fn a_damaged_header_ends_the_connection() {
    let mut world = with_digests(1);
    let mut bytes = pdu(read_command(5, 512, 1).write(), &[], world.digests(1));
    bytes[20] ^= 1;
    world.send_bytes(1, &bytes);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionClosed { .. })));
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::Close { .. })));
    assert_eq!(world.server.tally(), Tally { header_digest_errors: 1, ..Tally::default() });
}
