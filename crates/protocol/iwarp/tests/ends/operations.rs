//! What the seven operations do between two ends.

use sanwire_iwarp::{Closed, Config, Ended, Fault, Memory, Registration, Rights, SendKind, Stag, WorkId};

use crate::world::{World, bytes, frame};

#[test]
fn both_ends_agree_and_hear_what_the_other_says() {
    let world = World::plain();
    let request = world.responder.told.request.as_ref().unwrap();
    assert_eq!(
        (&request.private_data[..], request.ird, request.ord),
        (&b"from the initiator"[..], Some(128), Some(128))
    );
    let (ours, theirs) = (world.initiator.told.terms.unwrap(), world.responder.told.terms.unwrap());
    assert_eq!((&ours.private_data[..], ours.revision, ours.crc), (&b"from the responder"[..], 2, true));
    assert_eq!((&theirs.private_data[..], theirs.ird, theirs.ord), (&b"from the initiator"[..], 128, 128));
}

#[test]
fn messages_arrive_in_order_in_the_buffers_that_were_posted_and_say_what_they_are() {
    let mut world = World::plain();
    for at in 0..5 {
        let kind = SendKind { solicited: at % 2 == 0, invalidate: None };
        world.initiator.send_as(kind, &[at], Some(bytes(at, 1000 * usize::from(at)).into()));
    }
    world.run();
    for at in 0..5 {
        let message = world.responder.told.messages.pop_front().unwrap();
        assert_eq!((message.is_solicited, message.invalidated), (at % 2 == 0, None));
        assert_eq!(message.buffer[..], [vec![at], bytes(at, 1000 * usize::from(at))].concat());
    }
    world.responder.send(b"answer");
    world.run();
    assert_eq!(world.initiator.message().unwrap(), b"answer");
}

#[test]
fn a_write_lands_where_it_is_sent_to_and_nowhere_else() {
    for (length, segment_bytes) in [(0, 1460), (1, 1460), (4000, 1460), (100_000, 1460), (1 << 20, 1 << 20)] {
        let config = Config { segment_bytes, ..Config::default() };
        let mut world = World::connected(config, Config::default());
        let stag = world.responder.sink(length + 20);
        let data = bytes(3, length);
        world.initiator.write(stag, 10, data.clone());
        world.run();
        let contents = world.responder.contents(stag);
        assert_eq!(contents[10..length + 10], data);
        assert_eq!((&contents[..10], &contents[length + 10..]), (&[0; 10][..], &[0; 10][..]));
    }
}

#[test]
fn a_read_fetches_what_was_registered() {
    let mut world = World::plain();
    world.initiator.send(b"first");
    world.run();
    let data = bytes(9, 300_000);
    let stag = world.initiator.source(data.clone());
    for (id, (offset, length)) in (0..).zip([(0, 300_000), (5, 0), (299_999, 1), (1000, 70_000)]) {
        world.responder.read(id, length, stag, offset as u64);
        world.run();
        let (done, read) = world.responder.told.reads.pop_front().unwrap();
        assert_eq!((done, &read[..]), (WorkId(id), &data[offset..offset + length]));
    }
    let part = 100..200;
    world.responder.connection.read(WorkId(7), frame(300), part, stag, 50).unwrap();
    world.run();
    let (_, read) = world.responder.told.reads.pop_front().unwrap();
    assert_eq!((&read[..100], &read[100..200], &read[200..]), (&[0; 100][..], &data[50..150], &[0; 100][..]));
}

#[test]
fn a_window_that_can_be_written_and_read_gives_what_is_there_now() {
    let mut world = World::plain();
    let rights = Rights { remote_read: true, remote_write: true, remote_invalidate: false };
    let memory = Memory::Frame(frame(100));
    let window = Registration { memory, range: 20..80, base: 1 << 40, rights };
    let stag = world.responder.connection.register(window).unwrap();
    world.initiator.write(stag, (1 << 40) + 5, bytes(1, 10));
    world.run();
    world.initiator.read(1, 60, stag, 1 << 40);
    world.run();
    let (_, read) = world.initiator.told.reads.pop_front().unwrap();
    assert_eq!((&read[5..15], read[15..].iter().all(|byte| *byte == 0)), (&bytes(1, 10)[..], true));
    assert_eq!(world.responder.contents(stag)[25..35], bytes(1, 10));
}

