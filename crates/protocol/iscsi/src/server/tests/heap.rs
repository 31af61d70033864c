//! What initiators can have kept outside the memory for data: little, whatever they announce, hold back or do not read.

use sanwire_core::quota::{
    ISCSI_COMMANDS_OF_SESSION, ISCSI_CONNECTIONS_OF_SESSION, ISCSI_EARLY_BYTES, ISCSI_KEPT_BYTES,
    ISCSI_KEPT_HEAP_BYTES, ISCSI_UNSENT_BYTES, ISCSI_UNSENT_HEAP_BYTES, Quota, Usage,
};

use super::*;
use crate::wire::{NopIn, NopOut, SnackRequest, TextRequest};

fn level(error_recovery_level: u8) -> SessionParameters {
    SessionParameters { error_recovery_level, ..parameters() }
}

fn ping(task_tag: u32, command_number: u32) -> Header {
    NopOut { is_final: true, task_tag, transfer_tag: TAG_NONE, command_number, ..NopOut::default() }.write()
}

fn immediate_ping(task_tag: u32) -> Header {
    NopOut { is_immediate: true, ..NopOut::read(&ping(task_tag, 1)) }.write()
}

fn usage(world: &World, quota: &Quota) -> Usage {
    *world.server.quotas().iter().find(|usage| usage.quota == quota).unwrap()
}

fn most(world: &World, quota: &Quota) -> u64 {
    usage(world, quota).most.unwrap()
}

/// What waits on connection 1 outside the memory for data.
fn unsent_heap_bytes(world: &mut World) -> u64 {
    world.server.connection(ConnectionId(1)).unwrap().mover.heap_bytes() as u64
}

/// Takes all that is sent on connection 1, and lets the server look again each time.
fn take_all(world: &mut World) -> Vec<Sent> {
    let mut all = Vec::new();
    loop {
        let sent = world.take(1);
        if sent.is_empty() {
            return all;
        }
        all.extend(sent);
        world.server.handle_timeout(world.now);
    }
}

#[test]
fn a_ping_goes_back_as_far_as_it_is_kept() {
    let mut world = World::new(1 << 20);
    let mut login = admitted(parameters());
    login.connection.digests = Digests { header: true, data: true };
    login.connection.send_data_max_bytes = 65536;
    world.admit(1, login, 1);
    world.take_one(1);
    world.send(1, immediate_ping(8), &pattern(40000));
    let (header, data) = world.take_one(1);
    assert_eq!((NopIn::read(&header).task_tag, &data[..]), (8, &pattern(40000)[..8192]));
    let mut damaged = pdu(immediate_ping(9), &pattern(40000), world.digests(1));
    damaged[30000] ^= 1;
    assert_eq!(world.send_bytes(1, &damaged), damaged.len());
    assert_eq!(rejection(&world.take_one(1)), 2);
}

#[test]
fn pings_that_come_early_keep_little_and_are_answered_all_the_same() {
    let mut world = World::with_session(parameters());
    for number in 2..=32 {
        world.send(1, ping(number, number), &pattern(30000));
    }
    let most = most(&world, &ISCSI_EARLY_BYTES);
    assert!((1..=ISCSI_EARLY_BYTES.limit).contains(&most), "{most}");
    world.send(1, ping(1, 1), &[]);
    let answers = world.take(1);
    assert_eq!(answers.len(), 32);
    assert_eq!(answers.iter().filter(|(_, data)| data.len() == 8192).count(), 8);
    assert!(answers.iter().all(|(_, data)| data.is_empty() || data[..] == pattern(8192)));
    assert_eq!(usage(&world, &ISCSI_EARLY_BYTES).refused, 23);
    assert_eq!(NopIn::read(&answers[31].0).max_command_number, 64);
}

#[test]
fn text_that_comes_early_and_was_not_kept_is_rejected() {
    let mut world = World::with_session(parameters());
    for number in 2..=10 {
        let request =
            TextRequest { is_final: true, task_tag: number, transfer_tag: TAG_NONE, ..TextRequest::default() };
        world.send(1, TextRequest { command_number: number, ..request }.write(), &[b'x'; 8192]);
    }
    world.send(1, ping(1, 1), &[]);
    let answers = world.take(1);
    assert_eq!(answers.iter().filter(|sent| sent.0.opcode() == Some(Opcode::Reject)).count(), 1);
    assert_eq!(answers.iter().filter(|sent| sent.0.opcode() == Some(Opcode::TextResponse)).count(), 8);
}

#[test]
fn whoever_does_not_read_has_few_answers_waiting_however_many_requests_come_at_once() {
    let mut world = World::with_session(parameters());
    let asked = pdu(immediate_ping(8), &[], Digests::default()).repeat(10_000);
    let taken = world.send_bytes(1, &asked);
    let waiting = unsent_heap_bytes(&mut world);
    assert!(waiting > ISCSI_UNSENT_HEAP_BYTES.limit && waiting < ISCSI_UNSENT_HEAP_BYTES.limit + 1000, "{waiting}");
    assert!(usage(&world, &ISCSI_UNSENT_HEAP_BYTES).refused > 0);
    let answers = take_all(&mut world).len();
    assert_eq!(answers, taken / asked.len().div_euclid(10_000), "what came is answered when there is room");
    assert_eq!(world.send_bytes(1, &asked[..48]), 48, "and it is read from again");
}

