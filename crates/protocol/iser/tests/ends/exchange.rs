//! What both ends do when both keep the rules.

use std::time::Duration;

use proptest::prelude::*;
use sanwire_core::Instant;
use sanwire_iscsi::{ClientEvent, DiscoveredTarget, Failure, Movement, OtherPortal, PortalCarrier};

use super::odd::{failing, forgetful};
use super::rounds::{keeps_what_is_written, pattern};
use super::world::{BLOCK_BYTES, MEMORY_BYTES, World, config, name};

#[test]
fn a_discovery_session_finds_the_target() {
    let mut world = World::new(config(None), 7);
    world.client.discover(world.now);
    world.run(usize::MAX);
    let targets = world.events.iter().find_map(|event| match event {
        ClientEvent::Targets(targets) => Some(targets.clone()),
        _ => None,
    });
    let other = |carrier, address: &str| OtherPortal { carrier, address: address.into(), group_tag: 1 };
    let others = vec![other(PortalCarrier::Tcp, "10.0.0.2:3261"), other(PortalCarrier::Adapter, "10.0.0.1:3260")];
    let addresses = vec![("10.0.0.1:3260".into(), 1)];
    let expected = DiscoveredTarget { name: name(), addresses, others: Some(others) };
    assert_eq!(targets, Some(vec![expected]), "{:?} {:?}", world.events, world.host.refusals);
    world.client.disconnect(world.now);
    world.run(usize::MAX);
    assert!(world.connections().is_empty() && world.client.poll_timeout().is_none());
}

#[test]
fn both_ends_agree_on_iser() {
    let mut world = World::new(config(Some(name())), usize::MAX);
    world.order(0, 0, None, 0);
    world.settle();
    let server = world.client.server().expect("a session");
    assert_eq!((server.session.error_recovery_level, server.session.max_connections), (0, 4));
    assert!(!server.connection.digests.header && !server.connection.digests.data, "CRCs are iWARP's");
    assert!(server.session.initial_r2t && server.session.immediate_data);
    assert_eq!((server.connection.send_data_max_bytes, server.connection.receive_data_max_bytes), (4096, 1024));
}

#[test]
fn a_session_has_all_the_connections_that_both_ends_have_agreed_on() {
    let mut world = World::new(config(Some(name())), usize::MAX);
    world.order(0, 0, None, 0);
    world.settle();
    assert!(world.host.refusals.is_empty(), "{:?}", world.host.refusals);
    assert_eq!(world.client.server().map(|server| server.connections), Some(4));
    let data = pattern(200 * BLOCK_BYTES, 1);
    for number in 0..8 {
        world.order(0x2a, number * 200, Some(data.clone()), 0);
    }
    world.settle();
    assert!(world.host.disk.chunks(data.len()).take(8).all(|part| part == data));
    let connections = world.client.server().map(|server| server.connections);
    assert_eq!((connections, world.host.memory.free_bytes()), (Some(4), MEMORY_BYTES));
}

/// So that many short answers take one call of the kernel, as over plain TCP; a stranger costs less.
#[test]
fn much_is_received_at_once_when_the_login_is_over() {
    let mut world = World::new(config(Some(name())), usize::MAX);
    let room = |spaces: [&mut [u8]; 2]| spaces.iter().map(|space| space.len()).sum::<usize>();
    world.step();
    let strangers: Vec<_> = world.connections();
    assert!(strangers.iter().all(|connection| room(world.client.spaces(*connection)) <= 8192));
    world.order(0, 0, None, 0);
    world.settle();
    let connections = world.connections();
    assert!(!connections.is_empty());
    for connection in connections {
        let [client, server] = [room(world.client.spaces(connection)), room(world.host.server.spaces(connection))];
        assert!(client >= 64 << 10 && server >= 64 << 10, "{client} {server}");
    }
}

