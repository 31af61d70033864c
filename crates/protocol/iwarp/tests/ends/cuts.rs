//! The same exchange, however the stream is cut, however slowly it is read, and with random work in random order.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use sanwire_iwarp::{Closed, Config, Memory, Refusal, SendKind, Stag, WorkId};

use crate::world::{World, bytes, frame};

/// What is done in the small exchange, and what each end has heard when it is over.
fn exchange(world: &mut World) -> Vec<Vec<u8>> {
    let source = world.initiator.source(bytes(4, 300));
    let sink = world.initiator.sink(200);
    world.initiator.send_as(SendKind::default(), b"command", Some(bytes(5, 60).into()));
    world.run();
    let command = world.responder.message().unwrap();
    world.responder.read(1, 300, source, 0);
    world.responder.write(sink, 20, bytes(6, 150));
    world.responder.send_as(SendKind { solicited: true, invalidate: None }, b"response", None);
    world.run();
    let (id, read) = world.responder.told.reads.pop_front().unwrap();
    assert_eq!(id, WorkId(1));
    let response = world.initiator.message().unwrap();
    let written = world.initiator.contents(sink);
    assert_eq!((world.initiator.told.terminated, world.responder.told.terminated), (None, None));
    vec![command, read.to_vec(), response, written]
}

fn expected() -> Vec<Vec<u8>> {
    let written = [vec![0; 20], bytes(6, 150), vec![0; 30]].concat();
    vec![[b"command".to_vec(), bytes(5, 60)].concat(), bytes(4, 300), b"response".to_vec(), written]
}

/// Whether the CRC is there or not, and with segments that split messages.
fn configs() -> [Config; 3] {
    let plain = Config { crc: false, ..Config::default() };
    [Config::default(), plain, Config { segment_bytes: 128, ..Config::default() }]
}

#[test]
fn an_exchange_is_the_same_in_pieces_of_every_length() {
    for config in configs() {
        for most in 1..=600 {
            let mut world = World::new(config.clone(), config.clone());
            world.most = most;
            world.connect();
            assert_eq!(exchange(&mut world), expected(), "{most}");
        }
    }
}

/// Both directions are cut once, at each of their bytes: before and behind the cut everything arrives at once.
#[test]
fn an_exchange_is_the_same_wherever_the_stream_is_cut() {
    for config in configs() {
        let mut world = World::new(config.clone(), config.clone());
        world.connect();
        assert_eq!(exchange(&mut world), expected());
        let [ours, theirs] =
            [true, false].map(|of| world.sent.iter().filter(|(by, _)| *by == of).map(|(_, sent)| sent.len()).sum());
        for (is_initiator, length) in [(true, ours), (false, theirs)] {
            for cut in 1..length {
                let mut world = World::new(config.clone(), config.clone());
                world.cut = Some((is_initiator, cut));
                world.connect();
                assert_eq!(exchange(&mut world), expected(), "{is_initiator} {cut}");
            }
        }
    }
}

/// At every byte the stream may end. Whatever was given to an end comes back from it.
#[test]
fn a_stream_that_is_lost_anywhere_gives_everything_back() {
    let config = Config { segment_bytes: 128, ..Config::default() };
    let mut whole = World::connected(config.clone(), config.clone());
    whole.sent.clear();
    assert_eq!(exchange(&mut whole), expected());
    let by_initiator: Vec<u8> =
        whole.sent.iter().filter(|(by, _)| *by).flat_map(|(_, sent)| sent.iter().copied()).collect();
    for lost_at in 0..=by_initiator.len() {
        let mut world = World::connected(config.clone(), config.clone());
        let end = &mut world.responder;
        let sink = end.sink(100);
        end.read(1, 300, Stag(3), 0);
        end.drain();
        end.connection.take(&by_initiator[..lost_at]);
        end.drain();
        end.connection.peer_closed();
        end.drain();
        let reclaimed = end.connection.reclaim();
        let read = reclaimed.reads.len() + end.told.reads.len();
        assert_eq!((read, reclaimed.registrations[0].0), (1, sink));
        assert_eq!(reclaimed.receives.len() + end.told.messages.len(), 8);
        assert!(end.connection.is_closed());
    }
}

