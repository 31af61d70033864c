//! A Terminate message in every state of a stream, at both ends: it is told once, is not answered, and everything comes back.

use sanwire_iwarp::wire::{Opcode, ReadRequest, Segment, Stag, Terminate};
use sanwire_iwarp::{Closed, Config, Connection, Ended, Fault, Reclaimed, WorkId};

use super::{Victim, fpdu, ulpdu, untagged};
use crate::world::{End, World, frame};

const BY_PEER: Option<Ended> = Some(Ended::ByPeer(Some(Fault::Stag)));
const NO_BEGINNING: Option<Ended> = Some(Ended::ByUs(Fault::Startup));

fn terminate() -> Vec<u8> {
    let told = Terminate { code: Fault::Stag.code(), segment_bytes: None, headers: Vec::new() };
    fpdu(&ulpdu(untagged(Opcode::Terminate, 1, 0), &told.write()))
}

/// It comes at this end, twice at once and once more.
fn expect(end: &mut End, ended: Option<Ended>) -> Reclaimed {
    end.on_the_way.clear();
    let receives = end.connection.receives_posted();
    end.connection.take(&[terminate(), terminate()].concat());
    end.drain();
    end.connection.take(&terminate());
    end.drain();
    assert_eq!((end.told.terminated, end.told.closed), (ended, Some(Closed::Terminated)));
    assert!(end.connection.is_closed() && end.on_the_way.is_empty(), "it is not answered");
    let reclaimed = end.connection.reclaim();
    assert_eq!(reclaimed.receives.len(), receives);
    reclaimed
}

#[test]
fn a_terminate_is_no_beginning_of_a_stream() {
    let mut listening = End::new(Connection::responder(Config::default()).unwrap());
    let mut requesting = End::new(Connection::initiator(Config::default(), b"").unwrap());
    requesting.drain();
    for end in [&mut listening, &mut requesting] {
        end.post(3, 10);
        expect(end, NO_BEGINNING);
    }
    let mut world = World::new(Config::default(), Config::default());
    world.run();
    assert!(world.responder.told.request.is_some(), "its owner decides");
    world.responder.post(3, 10);
    expect(&mut world.responder, NO_BEGINNING);
}

#[test]
fn a_terminate_ends_a_stream_whatever_its_ends_are_doing() {
    for is_initiator in [true, false] {
        let of_one = |begin: fn(&mut End)| {
            let mut world = World::plain();
            let end = if is_initiator { &mut world.initiator } else { &mut world.responder };
            begin(end);
            expect(end, BY_PEER)
        };
        of_one(|_| {});
        of_one(|end| end.send(b"it waits"));
        of_one(|end| {
            end.send(b"it is sent");
            end.drain();
        });
        let reading = of_one(|end| {
            end.read(1, 5, Stag(1), 0);
            end.drain();
        });
        assert_eq!(reading.reads.len(), 1);
        let asking = of_one(|end| end.read(1, 5, Stag(1), 0));
        assert_eq!(asking.reads.len(), 1);
        of_one(|end| {
            let first = Segment { is_last: false, ..untagged(Opcode::Send, 1, 0) };
            end.connection.take(&fpdu(&ulpdu(first, &[1; 100])));
        });
        let answering = of_one(|end| {
            let source = end.source(vec![7; 200_000]);
            let request =
                ReadRequest { sink: Stag(9), sink_offset: 0, length_bytes: 200_000, source, source_offset: 0 };
            end.connection.take(&fpdu(&ulpdu(untagged(Opcode::ReadRequest, 1, 0), &request.write())));
        });
        assert_eq!(answering.registrations.len(), 1);
    }
}

#[test]
fn a_terminate_is_not_looked_at_by_an_end_that_is_leaving() {
    let mut world = World::plain();
    let end = &mut world.initiator;
    end.send(b"the last word");
    end.connection.disconnect();
    end.connection.take(&terminate());
    end.drain();
    assert_eq!((end.told.terminated, end.told.closed), (None, Some(Closed::ByUs)));
    assert!(!end.on_the_way.is_empty(), "what was ordered is sent");
    // The other end broke a rule, and is to be told of that.
    let mut victim = Victim::new();
    victim.end.connection.read(WorkId(1), frame(5), 0..5, Stag(1), 0).unwrap();
    victim.end.connection.take(&fpdu(&[0x41]));
    assert_eq!(victim.take(&terminate()), Some(Ended::ByUs(Fault::Length)));
    assert_eq!(victim.terminate().code, Fault::Length.code());
    victim.end();
}
