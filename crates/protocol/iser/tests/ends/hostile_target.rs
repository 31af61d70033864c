//! An initiator of ours, and a target that breaks the rules (facts: IB/iser 6.1.76, 6.1.190; CVE-2021-27363 to 27365).

use sanwire_buffer::{Frame, Slice};
use sanwire_iscsi::wire::{DataIn, Header, NopIn, ReadyToTransfer, ScsiCommand, ScsiResponse, TAG_NONE};
use sanwire_iscsi::{Destination, Lent, Step};
use sanwire_iser::wire::{IserHeader, Window};
use sanwire_iwarp::{Event, Order, WorkId};

use super::pair::{Pair, message};

const LENGTH: usize = 8192;

fn response(task_tag: u32) -> ScsiResponse {
    ScsiResponse { is_final: true, task_tag, ..ScsiResponse::default() }
}

fn plain(header: Header) -> Vec<u8> {
    message(IserHeader::PLAIN, header, &[])
}

/// Gives a READ; tells where the target may write.
fn read(pair: &mut Pair, task_tag: u32) -> Window {
    let frame = Frame::from(vec![0xaa; LENGTH]);
    assert!(pair.ours.lend(task_tag, Some(frame), None).is_none());
    let command = ScsiCommand {
        is_final: true,
        is_read: true,
        task_tag,
        expected_bytes: LENGTH as u32,
        ..ScsiCommand::default()
    };
    pair.ours.push(command.write(), None);
    pair.pass();
    windows(pair).1.expect("memory to write to")
}

fn windows(pair: &mut Pair) -> (Option<Window>, Option<Window>) {
    let message = pair.heard().expect("a command");
    match IserHeader::read(message.buffer.first_chunk().unwrap()) {
        Some(IserHeader::Control { write, read }) => (write, read),
        other => panic!("{other:?}"),
    }
}

fn write_into(pair: &mut Pair, window: Window, data: &[u8]) {
    let data = Slice::from(data.to_vec()).into();
    pair.theirs.order(Order::Write { stag: window.stag, offset: window.offset, data }, None).expect("room");
}