#[test]
fn both_ends_say_how_data_has_come_and_how_much_memory_was_open() {
    let mut alone = config(Some(name()));
    alone.wishes.connections = 1;
    let mut world = World::new(alone, usize::MAX);
    // It comes with its command, which opens no memory: into the message, and from there into the frame.
    world.order(0x2a, 0, Some(pattern(2 * BLOCK_BYTES, 1)), 0);
    world.settle();
    let server = world.host.server.movements();
    assert_eq!(server.stream, Movement::default());
    let told = (server.rdma.placed_bytes, server.rdma.direct_bytes, server.rdma.copied_bytes);
    assert_eq!(told, (1024, 0, 2048));
    assert_eq!(server.rdma.rdma.map(|rdma| (rdma.stags, rdma.stags_ever)), Some((0, 0)));
    let length = 2000 * BLOCK_BYTES;
    // With the texts of the login.
    let before = world.client.movement().expect("a session");
    world.order(0x28, 0, None, length);
    world.settle();
    let client = world.client.movement().expect("a session");
    let placed = client.placed_bytes - before.placed_bytes;
    let direct = client.direct_bytes - before.direct_bytes;
    let copied = client.copied_bytes - before.copied_bytes;
    assert_eq!((placed, direct + copied), (length as u64, length as u64));
    assert!(copied < length as u64 / 10, "{client:?}");
    let rdma = client.rdma.expect("RDMA");
    assert_eq!((rdma.stags, rdma.stags_ever, rdma.credits, rdma.fpdu_max_bytes), (0, 1, 863, 65_544));
    // A command that is under way has its memory open.
    world.host.is_frozen = true;
    world.order(0x28, 0, None, BLOCK_BYTES);
    world.run(usize::MAX);
    let stags = |movement: Movement| movement.rdma.map(|rdma| [rdma.stags, rdma.stags_ever]);
    let ends = [world.client.movement().expect("a session"), world.host.server.movements().rdma];
    assert_eq!(ends.map(stags), [Some([1, 2]); 2]);
    let connection = world.connections()[0];
    world.cut(connection);
    let server = world.host.server.movements().rdma;
    assert_eq!((server.placed_bytes, stags(server)), (1024, Some([0, 2])));
    assert_eq!((server.rdma.map(|rdma| rdma.credits), world.client.movement()), (Some(0), None));
}

/// A part of it in a message would be copied twice, and the rest read all the same.
#[test]
fn data_comes_with_its_command_as_a_whole_or_not_at_all() {
    let mut world = World::new(config(Some(name())), usize::MAX);
    for (blocks, comes_with_it) in [(8, true), (9, false), (100, false)] {
        let before = world.host.server.movements().rdma;
        world.order(0x2a, 0, Some(pattern(blocks * BLOCK_BYTES, blocks)), 0);
        world.settle();
        let after = world.host.server.movements().rdma;
        let length = (blocks * BLOCK_BYTES) as u64;
        let moved = after.direct_bytes - before.direct_bytes + after.copied_bytes - before.copied_bytes;
        let times = if comes_with_it { 2 } else { 1 };
        assert_eq!((after.placed_bytes - before.placed_bytes, moved), (length, times * length), "{blocks}");
    }
}

/// All lengths around which something changes: with the command, beyond it, more than one FPDU.
#[test]
fn data_of_every_length_passes_and_is_moved_once() {
    let mut world = World::new(config(Some(name())), usize::MAX);
    // All connections are there.
    world.order(0, 0, None, 0);
    world.settle();
    for (round, blocks) in [1, 7, 8, 9, 15, 16, 17, 18, 100, 127, 128, 129, 600, 2047].into_iter().enumerate() {
        let data = pattern(blocks * BLOCK_BYTES, round);
        let before = world.passed;
        world.order(0x2a, 3, Some(data.clone()), 0);
        world.settle();
        assert!(world.host.disk[3 * BLOCK_BYTES..].starts_with(&data), "{blocks}");
        let id = world.order(0x28, 3, None, data.len());
        world.settle();
        assert!(world.data_of(id) == Some(data.clone()), "{blocks}");
        let most = data.len() as u64 + 1500 + data.len() as u64 / 100;
        let passed = [world.passed[0] - before[0], world.passed[1] - before[1]];
        assert!(passed.iter().all(|passed| (data.len() as u64..most).contains(passed)), "{blocks}: {passed:?}");
    }
    assert_eq!(world.host.memory.free_bytes(), MEMORY_BYTES);
}

/// Longer than what one Data-In can tell of.
#[test]
fn a_very_long_read_brings_all_of_its_data() {
    let mut world = World::new(config(Some(name())), 100_000);
    world.host.disk = pattern(17 << 20, 3);
    let id = world.order(0x28, 0, None, 17 << 20);
    world.settle();
    assert!(world.data_of(id).is_some_and(|data| data == world.host.disk));
}

