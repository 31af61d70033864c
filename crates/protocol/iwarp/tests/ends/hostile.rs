//! Peers that keep no rule: every wrong segment ends its stream by the Terminate message that the RFCs have for it, reaches no
//! memory that was not advertised, and nothing else.

mod memory;
mod reads;
mod terminate;

use sanwire_iwarp::wire::{
    DDP_VERSION, Opcode, RDMAP_VERSION, Segment, Stag, Target, Terminate, fpdu_bytes, padding_bytes,
};
use sanwire_iwarp::{Closed, Config, Ended, Fault, Memory, Registration, Rights, WorkId};

use crate::world::{End, World, bytes, frame};

/// A ULPDU as FPDU.
pub fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut bytes = (ulpdu.len() as u16).to_be_bytes().to_vec();
    bytes.extend_from_slice(ulpdu);
    bytes.extend_from_slice(&[0; 3][..padding_bytes(ulpdu.len())]);
    let crc = crc_fast::crc32_iscsi(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    assert_eq!(bytes.len(), fpdu_bytes(ulpdu.len()));
    bytes
}

pub fn tagged(opcode: Opcode, stag: Stag, offset: u64) -> Segment {
    let target = Target::Tagged { stag, offset };
    Segment { is_last: true, ddp_version: DDP_VERSION, rdmap_version: RDMAP_VERSION, opcode: opcode as u8, target }
}

pub fn untagged(opcode: Opcode, sequence: u32, offset: u32) -> Segment {
    let queue = opcode.queue().map_or(0, |queue| queue as u32);
    let target = Target::Untagged { invalidate: Stag(0), queue, sequence, offset };
    Segment { target, ..tagged(opcode, Stag(0), 0) }
}

pub fn with_queue(segment: Segment, queue: u32) -> Segment {
    let Target::Untagged { invalidate, sequence, offset, .. } = segment.target else { unreachable!() };
    Segment { target: Target::Untagged { invalidate, queue, sequence, offset }, ..segment }
}

pub fn ulpdu(segment: Segment, payload: &[u8]) -> Vec<u8> {
    let mut head = sanwire_buffer::Head::new();
    segment.write(&mut head);
    [&head, payload].concat()
}

fn write(stag: Stag, offset: u64) -> Segment {
    tagged(Opcode::Write, stag, offset)
}

/// A responder in the middle of its work, whose peer is the test from now on.
struct Victim {
    end: End,
    /// Where the peer may write, 100 bytes from 1000 on.
    sink: Stag,
    /// What it may read, as many.
    source: Stag,
    /// What is not for the peer, beside both.
    beside: Vec<u8>,
}

impl Victim {
    fn new() -> Self {
        Victim::of(Config::default())
    }

    fn of(config: Config) -> Self {
        let mut world = World::connected(Config::default(), config);
        world.initiator.send(b"hello");
        world.run();
        assert_eq!(world.responder.message().unwrap(), b"hello");
        let mut end = world.responder;
        let beside = bytes(0x55, 300);
        let window = |memory, remote_write| {
            let rights = Rights { remote_write, remote_read: !remote_write, remote_invalidate: false };
            Registration { memory, range: 100..200, base: 1000, rights }
        };
        let sink = end.connection.register(window(Memory::Frame(beside.clone().into()), true)).unwrap();
        let source = end.connection.register(window(Memory::Slices(beside.clone().into()), false)).unwrap();
        Victim { end, sink, source, beside }
    }

    /// The peer sends this.
    fn take(&mut self, bytes: &[u8]) -> Option<Ended> {
        self.end.connection.take(bytes);
        self.end.drain();
        self.end.told.terminated
    }

    /// The peer sends this segment, and the stream ends by this fault, of which the peer is told with the segment's header. Memory
    /// that is not for the peer is as it was, and everything is given back.
    fn expect(mut self, segment: Segment, payload: &[u8], fault: Fault) {
        let whole = ulpdu(segment, payload);
        assert_eq!(self.take(&fpdu(&whole)), Some(Ended::ByUs(fault)), "{segment:?}");
        let told = self.terminate();
        assert_eq!(told.code, fault.code());
        if fault.code().0 < 2 {
            assert_eq!(told.segment_bytes, Some(whole.len() as u16));
            assert_eq!(told.headers[..segment.length_bytes()], whole[..segment.length_bytes()]);
        }
        self.end();
    }

    /// The Terminate message that is all that was sent.
    fn terminate(&mut self) -> Terminate {
        let sent: Vec<u8> = self.end.on_the_way.drain(..).collect();
        let length = usize::from(u16::from_be_bytes([sent[0], sent[1]]));
        assert_eq!(sent.len(), fpdu_bytes(length), "one FPDU");
        assert_eq!(sent, fpdu(&sent[2..2 + length]), "and a right one");
        let segment = Segment::read(&sent[2..]).unwrap();
        assert_eq!(segment, untagged(Opcode::Terminate, 1, 0));
        Terminate::read(&sent[20..2 + length]).unwrap()
    }

