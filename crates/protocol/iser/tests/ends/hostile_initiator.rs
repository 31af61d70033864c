//! A target of ours, and an initiator that breaks the rules (facts: CVE-2026-90413, -90414, -53176, -90292 to -90294).

use std::time::Duration;

use sanwire_buffer::Slice;
use sanwire_core::Instant;
use sanwire_iscsi::wire::{
    DataIn, DataOut, LoginRequest, NopIn, NopOut, Opcode, ReadyToTransfer, ScsiCommand, ScsiResponse, TAG_NONE,
    TaskRequest, TaskResponse,
};
use sanwire_iscsi::{ConnectionId, ConnectionParameters, Destination, Step};
use sanwire_iser::wire::{HeaderForm, IserHeader, Window};
use sanwire_iwarp::{Config, Ended, Event, Fault, Memory, Order, Registration, SendKind, Stag};

use super::host::Host;
use super::pair::{Pair, message};
use super::raw::{ID, Line, NORMAL, Raw, command, of_blocks, opened, window};
use super::world::MEMORY_BYTES;

#[test]
fn data_and_status_are_a_write_and_an_answer_that_closes_the_memory() {
    let mut pair = Pair::of_target(&NORMAL.write());
    let stag = pair.theirs.register(Registration::of_frame(vec![0; 1000].into()).with_invalidation()).unwrap();
    pair.say(message(opened(Some(window(stag)), None), command(5, 1000, true).write(), &[]), None);
    assert_eq!(pair.got().task_tag(), 5);
    let part = |start: usize, has_status: bool| {
        DataIn {
            is_final: true,
            task_tag: 5,
            offset_bytes: start as u32,
            has_status,
            status_number: 77,
            ..DataIn::default()
        }
        .write()
    };
    pair.ours.push(part(0, false), Some(Slice::from(vec![1; 600]).into()));
    pair.ours.push(part(600, true), Some(Slice::from(vec![2; 400]).into()));
    pair.pass();
    let answer = pair.heard().expect("an answer");
    assert_eq!(answer.invalidated, Some(stag));
    let header = sanwire_iscsi::wire::Header::from_bytes(answer.buffer[28..76].try_into().unwrap());
    assert_eq!(header.opcode(), Some(Opcode::ScsiResponse), "RFC 7145 7.3.5: no status with data");
    let response = ScsiResponse::read(&header);
    assert_eq!((response.task_tag, response.status_number, response.status), (5, 77, 0));
    let Some(Memory::Frame(frame)) = pair.theirs.deregister(stag) else { panic!("a frame") };
    assert!(frame[..600] == [1; 600] && frame[600..] == [2; 400]);
}

/// The private data of Linux says 0x80; one that says 0xc0, or nothing, does not want its keys ended.
#[test]
fn keys_are_ended_only_where_both_ends_have_said_so() {
    for (private_data, ends) in
        [(&[0x80, 0, 0, 0][..], true), (&[0xc0, 0, 0, 0], false), (&[], false), (&[0x80; 508], true)]
    {
        let mut pair = Pair::of_target(private_data);
        let stag = pair.theirs.register(Registration::of_frame(vec![0; 10].into()).with_invalidation()).unwrap();
        pair.say(message(opened(Some(window(stag)), None), command(5, 10, true).write(), &[]), None);
        pair.got();
        pair.ours.push(ScsiResponse { task_tag: 5, ..ScsiResponse::default() }.write(), None);
        pair.pass();
        assert_eq!(pair.heard().expect("an answer").invalidated.is_some(), ends, "{:?}", private_data.first());
    }
}

#[test]
fn who_asks_for_data_and_opens_no_memory_is_left() {
    let mut pair = Pair::of_target(&NORMAL.write());
    pair.say(message(IserHeader::PLAIN, command(5, 512, true).write(), &[]), None);
    assert!(pair.is_torn());
}

#[test]
fn data_that_was_to_be_read_is_not_taken_from_a_message() {
    let mut pair = Pair::of_target(&NORMAL.write());
    let data = DataOut { is_final: true, task_tag: 5, transfer_tag: 3, ..DataOut::default() };
    pair.say(message(IserHeader::PLAIN, data.write(), &[1; 100]), None);
    assert!(pair.is_torn());
    let mut pair = Pair::of_target(&NORMAL.write());
    let unasked = DataOut { transfer_tag: TAG_NONE, ..data };
    pair.say(message(IserHeader::PLAIN, unasked.write(), &[1; 100]), None);
    assert!(matches!(pair.ours.poll(), Step::Header(header) if header.opcode() == Some(Opcode::DataOut)));
    pair.ours.place(Destination::Frame(vec![0; 100].into(), 0));
    assert!(matches!(pair.ours.poll(), Step::Pdu(pdu) if pdu.data.as_deref() == Some(&[1; 100][..])));
}

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
fn memory_for_more_commands_than_may_be_given_is_not_kept() {
    let mut pair = Pair::of_target(&NORMAL.write());
    let mut given = 0;
    while !matches!(pair.ours.poll(), Step::Torn) {
        given += 1;
        assert!(given < 10_000);
        let read = window(Stag(given));
        if pair.theirs.is_established() {
            pair.say(message(opened(Some(read), None), command(given, 512, true).write(), &[]), None);
        }
    }
    assert!(given > 1000);
}