#[test]
fn many_connections_share_what_they_have_waiting() {
    const MANY: u16 = 2048;
    let mut world = World::new(1 << 20);
    for number in 1..=MANY {
        let [high, low] = number.to_be_bytes();
        world.admit(number.into(), Admitted { isid: Isid([0, 0, 0, 0, high, low]), ..admitted(level(1)) }, number);
        world.take_one(number.into());
    }
    let asked = pdu(immediate_ping(8), &[], Digests::default()).repeat(3000);
    world.send_bytes(1, &asked);
    let waiting = unsent_heap_bytes(&mut world);
    assert!(waiting > 32 << 10 && waiting < 33 << 10, "64 MiB / 2048: {waiting}");
    assert!(take_all(&mut world).len() > 600, "and all that was taken is answered");
    assert!(most(&world, &ISCSI_KEPT_HEAP_BYTES) <= 32 << 10);
}

#[test]
fn requests_to_send_again_are_not_a_way_to_fill_the_memory() {
    let mut world = World::with_session(level(1));
    let text = TextRequest { is_immediate: true, is_final: true, transfer_tag: TAG_NONE, ..TextRequest::default() };
    world.send(1, text.write(), b"MaxRecvDataSegmentLength=512\0");
    let handle = world.read(5, 65536);
    world.reply(handle, world.memory.frame(65536).map(Frame::freeze));
    let answer = take_all(&mut world).len();
    let snack = SnackRequest { is_final: true, task_tag: 5, transfer_tag: TAG_NONE, ..SnackRequest::default() };
    let asked = pdu(snack.write(), &[], Digests::default()).repeat(1300);
    world.send_bytes(1, &asked);
    let waiting = unsent_heap_bytes(&mut world);
    assert!(waiting < 2 * ISCSI_UNSENT_HEAP_BYTES.limit, "{waiting}");
    assert!(take_all(&mut world).len() > 1000 * (answer - 2));
}

#[test]
fn a_connection_with_much_data_to_send_is_not_read_from() {
    let mut world = World::new(32 << 20);
    world.admit(1, admitted(parameters()), 1);
    world.take_one(1);
    world.server.poll_event();
    for tag in 0..8 {
        let handle = world.read(tag, 1 << 20);
        world.reply(handle, world.memory.frame(1 << 20).map(Frame::freeze));
    }
    assert_eq!(world.server.spaces(ConnectionId(1)).map(|space| space.len()), [0, 0]);
    assert_eq!(usage(&world, &ISCSI_UNSENT_BYTES).refused, 1);
    world.take(1);
    assert!(!world.server.spaces(ConnectionId(1))[1].is_empty());
}

#[test]
fn what_is_kept_for_recovery_is_bounded_outside_the_memory_for_data_too() {
    let mut world = World::with_session(level(1));
    for _ in 0..500 {
        world.send(1, immediate_ping(8), &[7; 8192]);
        world.take_one(1);
    }
    let most_bytes = most(&world, &ISCSI_KEPT_HEAP_BYTES);
    assert!(most_bytes > ISCSI_KEPT_HEAP_BYTES.limit / 2 && usage(&world, &ISCSI_KEPT_HEAP_BYTES).refused > 400);
    assert_eq!(most(&world, &ISCSI_KEPT_BYTES), 0, "no data of a store");
    world.server.drop_target(TargetId(0), world.now);
    assert!(most(&world, &ISCSI_KEPT_HEAP_BYTES) >= most_bytes, "it is known of who is gone, too");
}

#[test]
fn all_targets_are_told_once_for_a_request() {
    let mut world = World::new(1 << 20);
    let mut login = admitted(parameters());
    (login.kind, login.connection.send_data_max_bytes) = (SessionKind::Discovery, 1 << 24);
    world.admit(1, login, 1);
    world.take_one(1);
    let request = TextRequest { is_immediate: true, is_final: true, transfer_tag: TAG_NONE, ..TextRequest::default() };
    world.send(1, request.write(), &b"SendTargets=All\0".repeat(400));
    assert_eq!(rejection(&world.take_one(1)), 4);
    let asked = pdu(request.write(), b"SendTargets=All\0", Digests::default());
    let told = TARGETS * 100;
    world.send_bytes(1, &asked.repeat(500));
    assert!(unsent_heap_bytes(&mut world) < ISCSI_UNSENT_HEAP_BYTES.limit + told as u64);
}

#[test]
fn how_many_commands_and_connections_sessions_have_is_counted() {
    let mut world = World::with_session(parameters());
    let handles: Vec<_> = (0..32).map(|tag| world.read(tag, 512)).collect();
    world.send(1, read_command(99, 512, 33).write(), &[]);
    assert!(world.server.poll_event().is_none(), "the window is closed");
    assert_eq!((most(&world, &ISCSI_COMMANDS_OF_SESSION), usage(&world, &ISCSI_COMMANDS_OF_SESSION).refused), (32, 1));
    handles.into_iter().for_each(|handle| world.reply(handle, None));
    for connection in 2..=5 {
        world.join(connection, connection as u16, parameters(), 1);
    }
    let connections = usage(&world, &ISCSI_CONNECTIONS_OF_SESSION);
    assert_eq!((connections.most, connections.refused), (Some(4), 1));
}
