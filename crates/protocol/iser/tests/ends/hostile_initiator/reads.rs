//! WRITEs, whose data is read from the memory of an initiator: it is not there, or is given up meanwhile.

use std::time::Duration;

use sanwire_iscsi::Step;
use sanwire_iscsi::wire::{DataOut, ReadyToTransfer, ScsiCommand, ScsiResponse, TAG_NONE, TaskRequest, TaskResponse};
use sanwire_iser::wire::{IserHeader, Window};
use sanwire_iwarp::{Order, Registration, SendKind, Stag};

use super::super::pair::{Pair, message};
use super::super::raw::{ID, NORMAL, Raw, command, of_blocks, opened, window};
use super::super::world::MEMORY_BYTES;

/// Reads of memory that is not there, too short, or not to be read: the initiator's end says so, and the connection is over.
#[test]
fn memory_that_is_not_what_was_said_ends_the_connection() {
    for length in [0, 99] {
        let mut pair = Pair::of_target(&NORMAL.write());
        let stag = pair.theirs.register(Registration::of_slices(vec![1; length].into())).unwrap();
        pair.say(message(opened(None, Some(window(stag))), command(5, 100, false).write(), &[]), None);
        pair.got();
        let ready = ReadyToTransfer { task_tag: 5, transfer_tag: 1, desired_bytes: 100, ..ReadyToTransfer::default() };
        pair.ours.get_data(&ready.write(), vec![0; 100].into(), 0).expect("a window");
        pair.pass();
        assert!(pair.is_torn(), "{length}");
    }
}

#[test]
fn an_offset_that_wraps_is_not_read() {
    let mut pair = Pair::of_target(&NORMAL.write());
    let end = Window { stag: Stag(5), offset: u64::MAX };
    pair.say(message(opened(None, Some(end)), command(5, 100, false).write(), &[]), None);
    pair.got();
    let ready = |offset_bytes| {
        ReadyToTransfer { task_tag: 5, transfer_tag: 1, offset_bytes, desired_bytes: 50, ..ReadyToTransfer::default() }
            .write()
    };
    assert!(pair.ours.get_data(&ready(0), vec![0; 100].into(), 0).is_err(), "the end of it lies beyond all numbers");
    assert!(pair.ours.get_data(&ready(50), vec![0; 100].into(), 0).is_err());
    assert!(
        pair.ours
            .get_data(&ReadyToTransfer { task_tag: 6, ..ReadyToTransfer::default() }.write(), vec![0; 1].into(), 0)
            .is_err()
    );
}

#[test]
fn data_is_read_from_the_memory_of_who_writes() {
    let mut raw = Raw::logged_in();
    let stag = raw.line.rdma.register(Registration::of_slices(vec![7; 8192].into()).with_invalidation()).unwrap();
    raw.write(1, window(stag));
    let [answer] = &raw.answers()[..] else { panic!("one answer") };
    assert_eq!((answer[28], answer[31]), (0x21, 0), "GOOD");
    assert!(raw.host.disk[..8192] == [7; 8192]);
    assert_eq!(raw.host.memory.free_bytes(), MEMORY_BYTES);
}

/// A key that is none: the session ends, and what it had goes home.
#[test]
fn a_key_that_is_none_costs_the_session_and_no_memory() {
    let mut raw = Raw::logged_in();
    raw.write(1, window(Stag(12345)));
    assert!(raw.host.closed.contains(&ID), "{:?}", raw.line.told);
    raw.host.lose(ID, raw.now);
    assert_eq!(raw.host.memory.free_bytes(), MEMORY_BYTES);
}

/// CVE-2026-97951: an abort of a command whose data is being read. The read never ends, and nobody waits for it.
#[test]
fn a_command_whose_data_is_being_read_is_aborted_at_once() {
    let mut raw = Raw::logged_in();
    let stag = raw.line.rdma.register(Registration::of_slices(vec![7; 8192].into())).unwrap();
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x2a, 16);
    let write = ScsiCommand { command_number: 1, cdb, ..command(1, 8192, false) };
    let abort = TaskRequest {
        is_immediate: true,
        is_final: true,
        function: 1,
        task_tag: 99,
        referenced_task_tag: 1,
        command_number: 2,
        referenced_command_number: 1,
        ..TaskRequest::default()
    };
    for bytes in
        [message(opened(None, Some(window(stag))), write.write(), &[]), message(IserHeader::PLAIN, abort.write(), &[])]
    {
        let order = Order::Send { kind: SendKind::default(), head: bytes.into(), data: None };
        raw.line.rdma.order(order, None).expect("room");
    }
    // Both arrive before the read is answered.
    raw.pass();
    let answers = raw.answers();
    let [aborted] = &answers[..] else { panic!("{} answers", answers.len()) };
    assert_eq!((aborted[28], aborted[30]), (0x22, 0), "complete");
    raw.pass();
    assert!(raw.host.disk.iter().all(|byte| *byte == 0) && raw.host.closed.is_empty());
    assert_eq!(raw.host.memory.free_bytes(), MEMORY_BYTES, "what was read has gone nowhere");
}

