//! Reads that were not asked for, not allowed, or answered wrongly.

use sanwire_iwarp::wire::{Opcode, ReadRequest, Segment, Stag};
use sanwire_iwarp::{Config, Ended, Event, Fault, WorkId};

use super::{Victim, fpdu, tagged, ulpdu, untagged, write};
use crate::world::{bytes, frame};

fn read_request(request: ReadRequest, sequence: u32) -> Vec<u8> {
    fpdu(&ulpdu(untagged(Opcode::ReadRequest, sequence, 0), &request.write()))
}

/// CVE-2026-64268 and its like: answers to reads that were not asked for, or longer than what was.
#[test]
fn read_responses_that_are_unasked_too_long_too_short_or_elsewhere_end_the_stream() {
    let respond = |sink: Stag, offset, is_last| Segment { is_last, ..tagged(Opcode::ReadResponse, sink, offset) };
    let victim = Victim::new();
    let sink = victim.sink;
    victim.expect(respond(sink, 1000, true), &[1; 10], Fault::Opcode);
    Victim::new().expect(respond(sink, 1000, true), &[], Fault::Opcode);
    let asked = || {
        let mut victim = Victim::new();
        victim.end.connection.read(WorkId(1), frame(50), 10..40, Stag(77), 5).unwrap();
        victim.end.drain();
        let sent: Vec<u8> = victim.end.on_the_way.drain(..).collect();
        let request = ReadRequest::read(sent[20..48].try_into().unwrap());
        assert_eq!((request.length_bytes, request.source, request.source_offset), (30, Stag(77), 5));
        (victim, request.sink)
    };
    for (offset, length, is_last, fault) in [
        (0, 31, true, Fault::Bounds),
        (0, 31, false, Fault::Bounds),
        (0, 29, true, Fault::Bounds),
        (0, 30, false, Fault::Bounds),
        (1, 29, true, Fault::Bounds),
        (u64::MAX, 1, false, Fault::Bounds),
    ] {
        let (victim, sink) = asked();
        victim.expect_with_read(respond(sink, offset, is_last), &bytes(1, length), fault);
    }
    let (victim, sink) = asked();
    victim.expect_with_read(respond(Stag(sink.0 ^ 1), 0, true), &[1; 30], Fault::Stag);
    // The key of a read is none for a Write.
    let (victim, sink) = asked();
    victim.expect_with_read(write(sink, 0), &[1; 30], Fault::Stag);
    let (mut victim, sink) = asked();
    assert_eq!(victim.take(&fpdu(&ulpdu(respond(sink, 0, false), &[1; 10]))), None);
    assert_eq!(victim.take(&fpdu(&ulpdu(respond(sink, 10, true), &[2; 20]))), None);
    let (_, read) = victim.end.told.reads.pop_front().unwrap();
    assert_eq!(read[..], [vec![0; 10], vec![1; 10], vec![2; 20], vec![0; 10]].concat());
    victim.expect(respond(sink, 30, true), &[3; 1], Fault::Opcode);
}

impl Victim {
    fn expect_with_read(mut self, segment: Segment, payload: &[u8], fault: Fault) {
        assert_eq!(self.take(&fpdu(&ulpdu(segment, payload))), Some(Ended::ByUs(fault)), "{segment:?}");
        assert_eq!(self.terminate().code, fault.code());
        let reads = self.end.connection.reclaim().reads;
        assert_eq!((reads.len(), reads[0].0, &reads[0].1[..]), (1, WorkId(1), &[0; 50][..]), "nothing is placed");
    }
}

#[test]
fn reads_of_memory_that_is_not_to_be_read_are_refused_with_their_header() {
    let sample = Victim::new();
    let (sink, source) = (sample.sink, sample.source);
    let request = |source, source_offset, length_bytes| ReadRequest {
        sink: Stag(9),
        sink_offset: 0,
        length_bytes,
        source,
        source_offset,
    };
    for (asked, fault) in [
        (request(Stag(source.0 ^ 1), 1000, 10), Fault::ReadStag),
        (request(sink, 1000, 10), Fault::Access),
        (request(source, 999, 10), Fault::ReadBounds),
        (request(source, 1000, 101), Fault::ReadBounds),
        (request(source, 1000, u32::MAX), Fault::ReadBounds),
        (request(source, u64::MAX - 1, 10), Fault::ReadWrap),
        (ReadRequest { sink_offset: u64::MAX - 5, ..request(source, 1000, 10) }, Fault::ReadWrap),
    ] {
        let mut victim = Victim::new();
        assert_eq!(victim.take(&read_request(asked, 1)), Some(Ended::ByUs(fault)), "{asked:?}");
        let told = victim.terminate();
        assert_eq!((told.code, told.segment_bytes, told.headers.len()), (fault.code(), Some(46), 46));
        assert_eq!(told.headers[18..], asked.write());
        victim.end();
    }
}

#[test]
fn read_requests_of_another_form_end_the_stream() {
    let segment = untagged(Opcode::ReadRequest, 1, 0);
    for (length, fault) in [(0, Fault::Operation), (27, Fault::Operation), (29, Fault::TooLong)] {
        Victim::new().expect(segment, &bytes(0, length), fault);
    }
    Victim::new().expect(Segment { is_last: false, ..segment }, &[0; 28], Fault::TooLong);
    Victim::new().expect(untagged(Opcode::ReadRequest, 1, 4), &[0; 28], Fault::Offset);
    Victim::new().expect(untagged(Opcode::ReadRequest, 2, 0), &[0; 28], Fault::Sequence);
}

/// An initiator that agreed on one read at a time and asks for more.
#[test]
fn more_reads_at_a_time_than_agreed_on_end_the_stream_and_take_no_memory() {
    for ird in [0, 1, 5] {
        let mut victim = Victim::of(Config { ird, ..Config::default() });
        let request = ReadRequest {
            sink: Stag(9),
            sink_offset: 0,
            length_bytes: 100,
            source: victim.source,
            source_offset: 1000,
        };
        // Nothing is drained: the answers wait.
        for sequence in 1..=u32::from(ird) {
            victim.end.connection.take(&read_request(request, sequence));
        }
        assert!(victim.end.connection.poll_event().is_none());
        victim.end.connection.take(&read_request(request, u32::from(ird) + 1));
        let event = victim.end.connection.poll_event();
        assert!(matches!(event, Some(Event::Terminated(Ended::ByUs(Fault::NoBuffer)))), "{event:?}");
    }
}

#[test]
fn a_window_that_ends_while_it_is_read_is_not_read_any_further() {
    let mut victim = Victim::of(Config { segment_bytes: 128, ..Config::default() });
    let request =
        ReadRequest { sink: Stag(9), sink_offset: 0, length_bytes: 100, source: victim.source, source_offset: 1000 };
    victim.end.connection.take(&read_request(request, 1));
    let request = ReadRequest { source_offset: 1001, length_bytes: 99, ..request };
    victim.end.connection.take(&read_request(request, 2));
    while victim.end.connection.poll_event().is_some() {}
    let first = victim.end.connection.poll_transmit().unwrap();
    assert_eq!(first.payload.as_ref().unwrap()[..], victim.beside[100..100 + first.payload.as_ref().unwrap().len()]);
    assert!(victim.end.connection.deregister(victim.source).is_some());
    victim.end.drain();
    assert_eq!(victim.end.told.terminated, Some(Ended::ByUs(Fault::ReadStag)));
    assert_eq!(victim.terminate().code, (0, 1, 0));
}