    fn end(mut self) {
        assert_eq!(self.end.told.closed, Some(Closed::Terminated));
        // Whatever follows is not looked at.
        self.take(&fpdu(&ulpdu(tagged(Opcode::Write, self.sink, 1000), &[1; 10])));
        let reclaimed = self.end.connection.reclaim();
        assert_eq!((reclaimed.receives.len(), reclaimed.registrations.len()), (7, 2));
        for (stag, memory) in reclaimed.registrations {
            let contents = match memory {
                Memory::Frame(frame) => frame.to_vec(),
                Memory::Slices(slices) => slices.to_vec(),
            };
            assert_eq!((&contents[..100], &contents[200..]), (&self.beside[..100], &self.beside[200..]));
            assert!(stag == self.sink || contents == self.beside);
        }
    }
}

/// CVE class of siw: lengths below that of a header.
#[test]
fn fpdu_lengths_from_0_to_the_shortest_header_end_the_stream() {
    for length in 0..18 {
        for first in [0x41, 0xc1] {
            let mut victim = Victim::new();
            let mut bytes = vec![0; length];
            if let Some(place) = bytes.first_mut() {
                *place = first;
            }
            let is_possible = first == 0xc1 && length >= 14;
            let ended = victim.take(&fpdu(&bytes));
            if is_possible {
                assert!(ended.is_some_and(|ended| ended != Ended::ByUs(Fault::Length)));
                continue;
            }
            assert_eq!(ended, Some(Ended::ByUs(Fault::Length)), "{length}");
            let told = victim.terminate();
            assert_eq!((told.code, told.segment_bytes, told.headers.len()), ((2, 0, 3), None, 0));
            victim.end();
        }
    }
}

#[test]
fn an_fpdu_of_65535_bytes_is_taken_where_it_fits_and_refused_where_not() {
    let mut victim = Victim::new();
    let payload = bytes(1, 65_535 - 14);
    let stag = victim.end.sink(payload.len());
    assert_eq!(victim.take(&fpdu(&ulpdu(write(stag, 0), &payload))), None);
    assert_eq!(victim.end.contents(stag), payload);
    let sink = victim.sink;
    victim.expect(write(sink, 1000), &payload, Fault::Bounds);
    Victim::new().expect(untagged(Opcode::Send, 2, 0), &bytes(1, 65_535 - 18), Fault::TooLong);
}

#[test]
fn a_wrong_crc_ends_the_stream_wherever_the_wrong_bit_is() {
    let victim = Victim::new();
    let good = fpdu(&ulpdu(write(victim.sink, 1000), &[7; 33]));
    for bit in 16..good.len() * 8 {
        let mut victim = Victim::new();
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(victim.take(&bad), Some(Ended::ByUs(Fault::Crc)), "bit {bit}");
        assert_eq!(victim.terminate().code, (2, 0, 2));
        let reclaimed = victim.end.connection.reclaim();
        let contents = reclaimed.registrations.into_iter().find(|(stag, _)| *stag == victim.sink).unwrap().1;
        let Memory::Frame(contents) = contents else { panic!("a frame") };
        assert_eq!(contents[..], victim.beside[..], "nothing of an FPDU that came as a whole is placed");
    }
}

#[test]
fn versions_operations_and_queues_that_do_not_exist_end_the_stream() {
    let sink = Victim::new().sink;
    let good = [write(sink, 1000), untagged(Opcode::Send, 2, 0)];
    for version in [0, 2, 3] {
        let faults = [Fault::TaggedVersion, Fault::UntaggedVersion];
        for (segment, fault) in good.into_iter().zip(faults) {
            Victim::new().expect(Segment { ddp_version: version, ..segment }, &[1], fault);
            Victim::new().expect(Segment { rdmap_version: version, ..segment }, &[1], Fault::RdmapVersion);
        }
    }
    for segment in good {
        (8..16).for_each(|opcode| Victim::new().expect(Segment { opcode, ..segment }, &[1], Fault::Opcode));
    }
    for opcode in [1, 3, 4, 5, 6, 7] {
        Victim::new().expect(Segment { opcode, ..good[0] }, &[1], Fault::Opcode);
    }
    for opcode in [0, 1, 2, 7] {
        Victim::new().expect(Segment { opcode, ..good[1] }, &[1], Fault::Opcode);
    }
    Victim::new().expect(with_queue(good[1], 1), &[1], Fault::Opcode);
    for queue in [3, 4, u32::MAX] {
        Victim::new().expect(with_queue(good[1], queue), &[1], Fault::Queue);
    }
}