#[test]
fn long_segments_are_received_in_place_and_short_ones_are_not() {
    let mut world = World::plain();
    let sink = world.responder.sink(1 << 20);
    world.initiator.send(b"begin");
    world.initiator.write(sink, 0, bytes(1, 1 << 20));
    // As much as a socket gives at a time.
    world.most = 50_000;
    world.run();
    let placed = world.responder.connection.placed_bytes();
    assert!(placed > (1 << 20) * 9 / 10, "{placed} bytes without a copy");
    assert!(world.responder.contents(sink) == bytes(1, 1 << 20));
    let mut world = World::connected(Config { segment_bytes: 1460, ..Config::default() }, Config::default());
    let sink = world.responder.sink(100_000);
    world.initiator.write(sink, 0, bytes(1, 100_000));
    world.run();
    assert_eq!(world.responder.connection.placed_bytes(), 0);
    assert_eq!(world.responder.connection.moved_bytes(), 100_000);
    assert!(world.responder.contents(sink) == bytes(1, 100_000));
}

#[test]
fn segments_may_become_shorter_while_a_message_is_sent() {
    let mut world = World::plain();
    let sink = world.responder.sink(200_000);
    world.initiator.write(sink, 0, bytes(1, 200_000));
    let first = world.initiator.connection.poll_transmit().unwrap().to_vec();
    assert_eq!((first.len(), world.initiator.connection.fpdu_max_bytes()), (53_268, 65_544));
    world.initiator.connection.set_segment_bytes(1460);
    assert_eq!(world.initiator.connection.fpdu_max_bytes(), 1460);
    world.initiator.on_the_way.extend(first);
    world.initiator.drain();
    let sent: Vec<u8> = world.initiator.on_the_way.iter().copied().collect();
    let mut rest = &sent[53_268..];
    while let Some(ulpdu) = rest.first_chunk() {
        let whole = sanwire_iwarp::wire::fpdu_bytes(usize::from(u16::from_be_bytes(*ulpdu)));
        assert!(whole <= 1460, "{whole}");
        rest = &rest[whole..];
    }
    world.run();
    assert!(world.responder.contents(sink) == bytes(1, 200_000));
    for (wanted, most) in [(0, 128), (usize::MAX, 65_544)] {
        world.initiator.connection.set_segment_bytes(wanted);
        assert_eq!(world.initiator.connection.fpdu_max_bytes(), most);
    }
}

#[test]
fn who_is_read_slowly_holds_no_more_than_its_queues() {
    let mut world =
        World::connected(Config { orders_max: 10, ..Config::default() }, Config { ird: 4, ..Config::default() });
    let stag = world.responder.sink(1000);
    let order = || sanwire_iwarp::Order::Write { stag, offset: 0, data: vec![1; 1000].into() };
    for _ in 0..10 {
        world.initiator.connection.order(order(), None).unwrap();
    }
    let refused = world.initiator.connection.order(order(), None).unwrap_err();
    assert_eq!(refused.refusal, Refusal::Full);
    for id in 0..10 {
        world.initiator.connection.read(WorkId(id), frame(5), 0..5, Stag(1), 0).unwrap();
    }
    let refused = world.initiator.connection.read(WorkId(10), frame(5), 0..5, Stag(1), 0).unwrap_err();
    assert_eq!((refused.refusal, refused.given.len()), (Refusal::Full, 5));
}