#[test]
fn a_send_with_invalidate_ends_a_key_that_its_owner_allows_to_be_ended() {
    for solicited in [false, true] {
        let mut world = World::plain();
        world.initiator.send(b"command");
        world.run();
        let stag = world.initiator.connection.register(Registration::of_frame(frame(10)).with_invalidation()).unwrap();
        world.responder.write(stag, 0, bytes(1, 10));
        world.responder.send_as(SendKind { solicited, invalidate: Some(stag) }, b"done", None);
        world.run();
        let message = world.initiator.told.messages.pop_front().unwrap();
        assert_eq!((message.invalidated, message.is_solicited), (Some(stag), solicited));
        assert_eq!(world.initiator.told.terminated, None);
        world.responder.write(stag, 0, bytes(2, 10));
        world.run();
        assert_eq!(world.initiator.told.terminated, Some(Ended::ByUs(Fault::Stag)));
        assert_eq!(world.responder.told.terminated, Some(Ended::ByPeer(Some(Fault::Stag))));
        assert_eq!(world.initiator.contents(stag), bytes(1, 10), "memory comes back as it was");
    }
}

#[test]
fn a_terminate_ends_both_ends_and_everything_comes_back() {
    let mut world = World::plain();
    let sink = world.responder.sink(10);
    world.initiator.read(5, 100, Stag(12), 0);
    world.run();
    assert_eq!(world.responder.told.terminated, Some(Ended::ByUs(Fault::ReadStag)));
    assert_eq!(world.initiator.told.terminated, Some(Ended::ByPeer(Some(Fault::ReadStag))));
    for end in [&world.initiator, &world.responder] {
        assert_eq!(end.told.closed, Some(Closed::Terminated));
    }
    let ours = world.initiator.connection.reclaim();
    assert_eq!((ours.receives.len(), ours.reads[0].0, ours.reads[0].1.len()), (8, WorkId(5), 100));
    let theirs = world.responder.connection.reclaim();
    assert_eq!((theirs.receives.len(), theirs.registrations[0].0), (8, sink));
}

#[test]
fn a_closed_stream_is_told_from_one_that_broke() {
    let mut world = World::plain();
    world.initiator.send(b"bye");
    world.initiator.connection.disconnect();
    world.run();
    assert_eq!(world.initiator.told.closed, Some(Closed::ByUs));
    world.responder.connection.peer_closed();
    world.run();
    assert_eq!(
        (world.responder.message().unwrap(), world.responder.told.closed),
        (b"bye".to_vec(), Some(Closed::ByPeer))
    );

    let mut world = World::plain();
    let stag = world.responder.source(bytes(0, 10));
    world.initiator.read(1, 10, stag, 0);
    world.initiator.drain();
    world.initiator.connection.peer_closed();
    world.initiator.drain();
    assert_eq!(world.initiator.told.closed, Some(Closed::Lost), "it owes an answer");
}

#[test]
fn messages_that_are_expected_need_no_buffer_before_they_come() {
    let mut world = World::new(Config::default(), Config::default());
    world.run();
    world.responder.connection.expect_messages(3, 100_000);
    world.responder.connection.accept(b"").unwrap();
    world.run();
    for length in [0, 70, 100_000] {
        world.initiator.send(&bytes(1, length));
        world.run();
        assert_eq!(world.responder.message(), Some(bytes(1, length)));
    }
    assert_eq!(world.responder.connection.receives_posted(), 0);
    world.initiator.send(b"one too many");
    world.run();
    assert_eq!(world.responder.told.terminated, Some(Ended::ByUs(Fault::NoBuffer)));
    for length in [101, 70_000] {
        let mut world = World::plain();
        world.initiator.connection.expect_messages(1, 100);
        let rest = world.initiator.connection.receives_posted() - 1;
        (0..rest).for_each(|_| world.responder.send(b"into what was posted"));
        world.initiator.send(b"begin");
        world.run();
        world.responder.send(&bytes(1, length));
        world.run();
        assert_eq!(world.initiator.told.terminated, Some(Ended::ByUs(Fault::TooLong)), "{length}");
    }
}

#[test]
fn what_was_written_of_a_window_is_known_up_to_the_first_gap() {
    let mut world = World::plain();
    let stag = world.responder.sink(100_000);
    for (offset, length, written) in [(0, 10, 10), (20, 99_980, 10), (5, 6, 11), (11, 9, 100_000)] {
        world.initiator.write(stag, offset, bytes(1, length));
        world.run();
        assert_eq!(world.responder.connection.written_bytes(stag), written);
    }
    assert_eq!(world.responder.connection.moved_bytes(), 10 + 99_980 + 6 + 9);
    world.responder.connection.deregister(stag);
    assert_eq!(world.responder.connection.written_bytes(stag), 0);
}