/// Once an initiator knows that a command is over it closes its memory, and a read that is under way there would end the connection.
#[test]
fn a_command_is_not_answered_while_its_data_is_being_read() {
    for is_aborted in [false, true] {
        let mut pair = Pair::of_target(&NORMAL.write());
        let registration = Registration::of_slices(vec![1; 100_000].into()).with_invalidation();
        let stag = pair.theirs.register(registration).unwrap();
        pair.say(message(opened(None, Some(window(stag))), command(5, 100_000, false).write(), &[]), None);
        pair.got();
        let desired_bytes = 100_000;
        let ready = ReadyToTransfer { task_tag: 5, transfer_tag: 1, desired_bytes, ..ReadyToTransfer::default() };
        pair.ours.get_data(&ready.write(), vec![0; 100_000].into(), 0).expect("a window");
        if is_aborted {
            pair.ours.forget(5);
            pair.ours.push(TaskResponse::default().write(), None);
        } else {
            pair.ours.push(ScsiResponse { task_tag: 5, ..ScsiResponse::default() }.write(), None);
        }
        let request: Vec<u8> = std::iter::from_fn(|| pair.ours.pop()).flat_map(|packet| packet.to_vec()).collect();
        pair.theirs.take(&request);
        pair.told.extend(std::iter::from_fn(|| pair.theirs.poll_event()));
        assert!(pair.heard().is_none(), "the read is under way");
        pair.pass();
        assert!(pair.heard().is_some() && pair.theirs.is_established(), "{:?}", pair.told);
        assert!(matches!(pair.ours.poll(), Step::Pdu(pdu) if pdu.data.as_deref() == Some(&[1; 100_000][..])));
    }
}

/// Data for an earlier command of a tag comes while a later one waits for its own.
#[test]
fn what_was_read_for_a_command_does_not_become_the_data_of_another() {
    let mut raw = Raw::logged_in_with("InitialR2T=No");
    let stag = raw.line.rdma.register(Registration::of_slices(vec![0xaa; 8192].into())).unwrap();
    let write = |number, blocks, is_final| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[8]) = (0x2a, blocks);
        let expected_bytes = u32::from(blocks) * 512;
        ScsiCommand { command_number: number, cdb, is_final, ..command(1, expected_bytes, false) }.write()
    };
    let abort = TaskRequest {
        is_immediate: true,
        is_final: true,
        function: 1,
        task_tag: 99,
        referenced_task_tag: 1,
        command_number: 2,
        referenced_command_number: 1,
        ..TaskRequest::default()
    };
    for bytes in [
        message(opened(None, Some(window(stag))), write(1, 16, true), &[]),
        message(IserHeader::PLAIN, abort.write(), &[]),
        message(IserHeader::PLAIN, write(2, 2, false), &[0xbb; 512]),
    ] {
        let order = Order::Send { kind: SendKind::default(), head: bytes.into(), data: None };
        raw.line.rdma.order(order, None).expect("room");
    }
    raw.pass();
    let rest = DataOut { is_final: true, task_tag: 1, transfer_tag: TAG_NONE, offset_bytes: 512, ..DataOut::default() };
    raw.say(message(IserHeader::PLAIN, rest.write(), &[0xbb; 512]));
    let answers = raw.answers();
    let [aborted, answer] = &answers[..] else { panic!("{} answers", answers.len()) };
    assert_eq!((aborted[28], answer[28], answer[31]), (0x22, 0x21, 0), "complete, and GOOD");
    assert!(raw.host.disk[..1024] == [0xbb; 1024] && raw.host.disk[1024..].iter().all(|byte| *byte == 0));
    assert_eq!(raw.host.memory.free_bytes(), MEMORY_BYTES);
}

/// An initiator that never answers a read: the command fails in the end, and the connection with it.
#[test]
fn an_initiator_that_answers_no_read_keeps_no_memory_for_ever() {
    let mut raw = Raw::logged_in();
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x2a, 16);
    let write = ScsiCommand { command_number: 1, cdb, ..command(1, 8192, false) };
    let order = Order::Send {
        kind: SendKind::default(),
        head: message(opened(None, Some(window(Stag(1)))), write.write(), &[]).into(),
        data: None,
    };
    raw.line.rdma.order(order, None).expect("room");
    let bytes: Vec<u8> =
        std::iter::from_fn(|| raw.line.rdma.poll_transmit()).flat_map(|packet| packet.to_vec()).collect();
    raw.host.feed(ID, &bytes, raw.now);
    assert!(raw.host.memory.free_bytes() < MEMORY_BYTES);
    for _ in 0..200 {
        let Some(next) = raw.host.server.poll_timeout() else { break };
        raw.now = next.max(raw.now + Duration::from_millis(1));
        raw.host.server.handle_timeout(raw.now);
        raw.host.drain(raw.now);
        if raw.host.closed.contains(&ID) {
            raw.host.lose(ID, raw.now);
        }
    }
    assert_eq!(raw.host.memory.free_bytes(), MEMORY_BYTES);
}

/// No R2T goes by RDMA: data that cannot be read is not waited for.
#[test]
fn a_write_whose_data_cannot_be_read_fails_at_once() {
    for (has_memory, immediate) in [(false, 0), (false, 512), (true, 0), (true, 512)] {
        let mut raw = Raw::logged_in();
        let registration = Registration::of_slices(vec![7; 8192].into()).with_invalidation();
        let stag = raw.line.rdma.register(registration).unwrap();
        let beyond_all_numbers = Window { stag, offset: u64::MAX - 100 };
        let control = opened(None, has_memory.then_some(beyond_all_numbers));
        raw.say(message(control, of_blocks(1, 16, false).write(), &vec![1; immediate]));
        let [answer] = &raw.answers()[..] else { panic!("one answer") };
        assert_eq!((answer[28], answer[31]), (0x21, 2), "CHECK CONDITION");
        let sense = &answer[78..];
        assert_eq!((sense[2], &sense[12..14]), (0x0b, &[0x0c, 0x0d][..]), "not enough data");
        assert_eq!(raw.host.memory.free_bytes(), MEMORY_BYTES);
        let stag = raw.line.rdma.register(Registration::of_slices(vec![7; 8192].into()).with_invalidation()).unwrap();
        raw.write(2, window(stag));
        assert!(raw.host.disk[..8192] == [7; 8192] && raw.host.closed.is_empty());
    }
}