#[test]
fn no_more_reads_are_under_way_than_the_peer_takes_and_all_of_them_are_done() {
    for ird in [1, 3, 7] {
        let mut world = World::connected(Config::default(), Config { ird, ..Config::default() });
        let stag = world.responder.source(bytes(1, 5000));
        for id in 0..20 {
            world.initiator.read(id, 100, stag, id * 100);
        }
        world.initiator.drain();
        let asked = world.initiator.on_the_way.len() / 52;
        assert_eq!(asked, usize::from(ird));
        world.run();
        let done: Vec<_> = world.initiator.told.reads.iter().map(|(id, _)| id.0).collect();
        assert_eq!(done, (0..20).collect::<Vec<_>>());
        for (id, read) in &world.initiator.told.reads {
            let at = id.0 as usize * 100;
            assert_eq!(read[..], bytes(1, 5000)[at..at + 100]);
        }
    }
    let mut world = World::connected(Config::default(), Config { ird: 0, ..Config::default() });
    let refused = world.initiator.connection.read(WorkId(1), frame(5), 0..5, Stag(1), 0).unwrap_err();
    assert_eq!(refused.refusal, Refusal::NoReads);
}

/// RFC 7145 9.3: the owner of the other end says it later than the connection is there.
#[test]
fn who_learns_how_many_reads_its_peer_takes_has_no_more_under_way() {
    let mut world = World::connected(Config { ord: 5, ..Config::default() }, Config::default());
    let stag = world.responder.source(bytes(1, 5000));
    world.initiator.connection.limit_reads(1);
    (0..20).for_each(|id| world.initiator.read(id, 100, stag, id * 100));
    world.initiator.drain();
    assert_eq!(world.initiator.on_the_way.len() / 52, 1);
    world.initiator.connection.limit_reads(100);
    world.initiator.drain();
    assert_eq!(world.initiator.on_the_way.len() / 52, 5, "no more than it may have itself");
    world.run();
    assert_eq!(world.initiator.told.reads.len(), 20);
}

/// Neither answers to the peer's reads nor this end's own messages keep the other from being sent.
#[test]
fn answers_and_orders_take_turns() {
    let mut world = World::plain();
    world.initiator.send(b"begin");
    world.run();
    world.responder.told.messages.clear();
    let source = world.responder.source(bytes(1, 50));
    for id in 0..5 {
        world.initiator.read(id, 50, source, 0);
        world.responder.send(&[id as u8]);
    }
    world.initiator.drain();
    let mut requests: VecDeque<u8> = std::mem::take(&mut world.initiator.on_the_way);
    world.responder.receive(&mut requests, usize::MAX);
    world.responder.drain();
    let mut sent: VecDeque<u8> = std::mem::take(&mut world.responder.on_the_way);
    let mut order = Vec::new();
    while !sent.is_empty() {
        let length = usize::from(u16::from_be_bytes([sent[0], sent[1]]));
        order.push(sent[3] & 0xf);
        sent.drain(..sanwire_iwarp::wire::fpdu_bytes(length));
    }
    assert_eq!(order, [2, 3].repeat(5));
}

#[test]
fn who_is_told_of_what_it_sent_is_told_in_order_when_it_is_packets() {
    let mut world = World::plain();
    let stag = world.responder.sink(100_000);
    for id in 0..4 {
        let data = bytes(1, 100_000 * (id as usize % 2)).into();
        let order = sanwire_iwarp::Order::Write { stag, offset: 0, data };
        world.initiator.connection.order(order, Some(WorkId(id))).unwrap();
    }
    assert!(world.initiator.connection.poll_event().is_none());
    world.run();
    assert_eq!(world.initiator.told.sent, (0..4).map(WorkId).collect::<Vec<_>>());
}

#[derive(Clone, Debug)]
enum Work {
    Send { length: usize },
    Write { at: usize, length: usize },
    Read { at: usize, length: usize },
}

fn work() -> impl Strategy<Value = (bool, Work)> {
    let ranges = || (0usize..20_000, 0usize..20_000).prop_map(|(one, other)| (one.min(other), one.abs_diff(other)));
    let work = prop_oneof![
        (0usize..4000).prop_map(|length| Work::Send { length }),
        ranges().prop_map(|(at, length)| Work::Write { at, length }),
        ranges().prop_map(|(at, length)| Work::Read { at, length }),
    ];
    (any::<bool>(), work)
}

