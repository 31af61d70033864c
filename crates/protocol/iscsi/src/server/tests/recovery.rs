//! What was missed is sent again; commands outlive their connection.

use super::*;
use crate::wire::{
    DataIn, LogoutRequest, LogoutResponse, NopIn, NopOut, ReadyToTransfer, ScsiResponse, SnackRequest, TaskResponse,
    TextRequest, TextResponse,
};

fn level(error_recovery_level: u8) -> SessionParameters {
    SessionParameters { error_recovery_level, ..parameters() }
}

fn snack(kind: u8, task_tag: u32, first: u32, count: u32) -> SnackRequest {
    SnackRequest { is_final: true, kind, task_tag, transfer_tag: TAG_NONE, first, count, ..SnackRequest::default() }
}

fn pong(expected_status_number: u32) -> NopOut {
    NopOut { is_immediate: true, is_final: true, task_tag: TAG_NONE, expected_status_number, ..NopOut::default() }
}

#[test]
fn a_status_is_sent_again_until_it_is_acknowledged() {
    let mut world = World::with_session(level(1));
    for tag in 5..8 {
        let handle = world.read(tag, 512);
        world.reply(handle, (tag == 6).then(|| pattern(512).into()));
    }
    let sent = world.take(1);
    world.send(1, snack(1, TAG_NONE, 102, 1).write(), &[]);
    let again = world.take_one(1);
    assert_eq!((DataIn::read(&again.0).status_number, &again.1), (102, &sent[1].1));
    world.send(1, snack(1, TAG_NONE, 101, 0).write(), &[]);
    assert_eq!(world.take(1).len(), 3);
    let acknowledging = ScsiCommand { expected_status_number: 103, ..read_command(9, 512, 4) };
    world.send(1, acknowledging.write(), &[]);
    world.send(1, snack(1, TAG_NONE, 101, 2).write(), &[]);
    assert_eq!(rejection(&world.take_one(1)), 3, "it is forgotten");
    world.command_number = 5;
    let stale = ScsiCommand { expected_status_number: 50, ..read_command(10, 512, 5) };
    world.send(1, stale.write(), &[]);
    world.send(1, snack(1, TAG_NONE, 103, 1).write(), &[]);
    assert_eq!(ScsiResponse::read(&world.take_one(1).0).task_tag, 7, "a stale number harms nothing");
}

#[test]
fn data_is_sent_again_as_it_was() {
    let mut world = World::with_session(SessionParameters { max_burst_bytes: 12288, ..level(1) });
    let handle = world.read(5, 40000);
    world.reply(handle, Some(pattern(40000).into()));
    let sent = world.take(1);
    world.send(1, snack(0, 5, 2, 2).write(), &[]);
    assert_eq!(world.take(1), sent[2..4]);
    world.send(1, snack(0, 5, 4, 0).write(), &[]);
    assert_eq!(world.take(1), sent[4..], "to the last one, with its status");
    world.send(1, snack(0, 5, 90, 1).write(), &[]);
    assert_eq!(rejection(&world.take_one(1)), 3);
    world.send(1, snack(0, 77, 0, 0).write(), &[]);
    assert_eq!(rejection(&world.take_one(1)), 3, "no such command");
    world.send(1, snack(2, TAG_NONE, 0, 0).write(), &[]);
    assert_eq!(rejection(&world.take_one(1)), 8, "nothing asked for an acknowledgement");
    assert_eq!(world.server.tally().recoveries, [0, 2, 0], "two were in time");
}

#[test]
fn an_r2t_is_sent_again_while_it_is_unanswered() {
    let mut world = World::with_session(SessionParameters { max_outstanding_r2t: 2, ..level(1) });
    world.send(1, write_command(5, 150_000, 1).write(), &pattern(8192));
    let sent = world.take(1);
    world.send(1, snack(0, 5, 1, 1).write(), &[]);
    assert_eq!(world.take(1), sent[1..]);
    let asked = ReadyToTransfer::read(&sent[0].0);
    world.send(1, data_out(5, asked.transfer_tag, 0, 8192, true).write(), &pattern(65536));
    world.take(1);
    world.send(1, snack(0, 5, 0, 1).write(), &[]);
    assert_eq!(rejection(&world.take_one(1)), 3, "it was answered");
}

#[test]
fn data_comes_in_other_pieces_after_the_segment_length_has_changed() {
    let mut world = World::with_session(level(1));
    let handle = world.read(5, 4096);
    world.reply(handle, Some(pattern(4096).into()));
    let status_number = DataIn::read(&world.take_one(1).0).status_number;
    let text = TextRequest {
        is_immediate: true,
        is_final: true,
        task_tag: 4,
        transfer_tag: TAG_NONE,
        ..TextRequest::default()
    };
    world.send(1, text.write(), b"MaxRecvDataSegmentLength=1024\0");
    assert!(TextResponse::read(&world.take_one(1).0).is_final);
    world.send(1, SnackRequest { transfer_tag: 0x77, ..snack(3, 5, 0, 0) }.write(), &[]);
    let sent = world.take(1);
    assert_eq!(sent.iter().map(|(_, data)| data.len()).collect::<Vec<_>>(), [1024, 1024, 1024, 1024, 0]);
    let answer = ScsiResponse::read(&sent[4].0);
    assert_eq!((answer.snack_tag, answer.expected_data_number, answer.status_number), (0x77, 4, status_number));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut world = World::with_session(level(1));
    for tag in 0..1000 {
        let handle = world.read(tag, 65536);
        let mut frame = world.memory.frame(65536).expect("memory is not used up");
        frame.fill(1);
        world.reply(handle, Some(frame.freeze()));
        world.take(1);
        if world.memory.free_bytes() < 65536 {
            break;
        }
        assert!(tag < 999 || world.memory.free_bytes() > 0);
    }
}