#[test]
fn short_sends_end_the_connection() {
    let whole = message(IserHeader::PLAIN, NopOut::default().write(), &[0; 20]);
    for length in [0, 1, 27, 28, 75, 76, 95] {
        let mut pair = Pair::of_target(&NORMAL.write());
        pair.say(whole[..length].to_vec(), None);
        assert!(pair.is_torn(), "{length}");
    }
}

#[test]
fn hello_is_answered_once_the_login_is_over() {
    let hello = IserHeader::Hello { versions: (10, 1), ird: 5 }.write().to_vec();
    let mut pair = Pair::of_target(&NORMAL.write());
    pair.ours.begin(&ConnectionParameters::default(), 32);
    pair.say(hello.clone(), None);
    assert!(matches!(pair.ours.poll(), Step::Starving));
    pair.pass();
    let reply = IserHeader::read(pair.heard().expect("a reply").buffer.first_chunk().unwrap());
    assert_eq!(reply, Some(IserHeader::HelloReply { is_rejected: false, versions: (10, 10), ord: 5 }));
    let mut pair = Pair::of_target(&NORMAL.write());
    pair.say(hello, None);
    assert!(pair.is_torn(), "not before");
}

/// A plain iSCSI initiator, or any other noise, at a portal of iSER.
#[test]
fn who_does_not_speak_rdma_is_refused_with_the_reason() {
    for bytes in [
        &LoginRequest::default().write().as_bytes()[..],
        b"GET / HTTP/1.1\r\n\r\n12345678901234567890123456789012345678901234567890",
    ] {
        let mut host = Host::new();
        host.open(ConnectionId(1), true, Instant::ZERO);
        host.feed(ConnectionId(1), bytes, Instant::ZERO);
        let [reason] = &host.refusals[..] else { panic!("{:?}", host.refusals) };
        assert!(reason.contains("does not begin as iSER does") && reason.contains("iscsi: wire"), "{reason}");
    }
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

/// Commands outside the window of numbers are ignored (RFC 7143 4.2.2.1), and so is the memory that they open.
#[test]
fn memory_of_commands_that_are_ignored_is_not_kept() {
    let mut raw = Raw::logged_in();
    for tag in 1000..4000 {
        let ignored = ScsiCommand { command_number: 5000, ..command(tag, 512, true) };
        raw.say(message(opened(Some(window(Stag(tag))), None), ignored.write(), &[]));
    }
    assert!(raw.host.closed.is_empty());
    let stag = raw.line.rdma.register(Registration::of_slices(vec![7; 8192].into()).with_invalidation()).unwrap();
    raw.write(1, window(stag));
    assert!(raw.host.disk[..8192] == [7; 8192]);
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

/// Nothing has to come for a connection to be over that has failed by what was to be sent.
#[test]
fn a_read_that_cannot_be_written_ends_the_connection_at_once_and_is_not_answered() {
    let mut raw = Raw::logged_in();
    let beyond = Window { stag: Stag(5), offset: u64::MAX - 100 };
    raw.say(message(opened(Some(beyond), None), of_blocks(1, 1, true).write(), &[]));
    assert_eq!(raw.host.server.poll_timeout(), Some(Instant::ZERO));
    raw.host.server.handle_timeout(raw.now);
    raw.host.drain(raw.now);
    assert!(raw.host.closed.contains(&ID));
    raw.pass();
    assert!(raw.answers().is_empty());
    raw.host.lose(ID, raw.now);
    assert_eq!(raw.host.memory.free_bytes(), MEMORY_BYTES);
}

/// A login is one message after the other.
#[test]
fn more_messages_at_once_than_a_login_has_room_for_end_it() {
    let (mut host, now) = (Host::new(), Instant::from_nanos(1));
    let mut line = Line::open(ID, HeaderForm::Rfc7145, Config::default(), &mut host, now);
    (0..10).for_each(|_| line.order(message(IserHeader::PLAIN, NopOut::default().write(), &[])));
    line.pass(&mut host, now);
    let is_told = |event: &Event| matches!(event, Event::Terminated(Ended::ByPeer(Some(Fault::NoBuffer))));
    assert!(line.told.iter().any(is_told), "{:?}", line.told);
    assert_eq!((host.refusals.len(), host.closed.len()), (1, 1), "{:?}", host.refusals);
}

/// More than there are buffers: they are posted again as fast as bytes are received.
#[test]
fn messages_beyond_all_credits_are_taken_as_fast_as_they_come() {
    let mut raw = Raw::logged_in();
    for task_tag in 0..300 {
        let ping = NopOut {
            is_immediate: true,
            is_final: true,
            task_tag,
            transfer_tag: TAG_NONE,
            command_number: 1,
            ..NopOut::default()
        };
        raw.line.order(message(IserHeader::PLAIN, ping.write(), &[]));
    }
    raw.pass();
    let pongs = raw.answers();
    let tags: Vec<u32> = pongs.iter().map(|pong| NopIn::read(&raw.line.header_of(pong)).task_tag).collect();
    assert_eq!(tags, (0..300).collect::<Vec<_>>());
    assert!(raw.host.closed.is_empty());
}