proptest! {
    /// Whatever both ends do, in segments and pieces of whatever length: what one sends the other has, and reads and writes are
    /// those of plain memory.
    #[test]
    fn whatever_both_ends_do_the_other_has_it(
        list in proptest::collection::vec(work(), 1..30), segment_bytes in 128usize..70_000, most in 1usize..5000, crc: bool,
        staging_bytes in 0usize..70_000,
    ) {
        let config = Config { segment_bytes, crc, staging_bytes, ..Config::default() };
        let mut world = World::connected(config.clone(), config);
        world.most = most;
        world.initiator.send(b"begin");
        world.run();
        prop_assert_eq!(world.responder.message().unwrap(), b"begin");
        world.responder.post(60, 4096);
        world.initiator.post(60, 4096);
        let original = bytes(7, 20_000);
        let sources = [world.initiator.source(original.clone()), world.responder.source(original.clone())];
        let sinks = [world.initiator.sink(20_000), world.responder.sink(20_000)];
        let (mut written, mut said) = ([vec![0; 20_000], vec![0; 20_000]], [Vec::new(), Vec::new()]);
        let mut reads = BTreeMap::new();
        for (id, (is_initiator, work)) in (0u64..).zip(list) {
            let other = usize::from(is_initiator);
            let end = if is_initiator { &mut world.initiator } else { &mut world.responder };
            match work {
                Work::Send { length } => {
                    end.send_as(SendKind::default(), &[id as u8], Some(bytes(id as u8, length).into()));
                    said[other].push([vec![id as u8], bytes(id as u8, length)].concat());
                }
                Work::Write { at, length } => {
                    end.write(sinks[other], at as u64, bytes(id as u8, length));
                    written[other][at..at + length].copy_from_slice(&bytes(id as u8, length));
                }
                Work::Read { at, length } => {
                    end.read(id, length, sources[other], at as u64);
                    reads.insert((is_initiator, id), at..at + length);
                }
            }
        }
        world.run();
        for (end, (other, is_initiator)) in [&mut world.initiator, &mut world.responder].into_iter().zip([(0, true), (1, false)]) {
            prop_assert_eq!(end.told.terminated, None);
            let heard: Vec<Vec<u8>> = std::iter::from_fn(|| end.message()).collect();
            prop_assert_eq!(&heard, &said[other]);
            for (id, read) in std::mem::take(&mut end.told.reads) {
                let range = reads.remove(&(is_initiator, id.0)).unwrap();
                prop_assert!(read[..] == original[range]);
            }
            let contents = end.contents(sinks[other]);
            prop_assert!(contents == written[other]);
        }
        prop_assert!(reads.is_empty());
    }

    /// Whatever bytes come, at whatever point: no panic, no memory beyond what was given, and everything comes back.
    #[test]
    fn whatever_bytes_come_nothing_is_lost(
        junk in proptest::collection::vec(any::<u8>(), 0..300), is_initiator: bool, is_connected: bool, most in 1usize..400,
    ) {
        let mut world = World::new(Config::default(), Config::default());
        if is_connected {
            world.connect();
            world.initiator.send(b"begin");
            world.run();
        }
        let end = if is_initiator { &mut world.initiator } else { &mut world.responder };
        let posted = end.connection.receives_posted();
        let stag = end.sink(50);
        let mut junk: VecDeque<u8> = junk.into();
        while end.receive(&mut junk, most) > 0 {
            end.drain();
        }
        end.connection.peer_closed();
        end.drain();
        prop_assert!(matches!(end.told.closed, Some(Closed::ByPeer | Closed::Lost | Closed::Terminated | Closed::Refused)));
        end.told.messages.pop_front();
        let reclaimed = end.connection.reclaim();
        prop_assert!(reclaimed.receives.len() <= posted);
        prop_assert!(matches!(&reclaimed.registrations[..], [(of, Memory::Frame(frame))] if *of == stag && frame[..] == [0; 50]));
    }
}
