use super::server::DISK_BYTES;
use super::*;
use crate::wire::*;

#[test]
fn what_is_written_is_read_from_every_kind_of_server() {
    for (is_structured, is_old, chunk_bytes) in
        [(true, false, 1 << 20), (true, false, 700), (false, false, 1), (false, true, 1)]
    {
        for piece in [usize::MAX, 4096, 17, 1] {
            let traits = Traits { is_structured, is_old, chunk_bytes, ..Traits::default() };
            let mut world = World::with(config(), traits, piece);
            assert!(matches!(world.events[..], [Event::Opened(export)] if export.size_bytes == DISK_BYTES as u64));
            let written = world.write(5000, 7, 9000);
            world.run();
            assert!(matches!(world.result(written), Some(Ok(Answer::Done))));
            let read = world.read(4000, 20_000);
            world.run();
            let mut expected = vec![0; 20_000];
            expected[1000..10_000].fill(7);
            assert!(world.bytes(read) == expected, "structured: {is_structured}, pieces of {piece}");
        }
    }
}

#[test]
fn requests_are_no_longer_than_the_server_takes() {
    // The server of the tests fails at longer ones.
    let traits = Traits { payload_max_bytes: 8192, chunk_bytes: 1000, ..Traits::default() };
    let mut world = World::new(traits);
    let zeroed = world.order(Order::Zero { offset_bytes: 0, length_bytes: 40_000, keeps_space: true });
    let written = world.write(100, 3, 30_000);
    assert!(world.server.pending() > 0 && world.result(zeroed).is_none());
    world.run();
    assert!(matches!(world.result(zeroed), Some(Ok(Answer::Done))));
    assert!(matches!(world.result(written), Some(Ok(Answer::Done))));
    let read = world.read(0, 31_000);
    world.run();
    assert_eq!(world.bytes(read).iter().filter(|byte| **byte == 3).count(), 30_000);
}

#[test]
fn several_connections_are_used_where_the_server_takes_them() {
    let mut world = World::new(Traits::default());
    for at in 0..6 {
        world.read(at * 512, 512);
    }
    assert_eq!(world.server.connections().len(), 3);
    assert_eq!(world.server.pending(), 6);
    let one = Traits { flags: TRANSMISSION_HAS_FLAGS | TRANSMISSION_SEND_FLUSH, ..Traits::default() };
    assert_eq!(World::new(one).server.connections().len(), 1);
}

#[test]
fn a_server_that_makes_no_zeroes_is_sent_some() {
    let traits = Traits { flags: TRANSMISSION_HAS_FLAGS | TRANSMISSION_SEND_FLUSH, ..Traits::default() };
    let mut world = World::new(traits);
    world.server.disk.fill(9);
    let zeroed = world.order(Order::Zero { offset_bytes: 512, length_bytes: 1024, keeps_space: false });
    world.run();
    assert!(matches!(world.result(zeroed), Some(Ok(Answer::Done))));
    assert!(world.server.done.iter().all(|request| request.kind == CMD_WRITE));
    assert!(world.server.disk[512..1536].iter().all(|byte| *byte == 0) && world.server.disk[1536] == 9);
}

#[test]
fn extents_are_told_as_far_as_the_server_knows_them() {
    let ask = |traits: Traits| {
        let mut world = World::new(traits);
        world.server.disk[4096..8192].fill(1);
        let mut tell = |offset_bytes| {
            let id = world.order(Order::Extent { offset_bytes, length_bytes: 16_384 });
            world.run();
            match world.result(id) {
                Some(Ok(Answer::Extent(extent))) => (extent.is_hole, extent.length_bytes),
                other => panic!("{other:?}"),
            }
        };
        [tell(0), tell(4096), tell(8192)]
    };
    assert_eq!(ask(Traits::default()), [(true, 4096), (false, 4096), (true, 16_384)]);
    assert_eq!(ask(Traits { tells_extents: false, ..Traits::default() }), [(false, 16_384); 3]);
    assert_eq!(ask(Traits { is_structured: false, ..Traits::default() }), [(false, 16_384); 3]);
}

#[test]
fn an_error_has_its_number_its_place_and_its_text() {
    for is_structured in [true, false] {
        let mut world = World::new(Traits { is_structured, ..Traits::default() });
        world.server.fails = Some((CMD_READ, 5));
        let failed = world.read(4096, 512);
        world.run();
        let (offset_bytes, text) = if is_structured { (Some(4097), "the disk  is bad") } else { (None, "") };
        let expected = Failure::Server { errno: 5, offset_bytes, text: text.to_owned() };
        assert_eq!(world.result(failed).unwrap().unwrap_err(), expected);
        world.server.fails = None;
        let read = world.read(4096, 512);
        world.run();
        assert_eq!(world.bytes(read), [0; 512]);
    }
}

#[test]
fn an_export_that_is_not_there_is_told_with_those_that_are() {
    let world = World::with(Config { export: "disc".to_owned(), ..config() }, Traits::default(), usize::MAX);
    let [Event::AttemptFailed { reason, is_refused: true }] = &world.events[..] else { panic!("{:?}", world.events) };
    assert_eq!(reason, "the NBD server has no export 'disc': it has 'disk', 'other '");
}

#[test]
fn orders_to_the_same_bytes_keep_their_order() {
    let mut world = World::new(Traits::default());
    world.write(0, 1, 1024);
    world.write(512, 2, 1024);
    let read = world.read(1000, 100);
    let apart = world.write(8192, 3, 512);
    assert_eq!(world.server.pending(), 2, "the first, and the one that has nothing to do with it");
    // The later one of the two.
    world.server.work(1);
    world.run();
    assert_eq!(world.bytes(read), [2; 100]);
    assert!(world.result(apart).is_some());
}