/// A session of level 2 with two connections.
fn two() -> World {
    let mut world = World::with_session(level(2));
    world.join(2, 1, level(2), 1);
    world.take_one(2);
    world
}

fn reassign(world: &mut World, tag: u32, expected_data_number: u32) -> u8 {
    let request = TaskRequest { expected_data_number, ..task_request(8, 60, (tag, 0), 90) };
    world.send(1, request.write(), &[]);
    world.server.poll_event();
    let request = world.take_reassigned();
    TaskResponse::read(&request).response
}

impl World {
    /// The answer to TASK REASSIGN; what follows it is left to `rest`.
    fn take_reassigned(&mut self) -> Header {
        let packet = self.server.poll_transmit(ConnectionId(1)).unwrap();
        let header = Header::from_bytes(packet.head[..48].try_into().unwrap());
        assert_eq!(header.opcode(), Some(Opcode::TaskResponse));
        header
    }
}

#[test]
fn a_command_that_executes_is_answered_where_it_was_reassigned_to() {
    let mut world = two();
    world.send(2, read_command(5, 512, 1).write(), &[]);
    let (handle, _) = world.command();
    assert_eq!(reassign(&mut world, 5, 0), 3, "its connection lives");
    world.server.connection_lost(ConnectionId(2), world.now);
    assert!(world.server.poll_event().is_none(), "nothing is aborted");
    assert_eq!(reassign(&mut world, 5, 0), 0);
    world.reply(handle, Some(pattern(512).into()));
    assert_eq!(world.take_one(1).1, pattern(512));
    assert_eq!(reassign(&mut world, 77, 0), 1, "no such task");
    assert_eq!(world.server.tally().recoveries, [0, 0, 1]);
}

#[test]
fn an_answer_waits_for_the_reassignment() {
    let mut world = two();
    world.send(2, read_command(5, 512, 1).write(), &[]);
    let (handle, _) = world.command();
    world.server.connection_lost(ConnectionId(2), world.now);
    world.reply(handle, Some(pattern(512).into()));
    assert!(world.take(1).is_empty());
    assert_eq!(reassign(&mut world, 5, 0), 0);
    assert_eq!(world.take_one(1).1, pattern(512));
}

#[test]
fn an_answer_that_was_lost_is_sent_anew_from_where_it_broke() {
    let mut world = two();
    world.send(2, read_command(5, 20000, 1).write(), &[]);
    let (handle, _) = world.command();
    world.reply(handle, Some(pattern(20000).into()));
    let before = world.take(2);
    world.server.connection_lost(ConnectionId(2), world.now);
    assert_eq!(reassign(&mut world, 5, 1), 0);
    let sent = world.take(1);
    assert_eq!(sent.iter().map(|(_, data)| data).collect::<Vec<_>>(), [&before[1].1, &before[2].1]);
    let last = DataIn::read(&sent[1].0);
    assert_eq!((last.has_status, last.data_number, last.status_number), (true, 2, 102));
}

#[test]
fn data_that_was_on_its_way_is_asked_for_again() {
    let mut world = two();
    let data = pattern(20000);
    world.send(2, write_command(5, 20000, 1).write(), &data[..8192]);
    let asked = ReadyToTransfer::read(&world.take_one(2).0);
    let half = pdu(data_out(5, asked.transfer_tag, 0, 8192, true).write(), &data[8192..], Digests::default());
    world.send_bytes(2, &half[..5000]);
    world.server.connection_lost(ConnectionId(2), world.now);
    assert_eq!(reassign(&mut world, 5, 1), 0);
    let again = ReadyToTransfer::read(&world.take_one(1).0);
    assert_eq!((again.number, again.offset_bytes, again.desired_bytes), (1, 0, 20000));
    world.send(1, data_out(5, again.transfer_tag, 0, 0, true).write(), &data);
    assert!(world.command().1.data_out.as_ref().map(Slices::to_vec).as_deref() == Some(&data[..]));
}

