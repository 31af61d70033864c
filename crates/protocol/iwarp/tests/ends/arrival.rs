//! FPDUs that arrive in parts, in between others, or without a CRC.

use std::collections::VecDeque;

use sanwire_iwarp::wire::{Opcode, ReadRequest, Segment, Stag};
use sanwire_iwarp::{Config, Ended, Fault, WorkId};

use crate::hostile::{fpdu, tagged, ulpdu, untagged};
use crate::world::{End, World, bytes, frame};

/// A responder, which is tried by the test from now on.
fn victim(config: Config) -> End {
    let mut world = World::connected(config.clone(), config);
    world.initiator.send(b"hello");
    world.run();
    assert_eq!(world.responder.message().unwrap(), b"hello");
    world.responder
}

/// The first part arrives, then the second.
fn in_two(end: &mut End, whole: &[u8], cut: usize) {
    for part in [&whole[..cut], &whole[cut..]] {
        let mut part: VecDeque<u8> = part.iter().copied().collect();
        while end.receive(&mut part, usize::MAX) > 0 {
            end.drain();
        }
    }
}

#[test]
fn a_wrong_crc_is_found_wherever_an_fpdu_is_cut() {
    for length in [40, 9000] {
        let mut sample = victim(Config::default());
        let stag = sample.sink(length);
        let whole = fpdu(&ulpdu(tagged(Opcode::Write, stag, 0), &bytes(1, length)));
        for cut in (1..whole.len()).step_by(length / 20) {
            for wrong in [None, Some(16), Some(whole.len() / 2), Some(whole.len() - 1)] {
                let mut end = victim(Config::default());
                let stag = end.sink(length);
                let mut whole = fpdu(&ulpdu(tagged(Opcode::Write, stag, 0), &bytes(1, length)));
                wrong.iter().for_each(|at| whole[*at] ^= 4);
                in_two(&mut end, &whole, cut);
                assert_eq!(end.told.terminated, wrong.map(|_| Ended::ByUs(Fault::Crc)), "{length} {cut} {wrong:?}");
            }
        }
    }
}

#[test]
fn a_message_with_a_wrong_crc_is_told_to_nobody() {
    let mut whole = fpdu(&ulpdu(untagged(Opcode::Send, 2, 0), &bytes(1, 4000)));
    *whole.last_mut().unwrap() ^= 1;
    for cut in [1, 19, 20, 21, 100, 3999, whole.len() - 1] {
        let mut end = victim(Config::default());
        in_two(&mut end, &whole, cut);
        assert_eq!((end.told.terminated, end.told.messages.len()), (Some(Ended::ByUs(Fault::Crc)), 0));
        assert_eq!(end.connection.reclaim().receives.len(), 7);
    }
}

/// What is wrong with a header counts only if it is what was sent.
#[test]
fn a_damaged_header_is_a_wrong_crc_and_not_an_offence() {
    let whole = fpdu(&ulpdu(tagged(Opcode::Write, Stag(1), 0), &bytes(1, 5000)));
    for is_damaged in [false, true] {
        let fault = if is_damaged { Fault::Crc } else { Fault::Stag };
        let mut whole = whole.clone();
        if is_damaged {
            whole[5] ^= 1;
        }
        for cut in [17, 1000, whole.len() - 1] {
            let mut end = victim(Config::default());
            in_two(&mut end, &whole, cut);
            assert_eq!(end.told.terminated, Some(Ended::ByUs(fault)));
        }
    }
}

/// RFC 5044 4.4: the field is there, and says nothing.
#[test]
fn without_crcs_whatever_stands_in_their_place_is_taken() {
    let mut end = victim(Config { crc: false, ..Config::default() });
    let mut whole = fpdu(&ulpdu(untagged(Opcode::Send, 2, 0), b"unchecked"));
    whole.iter_mut().rev().take(4).for_each(|byte| *byte = 0x5a);
    in_two(&mut end, &whole, 9);
    assert_eq!(end.message().unwrap(), b"unchecked");
    end.connection.take(&whole[..2]);
    end.send(b"x");
    end.drain();
    let sent: Vec<u8> = end.on_the_way.drain(..).collect();
    assert_eq!(sent[sent.len() - 4..], [0; 4], "and is sent as zeroes");
}

#[test]
fn segments_into_memory_may_come_between_those_of_a_message() {
    let mut end = victim(Config::default());
    let stag = end.sink(100);
    let first = Segment { is_last: false, ..untagged(Opcode::SendSolicited, 2, 0) };
    end.connection.take(&fpdu(&ulpdu(first, b"first ")));
    end.connection.take(&fpdu(&ulpdu(tagged(Opcode::Write, stag, 5), b"between")));
    end.connection.take(&fpdu(&ulpdu(untagged(Opcode::SendSolicited, 2, 6), b"second")));
    end.drain();
    let message = end.told.messages.pop_front().unwrap();
    assert_eq!((&message.buffer[..], message.is_solicited), (&b"first second"[..], true));
    assert_eq!(end.contents(stag)[5..12], *b"between");
}

/// RFC 5040 5.5: reads are answered in their order.
#[test]
fn answers_out_of_their_order_end_the_stream() {
    let mut end = victim(Config::default());
    for id in 0..2 {
        end.connection.read(WorkId(id), frame(10), 0..10, Stag(7), 0).unwrap();
    }
    end.drain();
    let sent: Vec<u8> = end.on_the_way.drain(..).collect();
    let second = ReadRequest::read(sent[52 + 20..52 + 48].try_into().unwrap());
    end.connection.take(&fpdu(&ulpdu(tagged(Opcode::ReadResponse, second.sink, 0), &[1; 10])));
    end.drain();
    assert_eq!((end.told.terminated, end.told.reads.len()), (Some(Ended::ByUs(Fault::Stag)), 0));
    assert_eq!(end.connection.reclaim().reads.len(), 2);
}

#[test]
fn a_short_message_in_several_segments_keeps_no_room_for_a_long_one() {
    let mut end = victim(Config::default());
    end.connection.expect_messages(1, 4096);
    // Into the buffers that are posted.
    (2..9).for_each(|sequence| end.connection.take(&fpdu(&ulpdu(untagged(Opcode::Send, sequence, 0), b"posted"))));
    let first = Segment { is_last: false, ..untagged(Opcode::Send, 9, 0) };
    end.connection.take(&fpdu(&ulpdu(first, b"in ")));
    end.connection.take(&fpdu(&ulpdu(untagged(Opcode::Send, 9, 3), b"parts")));
    end.drain();
    let capacities: Vec<usize> = end.told.messages.iter().map(|message| message.buffer.capacity()).collect();
    assert_eq!(capacities, [vec![4096; 7], vec![8]].concat());
    assert_eq!(end.told.messages.pop_back().unwrap().buffer[..], b"in parts"[..]);
}

#[test]
fn what_has_arrived_stays_when_more_is_received_at_once() {
    let mut end = victim(Config { staging_bytes: 1024, ..Config::default() });
    let whole = fpdu(&ulpdu(untagged(Opcode::Send, 2, 0), &bytes(1, 700)));
    // The first part ends within a header, which is looked at as a whole.
    for (part, at_least) in [(&whole[..10], 1024), (&whole[10..], 60_000)] {
        end.connection.widen(at_least);
        let room: usize = end.connection.spaces().iter().map(|space| space.len()).sum();
        assert!(room + 10 >= at_least, "{room}");
        end.connection.take(part);
    }
    end.drain();
    assert_eq!(end.message().unwrap(), bytes(1, 700));
}
