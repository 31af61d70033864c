use proptest::prelude::*;

use super::server::chunk_head;
use super::*;
use crate::wire::*;

/// A world with one read under way on one connection, and its cookie.
fn reading(is_structured: bool) -> (World, OrderId, ConnectionId, u64) {
    let traits = Traits { is_structured, flags: TRANSMISSION_HAS_FLAGS, ..Traits::default() };
    let mut world = World::new(traits);
    let read = world.read(4096, 8192);
    let id = world.client.connections().next().unwrap();
    // The first request on the first place.
    (world, read, id, 1 << 16)
}

fn data(cookie: u64, offset_bytes: u64, length: usize, is_last: bool) -> Vec<u8> {
    let mut bytes = ReplyHead::offset_data(cookie, offset_bytes, length as u32, is_last).as_bytes().to_vec();
    bytes.resize(bytes.len() + length, 1);
    bytes
}

fn hole(cookie: u64, offset_bytes: u64, length: u32) -> Vec<u8> {
    let mut bytes = chunk_head(CHUNK_FLAG_DONE, CHUNK_OFFSET_HOLE, cookie, 12);
    bytes.extend(offset_bytes.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

#[test]
fn answers_that_break_the_rules_end_the_connection_and_never_pass_for_data() {
    let cookie = 1 << 16;
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("no answer at all", vec![0; 20]),
        ("another request's", data(cookie + 1, 4096, 8192, true)),
        ("one of before", data(cookie + (1 << 16), 4096, 8192, true)),
        ("too little", data(cookie, 4096, 8000, true)),
        ("a gap", [data(cookie, 4096, 4000, false), data(cookie, 8192, 4096, true)].concat()),
        ("some twice", [data(cookie, 4096, 8000, false), data(cookie, 4100, 4096, true)].concat()),
        ("below", data(cookie, 4095, 8192, true)),
        ("beyond", data(cookie, 4097, 8192, true)),
        ("far beyond", data(cookie, u64::MAX - 3, 512, true)),
        ("no data", data(cookie, 4096, 0, true)),
        ("a hole beyond", hole(cookie, 4096, u32::MAX)),
        ("only the end", ReplyHead::done(cookie).as_bytes().to_vec()),
        ("a simple answer", ReplyHead::simple(cookie, None).as_bytes().to_vec()),
        ("an endless error", chunk_head(1, CHUNK_ERROR, cookie, u32::MAX)),
        ("a short error", [chunk_head(1, CHUNK_ERROR, cookie, 2), vec![0; 2]].concat()),
        ("an unknown chunk", [chunk_head(1, 77, cookie, 4), vec![0; 4]].concat()),
        ("data without an offset", [chunk_head(1, CHUNK_OFFSET_DATA, cookie, 7), vec![0; 8]].concat()),
        ("extents", [chunk_head(1, CHUNK_BLOCK_STATUS, cookie, 12), vec![0; 12]].concat()),
    ];
    for (name, bytes) in cases {
        let (mut world, read, id, _) = reading(true);
        world.deliver(id.0, &bytes);
        world.carry();
        let is_told = |event: &Event| matches!(event, Event::Lost { reason } if reason.contains("breaks the protocol"));
        assert!(world.events.iter().any(is_told), "{name}: {:?}", world.events);
        world.pass(Duration::from_secs(1));
        world.run();
        assert_eq!(world.bytes(read), [0; 8192], "{name}: it is asked again");
    }
}

#[test]
fn chunks_without_their_agreement_end_the_connection() {
    let (mut world, _, id, cookie) = reading(false);
    world.deliver(id.0, &data(cookie, 4096, 8192, true));
    world.carry();
    assert!(world.events.iter().any(|event| matches!(event, Event::Lost { .. })));
}

#[test]
fn a_server_that_always_breaks_the_rules_is_given_up_in_time() {
    let (mut world, read, ..) = reading(true);
    for _ in 0..100 {
        for id in world.server.connections() {
            world.deliver(id, &[9; 64]);
        }
        world.carry();
        world.pass(Duration::from_secs(1));
    }
    assert!(matches!(world.result(read), Some(Err(Failure::Gone { .. }))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_server_sends_every_order_ends_once_and_memory_stays_bounded(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        cuts in prop::collection::vec((0usize..400, any::<u8>()), 0..6),
        piece in 1usize..700,
        is_structured: bool,
    ) {
        let traits = Traits { is_structured, chunk_bytes: 900, ..Traits::default() };
        let mut world = World::with(config(), traits, piece);
        let ids = [world.read(0, 5000), world.write(0, 1, 512), world.order(Order::Flush), world.read(0, 512)];
        // What an honest server would say, with some of it changed, and then anything.
        let connection = world.client.connections().next().unwrap();
        while world.server.work(0) {}
        let mut answer = world.server.output(connection.0);
        for (at, value) in cuts {
            if let Some(byte) = answer.get_mut(at) {
                *byte = value;
            }
        }
        answer.extend(bytes);
        world.deliver(connection.0, &answer);
        world.run();
        world.is_reachable = false;
        world.cut();
        world.pass(Duration::from_secs(60));
        for id in ids {
            prop_assert!(world.result(id).is_some());
            prop_assert!(world.result(id).is_none());
        }
        prop_assert_eq!(world.client.unanswered(), 0);
    }
}
