//! An initiator with the headers of RFC 5046: 12 bytes, and no offsets.

use sanwire_iscsi::wire::{NopIn, NopOut, ScsiResponse, TAG_NONE};
use sanwire_iser::wire::{HeaderForm, IserHeader};
use sanwire_iwarp::{Config, Memory, Registration};

use super::raw::{ID, Raw, message_as, of_blocks, opened, window};
use super::world::MEMORY_BYTES;

const FORM: HeaderForm = HeaderForm::Rfc5046;

fn logged_in() -> Raw {
    Raw::logged_in_as(FORM, Config::default(), "InitialR2T=Yes")
}

fn is_good(raw: &mut Raw, task_tag: u32) -> bool {
    let answers = raw.answers();
    let [answer] = &answers[..] else { panic!("{} answers", answers.len()) };
    let response = ScsiResponse::read(&raw.line.header_of(answer));
    (response.task_tag, response.status, answer.len()) == (task_tag, 0, 12 + 48)
}

/// Its memory is all of the command's data: what came with the command is not read again, and the rest from where it is.
#[test]
fn data_is_written_and_read_where_it_stands_in_the_memory_of_the_command() {
    for immediate in [0, 512] {
        let mut raw = logged_in();
        let data: Vec<u8> = (0..8192).map(|at| (at / 7) as u8).collect();
        let stag = raw.line.rdma.register(Registration::of_slices(data.clone().into()).with_invalidation()).unwrap();
        let control = opened(None, Some(window(stag)));
        raw.say(message_as(FORM, control, of_blocks(1, 16, false).write(), &data[..immediate]));
        assert!(is_good(&mut raw, 1), "{immediate}");
        assert!(raw.host.disk[..8192] == data[..], "{immediate}");
        let registration = Registration::of_frame(vec![0; 8192].into()).with_invalidation();
        let stag = raw.line.rdma.register(registration).unwrap();
        raw.say(message_as(FORM, opened(Some(window(stag)), None), of_blocks(2, 16, true).write(), &[]));
        assert!(is_good(&mut raw, 2), "{immediate}");
        let Some(Memory::Frame(frame)) = raw.line.rdma.deregister(stag) else { panic!("a frame") };
        assert!(frame[..] == data[..], "{immediate}");
        assert_eq!(raw.host.memory.free_bytes(), MEMORY_BYTES);
    }
}

#[test]
fn greetings_and_pings_are_answered_in_its_own_form() {
    let mut raw = logged_in();
    raw.say(IserHeader::Hello { versions: (1, 1), ird: 7 }.write_short().to_vec());
    let reply = raw.answers().pop().expect("a reply");
    let expected = IserHeader::HelloReply { is_rejected: false, versions: (1, 1), ord: 7 };
    assert_eq!((reply.len(), IserHeader::read_short(reply.first_chunk().unwrap())), (12, Some(expected)));
    let ping = NopOut {
        is_immediate: true,
        is_final: true,
        task_tag: 77,
        transfer_tag: TAG_NONE,
        command_number: 1,
        ..NopOut::default()
    };
    raw.say(message_as(FORM, IserHeader::PLAIN, ping.write(), b"hello"));
    let pong = raw.answers().pop().expect("a pong");
    assert_eq!(NopIn::read(&raw.line.header_of(&pong)).task_tag, 77);
    assert_eq!(pong[60..], *b"hello");
}

#[test]
fn short_sends_end_the_connection_in_this_form_too() {
    let whole = message_as(FORM, IserHeader::PLAIN, NopOut::default().write(), &[0; 20]);
    for length in [0, 1, 11, 12, 59, 60, 79] {
        let mut raw = logged_in();
        raw.say(whole[..length].to_vec());
        assert!(raw.host.closed.contains(&ID), "{length}");
    }
}