/// The frame that has come back with a Data-In, and how much of it was filled.
fn frame_back(pair: &mut Pair) -> (Frame, usize) {
    match pair.ours.poll() {
        Step::Pdu(pdu) => (pdu.data.expect("a frame"), pdu.header.data_bytes()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_written_comes_back_with_the_answer() {
    let mut pair = Pair::of_initiator();
    let window = read(&mut pair, 5);
    write_into(&mut pair, window, &[7; 100]);
    let answer = ScsiResponse { underflow: true, residual_bytes: (LENGTH - 100) as u32, ..response(5) };
    pair.say(plain(answer.write()), Some(window.stag));
    let (frame, filled) = frame_back(&mut pair);
    assert_eq!((&frame[..filled], frame.len()), (&[7; 100][..], LENGTH));
    assert_eq!(pair.got().task_tag(), 5);
    assert!(matches!(pair.ours.poll(), Step::Starving));
}

/// What was in a frame before is no data, whatever an answer says.
#[test]
fn what_a_target_has_not_written_is_not_taken_for_data() {
    for (parts, written) in [(&[][..], 0), (&[(0, 100)], 100), (&[(0, 100), (200, 300)], 100), (&[(1, 50)], 0)] {
        let mut pair = Pair::of_initiator();
        let window = read(&mut pair, 5);
        for (offset, length) in parts {
            write_into(&mut pair, Window { offset: window.offset + offset, ..window }, &vec![7; *length]);
        }
        pair.say(plain(response(5).write()), Some(window.stag));
        assert_eq!(frame_back(&mut pair).1, written, "{parts:?}");
    }
}

/// All PDUs of a target tell of the window of commands: one that nobody has sent says what the answer says.
#[test]
fn data_that_was_written_leaves_the_window_of_commands_as_it_is() {
    let mut pair = Pair::of_initiator();
    read(&mut pair, 5);
    let numbers = (0xffff_0000, 0xffff_0080);
    let answer = ScsiResponse { expected_command_number: numbers.0, max_command_number: numbers.1, ..response(5) };
    pair.say(plain(answer.write()), None);
    let told = DataIn::read(&pair.got());
    assert_eq!((told.expected_command_number, told.max_command_number), numbers);
}

/// A residual beyond what was asked for is no reason to read beyond the frame.
#[test]
fn a_residual_that_lies_tells_of_no_data() {
    let mut pair = Pair::of_initiator();
    read(&mut pair, 5);
    let answer = ScsiResponse { underflow: true, residual_bytes: u32::MAX, ..response(5) };
    pair.say(plain(answer.write()), None);
    assert_eq!(frame_back(&mut pair).1, 0);
}

#[test]
fn who_closes_the_memory_of_another_command_is_left() {
    let mut pair = Pair::of_initiator();
    let windows = [5, 6].map(|tag| read(&mut pair, tag));
    pair.say(plain(response(5).write()), Some(windows[1].stag));
    assert!(pair.is_torn());
    assert_eq!(pair.ours.withdraw().len(), 2, "the frames of both commands");
}

/// IB/iser 6.1.190: a key that no command has given away.
#[test]
fn who_closes_memory_that_is_not_open_is_left() {
    let mut pair = Pair::of_initiator();
    let window = read(&mut pair, 5);
    pair.say(plain(response(5).write()), Some(sanwire_iwarp::Stag(window.stag.0 ^ 1)));
    assert!(pair.is_torn());
    assert_eq!(pair.ours.withdraw().len(), 1);
}

#[test]
fn who_closes_memory_with_something_else_than_an_answer_is_left() {
    let mut pair = Pair::of_initiator();
    let window = read(&mut pair, 5);
    pair.say(plain(NopIn { task_tag: TAG_NONE, ..NopIn::default() }.write()), Some(window.stag));
    assert!(pair.is_torn());
    let frames = pair.ours.withdraw();
    assert_eq!((frames.len(), frames[0].0, frames[0].1.len()), (1, 5, LENGTH));
}

#[test]
fn nothing_is_written_into_memory_whose_command_is_over() {
    let mut pair = Pair::of_initiator();
    let window = read(&mut pair, 5);
    let frame = pair.ours.recall(5).expect("the frame");
    assert!(frame.iter().all(|byte| *byte == 0xaa));
    write_into(&mut pair, window, &[1; 10]);
    pair.pass();
    assert!(pair.is_torn());
    assert!(pair.told.iter().any(|event| matches!(event, Event::Terminated(_))), "it is told: {:?}", pair.told);
}

#[test]
fn nothing_is_written_beyond_a_frame() {
    for (offset, length) in [(1, LENGTH), (LENGTH as u64, 1), (u64::MAX - 1, 1)] {
        let mut pair = Pair::of_initiator();
        let window = read(&mut pair, 5);
        write_into(&mut pair, Window { offset: window.offset.wrapping_add(offset), ..window }, &vec![1; length]);
        pair.pass();
        assert!(pair.is_torn(), "{offset} {length}");
        let frames = pair.ours.withdraw();
        assert!(frames[0].1.iter().all(|byte| *byte == 0xaa), "{offset} {length}");
    }
}

/// Gives a WRITE of which nothing goes out unasked; tells where the target may read.
fn write(pair: &mut Pair, task_tag: u32, data: &Slice) -> Window {
    pair.ours.lend(task_tag, None, Some(Lent { data: data.clone(), unsolicited_bytes: 0 }));
    let command = ScsiCommand {
        is_final: true,
        is_write: true,
        task_tag,
        expected_bytes: data.len() as u32,
        ..ScsiCommand::default()
    };
    pair.ours.push(command.write(), None);
    pair.pass();
    windows(pair).0.expect("memory to read from")
}

#[test]
fn data_that_is_to_be_read_is_not_written_and_data_that_is_to_be_written_is_not_read() {
    let mut pair = Pair::of_initiator();
    let data = Slice::from(vec![5; LENGTH]);
    let window = write(&mut pair, 9, &data);
    write_into(&mut pair, window, &[1; 10]);
    pair.pass();
    assert!(pair.is_torn());
    assert!(data.iter().all(|byte| *byte == 5));
    let mut pair = Pair::of_initiator();
    let window = read(&mut pair, 5);
    pair.theirs.read(WorkId(1), vec![0; 10].into(), 0..10, window.stag, window.offset).expect("room");
    pair.pass();
    assert!(pair.is_torn());
    assert!(!pair.told.iter().any(|event| matches!(event, Event::ReadDone { .. })), "{:?}", pair.told);
}

/// What fails by what is sent is known when that is sent, whatever comes.
#[test]
fn memory_that_is_closed_while_it_is_read_ends_the_connection_when_that_is_told() {
    const LONG: usize = 200_000;
    let mut pair = Pair::of_initiator();
    let window = write(&mut pair, 9, &Slice::from(vec![5; LONG]));
    pair.theirs.read(WorkId(1), vec![0; LONG].into(), 0..LONG, window.stag, window.offset).expect("room");
    let request: Vec<u8> =
        std::iter::from_fn(|| pair.theirs.poll_transmit()).flat_map(|packet| packet.to_vec()).collect();
    assert_eq!(pair.ours.take(&request), request.len());
    assert!(pair.ours.recall(9).is_none() && !pair.ours.has_failed(), "something is still to be sent");
    let sent: Vec<u8> = std::iter::from_fn(|| pair.ours.pop()).flat_map(|packet| packet.to_vec()).collect();
    assert!(pair.ours.has_failed() && sent.len() < LONG);
    pair.theirs.take(&sent);
    assert!(std::iter::from_fn(|| pair.theirs.poll_event()).any(|event| matches!(event, Event::Terminated(_))));
    assert!(pair.is_torn());
}

/// A target that two connections lead to knows the keys of both.
#[test]
fn keys_of_another_connection_open_nothing() {
    let (mut one, mut other) = (Pair::of_initiator(), Pair::of_initiator_with([2; 32]));
    let window = read(&mut one, 5);
    read(&mut other, 5);
    write_into(&mut other, window, &[1; 10]);
    other.pass();
    assert!(other.is_torn() && matches!(one.ours.poll(), Step::Starving));
    for pair in [&mut one, &mut other] {
        let frames = pair.ours.withdraw();
        assert!(frames.len() == 1 && frames[0].1.iter().all(|byte| *byte == 0xaa));
    }
    let (mut one, mut other) = (Pair::of_initiator(), Pair::of_initiator_with([2; 32]));
    let window = read(&mut one, 5);
    read(&mut other, 5);
    other.say(plain(response(5).write()), Some(window.stag));
    assert!(other.is_torn(), "nor do they close anything there");
    assert_eq!(other.ours.withdraw().len(), 1);
}

#[test]
fn of_data_to_be_written_the_target_reads_what_did_not_come_unasked_and_no_more() {
    let mut pair = Pair::of_initiator();
    let data = Slice::from((0..LENGTH).map(|at| at as u8).collect::<Vec<_>>());
    pair.ours.lend(9, None, Some(Lent { data: data.clone(), unsolicited_bytes: 1000 }));
    let command = ScsiCommand {
        is_final: true,
        is_write: true,
        task_tag: 9,
        expected_bytes: LENGTH as u32,
        ..ScsiCommand::default()
    };
    pair.ours.push(command.write(), Some(data.slice(0..1000).into()));
    pair.pass();
    let window = windows(&mut pair).0.expect("memory to read");
    let rest = LENGTH - 1000;
    pair.theirs.read(WorkId(1), vec![0; rest].into(), 0..rest, window.stag, window.offset).expect("room");
    pair.pass();
    let read = pair.told.drain(..).find_map(|event| match event {
        Event::ReadDone { frame, .. } => Some(frame),
        _ => None,
    });
    assert!(read.expect("an answer")[..] == data[1000..]);
    pair.theirs.read(WorkId(2), vec![0; rest + 1].into(), 0..rest + 1, window.stag, window.offset).expect("room");
    pair.pass();
    assert!(pair.is_torn());
}

/// RFC 7145 7.3: data is written into memory, and read from it.
#[test]
fn data_in_and_r2t_have_no_place_in_messages() {
    let data = DataIn { is_final: true, task_tag: 5, ..DataIn::default() };
    let ready = ReadyToTransfer { is_final: true, task_tag: 5, desired_bytes: 100, ..ReadyToTransfer::default() };
    for bytes in [message(IserHeader::PLAIN, data.write(), &[1; 100]), plain(ready.write())] {
        let mut pair = Pair::of_initiator();
        read(&mut pair, 5);
        pair.say(bytes, None);
        assert!(pair.is_torn());
        assert!(pair.ours.withdraw()[0].1.iter().all(|byte| *byte == 0xaa));
    }
}

/// CVE-2026-99152 and its like: an answer to what was not asked is the session's to judge, and touches no memory here.
#[test]
fn an_answer_to_no_command_touches_no_memory() {
    let mut pair = Pair::of_initiator();
    read(&mut pair, 5);
    for tag in [6, 0xffff_ffff, 0x8000_0005] {
        pair.say(plain(response(tag).write()), None);
        assert_eq!(pair.got().task_tag(), tag);
    }
    assert_eq!(pair.ours.withdraw().len(), 1);
}

#[test]
fn short_sends_and_messages_without_headers_end_the_connection() {
    let whole = message(IserHeader::PLAIN, response(5).write(), &[0; 20]);
    let greeting = IserHeader::Hello { versions: (10, 10), ird: 1 }.write().to_vec();
    for bytes in [Vec::new(), whole[..27].to_vec(), whole[..75].to_vec(), whole[..95].to_vec(), vec![0; 76], greeting] {
        let mut pair = Pair::of_initiator();
        read(&mut pair, 5);
        let length = bytes.len();
        pair.say(bytes, None);
        assert!(pair.is_torn(), "{length}");
        assert_eq!(pair.ours.withdraw().len(), 1, "{length}");
    }
}

#[test]
fn a_message_that_is_longer_than_its_buffer_ends_the_connection() {
    let mut pair = Pair::of_initiator();
    read(&mut pair, 5);
    pair.say(message(IserHeader::PLAIN, response(5).write(), &[0; 16384]), None);
    assert!(pair.is_torn());
}

/// More messages than were ever allowed: they are taken as they come, and none of them costs memory.
#[test]
fn messages_beyond_all_credits_are_taken_or_end_the_connection() {
    let mut pair = Pair::of_initiator();
    // A target says nothing before it has heard something (RFC 5044 7.1.2).
    read(&mut pair, 5);
    for _ in 0..1000 {
        let order = Order::Send {
            kind: sanwire_iwarp::SendKind::default(),
            head: plain(NopIn { task_tag: TAG_NONE, ..NopIn::default() }.write()).into(),
            data: None,
        };
        pair.theirs.order(order, None).expect("room");
    }
    pair.pass();
    let mut got = 0;
    loop {
        match pair.ours.poll() {
            Step::Pdu(_) => got += 1,
            Step::Header(_) => pair.ours.place(Destination::Nowhere),
            Step::Starving => break,
            Step::Torn => panic!("they have come one after the other"),
        }
    }
    assert_eq!(got, 1000);
}
