//! Memory that is not for the peer, or not any more.

use sanwire_iwarp::wire::{Opcode, Segment, Stag, Target};
use sanwire_iwarp::{Config, Ended, Fault, Memory, Registration};

use super::{Victim, fpdu, ulpdu, untagged, write};
use crate::world::{World, bytes, frame};

fn invalidating(segment: Segment, invalidate: Stag) -> Segment {
    let Target::Untagged { queue, sequence, offset, .. } = segment.target else { unreachable!() };
    Segment { target: Target::Untagged { invalidate, queue, sequence, offset }, ..segment }
}

#[test]
fn writes_to_foreign_revoked_read_only_and_out_of_range_memory_reach_nothing() {
    let other = Victim::new();
    let victim = Victim::new();
    let stranger = Stag(victim.sink.0 ^ 0x100);
    victim.expect(write(stranger, 1000), &[1; 4], Fault::Stag);
    let mut revoked = Victim::new();
    let stag = revoked.end.sink(50);
    assert!(revoked.end.connection.deregister(stag).is_some());
    revoked.expect(write(stag, 0), &[1; 4], Fault::Stag);
    let victim = Victim::new();
    let source = victim.source;
    victim.expect(write(source, 1000), &[1; 4], Fault::Access);
    let sink = other.sink;
    let cases = [(999, 4, Fault::Bounds), (1097, 4, Fault::Bounds), (1000, 101, Fault::Bounds), (0, 4, Fault::Bounds)];
    for (offset, length, fault) in cases.into_iter().chain([(u64::MAX - 1, 4, Fault::Wrap)]) {
        Victim::new().expect(write(sink, offset), &bytes(1, length), fault);
    }
}

#[test]
fn a_key_of_another_connection_is_none() {
    let mut one = World::connected(Config::default(), Config::default());
    let stag = one.initiator.sink(100);
    // The responder's end has another seed, as each connection has.
    let victim = Victim::new();
    victim.expect(write(stag, 0), &[1; 4], Fault::Stag);
}

#[test]
fn writes_of_no_bytes_need_no_key() {
    let mut victim = Victim::new();
    assert_eq!(victim.take(&fpdu(&ulpdu(write(Stag(1), u64::MAX), &[]))), None);
}

#[test]
fn a_window_that_ends_while_it_is_written_is_not_written_any_further() {
    let mut victim = Victim::new();
    let stag = victim.end.sink(60_000);
    let whole = fpdu(&ulpdu(write(stag, 0), &[9; 60_000]));
    let mut first = whole[..30_000].iter().copied().collect();
    while victim.end.receive(&mut first, usize::MAX) > 0 {}
    let Some(Memory::Frame(contents)) = victim.end.connection.deregister(stag) else { panic!("a frame") };
    assert!(contents[..29_000] == [9; 29_000] && contents[30_000..] == [0; 30_000]);
    assert_eq!(victim.take(&whole[30_000..]), Some(Ended::ByUs(Fault::Stag)));
    assert!(contents[30_000..] == [0; 30_000]);
}

#[test]
fn invalidation_of_a_key_that_the_peer_may_not_end_ends_the_stream_and_not_the_key() {
    for opcode in [Opcode::SendInvalidate, Opcode::SendSolicitedInvalidate] {
        let victim = Victim::new();
        let sink = victim.sink;
        victim.expect_message(invalidating(untagged(opcode, 2, 0), sink), Fault::Invalidation);
        Victim::new().expect_message(invalidating(untagged(opcode, 2, 0), Stag(0)), Fault::ReadStag);
        let mut victim = Victim::new();
        let mut own = || victim.end.connection.register(Registration::of_frame(frame(9)).with_invalidation()).unwrap();
        let (one, another) = (own(), own());
        assert_eq!(victim.take(&fpdu(&ulpdu(invalidating(untagged(opcode, 2, 0), one), b"x"))), None);
        assert_eq!(victim.end.told.messages.pop_front().unwrap().invalidated, Some(one));
        // It ended one, and no other; ending it again is wrong.
        assert_eq!(victim.take(&fpdu(&ulpdu(write(another, 0), &[1; 9]))), None);
        let ended = victim.take(&fpdu(&ulpdu(invalidating(untagged(opcode, 3, 0), one), b"x")));
        assert_eq!(ended, Some(Ended::ByUs(Fault::ReadStag)));
    }
}

impl Victim {
    fn expect_message(mut self, segment: Segment, fault: Fault) {
        assert_eq!(self.take(&fpdu(&ulpdu(segment, b"x"))), Some(Ended::ByUs(fault)), "{segment:?}");
        assert_eq!(self.terminate().code, fault.code());
        assert!(self.end.told.messages.is_empty(), "nobody hears of the message");
        self.end();
    }
}