/// A target that does not know a command that is to be aborted: it is given again, with its memory.
#[test]
fn a_read_that_is_given_again_brings_its_data() {
    let mut world = World::over(forgetful, config(Some(name())), usize::MAX);
    world.host.disk = pattern(16 * BLOCK_BYTES, 3);
    world.host.is_frozen = true;
    let id = world.order(0x28, 0, None, 16 * BLOCK_BYTES);
    world.run(usize::MAX);
    world.host.is_frozen = false;
    world.settle();
    assert!(world.data_of(id).is_some_and(|data| data == world.host.disk));
}

/// What it could not send it gives again in a new session, without waiting for a word of the target.
#[test]
fn a_connection_that_fails_by_what_is_sent_is_given_up_at_once() {
    let mut world = World::over(failing, config(Some(name())), usize::MAX);
    world.order(0x35, 0, None, 0);
    world.run(usize::MAX);
    let begun = world.now;
    assert_eq!((world.client.poll_timeout(), world.client.in_transit()), (Some(Instant::ZERO), 1));
    world.settle();
    let is_lost = |event: &ClientEvent| matches!(event, ClientEvent::Lost { .. });
    assert_eq!(world.events.iter().filter(|event| is_lost(event)).count(), 1, "{:?}", world.events);
    assert!(world.now - begun < Duration::from_secs(4), "{:?}", world.now - begun);
}

#[test]
fn many_commands_are_under_way_at_once() {
    let mut world = World::new(config(Some(name())), 3000);
    let data: Vec<Vec<u8>> = (0..14).map(|number| pattern(40 * BLOCK_BYTES, number)).collect();
    for (number, data) in data.iter().enumerate() {
        world.order(0x2a, number as u16 * 40, Some(data.clone()), 0);
    }
    world.settle();
    let ids: Vec<_> = (0..14).map(|number| world.order(0x28, number * 40, None, 40 * BLOCK_BYTES)).collect();
    world.settle();
    let mut found = 0;
    for event in world.events.drain(..) {
        if let ClientEvent::Completed { id, data_in: Some(frame), data_in_bytes, .. } = event {
            let number = ids.iter().position(|known| *known == id).expect("a read");
            assert!(frame[..data_in_bytes] == data[number][..], "{number}");
            found += 1;
        }
    }
    assert_eq!(found, 14);
}

#[test]
fn a_client_that_finds_plain_iscsi_says_so() {
    let mut world = World::at_plain_iscsi(config(Some(name())));
    world.order(0, 0, None, 0);
    let failure = loop {
        world.run(usize::MAX);
        let given_up = world.events.drain(..).find_map(|event| match event {
            ClientEvent::GivenUp(failure) | ClientEvent::OutOfPatience(failure) => Some(failure),
            _ => None,
        });
        if let Some(failure) = given_up {
            break failure;
        }
        world.pass_time();
    };
    assert!(matches!(failure, Failure::NoIser { .. }), "{failure}");
    assert!(failure.to_string().contains("try iscsi://"), "{failure}");
    assert!(
        world.host.refusals.iter().all(|reason| reason.contains("portal of plain iSCSI")),
        "{:?}",
        world.host.refusals
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// In whatever pieces it comes, and however often connections are cut: what was written is read.
    #[test]
    fn what_was_written_is_read(
        piece in prop_oneof![Just(1_000_000usize), 50..3000usize],
        cuts in prop::collection::vec(0..60usize, 0..6),
        lengths in prop::collection::vec(1..200usize, 1..10),
    ) {
        keeps_what_is_written(World::new(config(Some(name())), piece), cuts, lengths)?;
    }
}

/// Every position in a small exchange at which the stream may be cut into two pieces.
#[test]
fn an_exchange_passes_wherever_its_stream_is_cut_into_pieces() {
    for piece in 1..140 {
        let mut world = World::new(config(Some(name())), piece);
        let data = pattern(3 * BLOCK_BYTES, piece);
        world.order(0x2a, 0, Some(data.clone()), 0);
        world.settle();
        let id = world.order(0x28, 0, None, data.len());
        world.settle();
        assert!(world.data_of(id) == Some(data), "{piece}");
    }
}
