//! A target of ours, and an initiator that breaks the rules (facts: CVE-2026-90413, -90414, -53176, -90292 to -90294).

mod reads;

use sanwire_buffer::Slice;
use sanwire_core::Instant;
use sanwire_iscsi::wire::{DataIn, DataOut, LoginRequest, NopIn, NopOut, Opcode, ScsiCommand, ScsiResponse, TAG_NONE};
use sanwire_iscsi::{ConnectionId, ConnectionParameters, Destination, Step};
use sanwire_iser::wire::{HeaderForm, IserHeader, Window};
use sanwire_iwarp::{Config, Ended, Event, Fault, Memory, Registration, Stag};

use super::host::Host;
use super::pair::{Pair, message};
use super::raw::{ID, Line, NORMAL, Raw, command, message_as, of_blocks, opened, window};
use super::world::{MEMORY_BYTES, name};

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

/// CVE-2026-53176: the first message is a login that is cut short. Nothing behind it is read, and it is taken for no other form of a login.
#[test]
fn a_login_that_is_cut_short_is_refused_and_nothing_is_read_beyond_it() {
    let now = Instant::from_nanos(1);
    let text = format!("InitiatorName=iqn.2026-11.org.raw:x\0TargetName={}\0RDMAExtensions=Yes\0", name());
    let login =
        LoginRequest { is_immediate: true, transits: true, current_stage: 1, next_stage: 3, ..LoginRequest::default() };
    for form in [HeaderForm::Rfc7145, HeaderForm::Rfc5046] {
        let whole = message_as(form, IserHeader::PLAIN, login.write(), text.as_bytes());
        for length in (0..whole.len()).filter(|length| length % 7 == 0 || whole.len() - length < 5) {
            let mut host = Host::new();
            let mut line = Line::open(ID, form, Config::default(), &mut host, now);
            line.say(whole[..length].to_vec(), &mut host, now);
            assert_eq!((host.refusals.len(), host.closed.len()), (1, 1), "{form:?} {length}: {:?}", host.refusals);
            // What is cut out of the shorter form may be a PDU of the longer one, but is no login.
            let reasons = ["shorter than", "length is not what", "something else than a login"];
            let is_reason = reasons.iter().any(|why| host.refusals[0].contains(why));
            assert!(is_reason, "{form:?} {length}: {}", host.refusals[0]);
            assert!(line.answers().is_empty(), "{form:?} {length}: no answer to what was not read");
        }
        let mut host = Host::new();
        let mut line = Line::open(ID, form, Config::default(), &mut host, now);
        line.say(whole, &mut host, now);
        assert_eq!((host.refusals.len(), line.answers().len()), (0, 1), "{form:?}: {:?}", host.refusals);
    }
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