#[test]
fn a_session_without_connections_is_kept_for_a_while() {
    let mut world = World::with_session(level(2));
    let handle = world.read(5, 512);
    world.server.connection_lost(ConnectionId(1), world.now);
    assert!(world.server.poll_event().is_none());
    world.streams.clear();
    world.join(1, 0, level(2), 1);
    assert_eq!(LoginResponse::read(&world.take_one(1).0).status_class, 0);
    world.server.connection_lost(ConnectionId(1), world.now);
    world.reply(handle, None);
    world.now += Duration::from_secs(21);
    world.server.handle_timeout(world.now);
    assert!(world.server.poll_event().is_none());
    world.now += Duration::from_secs(1);
    world.server.handle_timeout(world.now);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionClosed { .. })));
}

#[test]
fn a_connection_is_removed_for_recovery_and_its_commands_end_in_time() {
    let mut world = two();
    world.send(2, read_command(5, 512, 1).write(), &[]);
    let (handle, _) = world.command();
    let logout = LogoutRequest {
        is_immediate: true,
        is_final: true,
        reason: 2,
        connection: 1,
        task_tag: 9,
        ..LogoutRequest::default()
    };
    world.send(1, logout.write(), &[]);
    let answer = LogoutResponse::read(&world.take_one(1).0);
    assert_eq!((answer.response, answer.time_to_wait_s, answer.time_to_retain_s), (0, 2, 20));
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::Close { connection: ConnectionId(2) })));
    world.now += Duration::from_secs(22);
    world.server.handle_timeout(world.now);
    assert_eq!(world.manage().1, Function::AbandonTask(handle));
    world.take(1);
    assert_eq!(reassign(&mut world, 5, 0), 1, "too late");
}

/// Data of commands that were answered fills the memory.
fn full(error_recovery_level: u8) -> World {
    let mut world = World::with_session(level(error_recovery_level));
    for tag in 5..=6 {
        let handle = world.read(tag, 20_000);
        let length = world.memory.free_bytes().min(2 << 20);
        let mut frame = world.memory.frame(length).expect("memory");
        frame.fill(tag as u8);
        world.reply(handle, Some(frame.freeze()));
        world.take(1);
    }
    assert_eq!(world.memory.free_bytes(), 0);
    world
}

#[test]
fn memory_that_is_short_comes_home_with_an_acknowledgement_that_is_asked_for() {
    let mut world = full(1);
    assert!(!world.server.relieve(world.now), "the initiator is asked first");
    assert!(!world.server.relieve(world.now), "once");
    let ping = NopIn::read(&world.take_one(1).0);
    let pong = NopOut { transfer_tag: ping.transfer_tag, ..pong(ping.status_number) };
    world.send(1, pong.write(), &[]);
    world.assert_home();
}

#[test]
fn memory_that_is_short_comes_home_from_who_does_not_acknowledge() {
    let mut world = full(1);
    world.send(1, write_command(9, 20_000, 3).write(), &[]);
    assert_eq!(world.take_one(1).0.opcode(), Some(Opcode::NopIn), "a command that waits asks, too");
    world.now = world.server.poll_timeout().unwrap() + Duration::from_millis(100);
    world.server.handle_timeout(world.now);
    assert_eq!(world.take_one(1).0.opcode(), Some(Opcode::ReadyToTransfer));
    world.send(1, snack(0, 5, 0, 0).write(), &[]);
    assert_eq!(rejection(&world.take_one(1)), 3, "its data is gone");
    world.send(1, snack(1, TAG_NONE, 101, 1).write(), &[]);
    let status = ScsiResponse::read(&world.take_one(1).0);
    assert_eq!((status.task_tag, status.expected_data_number), (5, 3), "its status is not");
}

#[test]
fn a_connection_that_waits_for_memory_is_not_asked_for_acknowledgements() {
    let mut world = full(1);
    let bytes = pdu(write_command(9, 4096, 3).write(), &pattern(4096), Digests::default());
    world.send_bytes(1, &bytes);
    assert!(world.take(1).is_empty());
    assert_eq!(
        world.command().1.data_out.as_ref().map(Slices::to_vec).as_deref(),
        Some(&pattern(4096)[..]),
        "it could not have answered"
    );
}

#[test]
fn a_lost_connection_leaves_no_memory_behind_when_that_is_short() {
    let mut world = full(2);
    world.join(2, 1, level(2), 1);
    world.take(2);
    world.send(2, read_command(8, 512, 3).write(), &[]);
    let (handle, _) = world.command();
    world.server.connection_lost(ConnectionId(1), world.now);
    world.server.connection_lost(ConnectionId(2), world.now);
    world.reply(handle, Some(pattern(512).into()));
    assert!(world.server.relieve(world.now));
    world.assert_home();
    world.join(3, 2, level(2), 1);
    world.take_one(3);
    for tag in [5, 8] {
        world.send(3, task_request(8, 60, (tag, 0), 90).write(), &[]);
        assert_eq!(TaskResponse::read(&world.take_one(3).0).response, 1, "the initiator gives {tag} again");
    }
}

#[test]
fn data_on_its_way_on_a_lost_connection_leaves_its_memory() {
    let mut world = two();
    world.send(2, write_command(5, 20_000, 1).write(), &pattern(8192));
    assert!(world.memory.free_bytes() < world.memory.length_bytes());
    world.server.connection_lost(ConnectionId(2), world.now);
    world.assert_home();
}