#[test]
fn messages_out_of_turn_end_the_stream() {
    for sequence in [0, 1, 3, u32::MAX] {
        Victim::new().expect(untagged(Opcode::Send, sequence, 0), b"x", Fault::Sequence);
    }
    for offset in [1, 4096, u32::MAX] {
        Victim::new().expect(untagged(Opcode::Send, 2, offset), b"x", Fault::Offset);
    }
    let begun = |victim: &mut Victim| {
        let first = Segment { is_last: false, ..untagged(Opcode::Send, 2, 0) };
        assert_eq!(victim.take(&fpdu(&ulpdu(first, &[1; 100]))), None);
    };
    for (opcode, offset, fault) in [
        (Opcode::Send, 0, Fault::Offset),
        (Opcode::Send, 99, Fault::Offset),
        (Opcode::Send, 101, Fault::Offset),
        (Opcode::SendSolicited, 100, Fault::Opcode),
    ] {
        let mut victim = Victim::new();
        begun(&mut victim);
        victim.expect(untagged(opcode, 2, offset), b"x", fault);
    }
    let mut victim = Victim::new();
    begun(&mut victim);
    victim.expect(untagged(Opcode::Send, 3, 0), b"x", Fault::Sequence);
    let mut victim = Victim::new();
    begun(&mut victim);
    victim.expect(untagged(Opcode::Send, 2, 100), &[1; 3997], Fault::TooLong);
}

#[test]
fn a_message_that_exceeds_the_credits_ends_the_stream() {
    let mut victim = Victim::new();
    for sequence in 2..9 {
        assert_eq!(victim.take(&fpdu(&ulpdu(untagged(Opcode::Send, sequence, 0), b"x"))), None);
    }
    assert_eq!(victim.end.told.messages.len(), 7);
    let ended = victim.take(&fpdu(&ulpdu(untagged(Opcode::Send, 9, 0), b"x")));
    assert_eq!((ended, victim.terminate().code), (Some(Ended::ByUs(Fault::NoBuffer)), (1, 2, 2)));
}

#[test]
fn a_terminate_is_heard_in_every_state_of_the_stream() {
    let terminate = |code, length: usize| {
        let told = Terminate { code, segment_bytes: Some(7), headers: vec![0x41; 46] }.write();
        fpdu(&ulpdu(untagged(Opcode::Terminate, 1, 0), &told[..length]))
    };
    let mut quiet = Victim::new();
    assert_eq!(quiet.take(&terminate((1, 1, 0), 52)), Some(Ended::ByPeer(Some(Fault::Stag))));
    assert_eq!(quiet.end.on_the_way.len(), 0, "no answer to it");
    quiet.end();
    let mut within = Victim::new();
    let first = Segment { is_last: false, ..untagged(Opcode::Send, 2, 0) };
    within.take(&fpdu(&ulpdu(first, &[1; 100])));
    assert_eq!(within.take(&terminate((2, 0, 2), 4)), Some(Ended::ByPeer(Some(Fault::Crc))));
    let mut reading = Victim::new();
    reading.end.connection.read(WorkId(1), frame(5), 0..5, Stag(1), 0).unwrap();
    reading.end.drain();
    assert_eq!(reading.take(&terminate((0, 1, 0), 4)), Some(Ended::ByPeer(Some(Fault::ReadStag))));
    assert_eq!(reading.end.connection.reclaim().reads.len(), 1);
    for (code, length) in [((9, 9, 9), 4), ((1, 1, 0), 0), ((1, 1, 0), 3)] {
        let mut victim = Victim::new();
        assert_eq!(victim.take(&terminate(code, length)), Some(Ended::ByPeer(None)), "{code:?} {length}");
    }
    let mut longer = Victim::new();
    let told = [vec![0x11, 0, 0xe0, 0], vec![1; 5000]].concat();
    let ended = longer.take(&fpdu(&ulpdu(untagged(Opcode::Terminate, 1, 0), &told)));
    assert_eq!(ended, Some(Ended::ByPeer(Some(Fault::Stag))));
    // As the first word of an initiator.
    let mut world = World::connected(Config::default(), Config::default());
    world.responder.connection.take(&terminate((2, 0, 6), 4));
    world.responder.drain();
    assert_eq!(world.responder.told.terminated, Some(Ended::ByPeer(Some(Fault::Ird))));
}

#[test]
fn a_peer_that_breaks_off_anywhere_leaves_nothing_behind() {
    let sample = Victim::new();
    let whole = fpdu(&ulpdu(write(sample.sink, 1000), &[1; 20]));
    for end_at in 0..whole.len() {
        let mut victim = Victim::new();
        victim.take(&whole[..end_at]);
        victim.end.connection.peer_closed();
        victim.end.drain();
        let closed = if end_at == 0 { Closed::ByPeer } else { Closed::Lost };
        assert_eq!(victim.end.told.closed, Some(closed), "{end_at}");
        let reclaimed = victim.end.connection.reclaim();
        assert_eq!((reclaimed.receives.len(), reclaimed.registrations.len()), (7, 2));
    }
}

#[test]
fn segments_without_end_and_without_bytes_take_no_memory() {
    let mut victim = Victim::new();
    let nothing = fpdu(&ulpdu(Segment { is_last: false, ..untagged(Opcode::Send, 2, 0) }, &[]));
    for _ in 0..10_000 {
        victim.end.connection.take(&nothing);
        assert!(victim.end.connection.poll_event().is_none());
    }
    assert_eq!(victim.take(&fpdu(&ulpdu(untagged(Opcode::Send, 2, 0), b"end"))), None);
    assert_eq!(victim.end.message().unwrap(), b"end");
}
