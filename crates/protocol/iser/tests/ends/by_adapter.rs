//! Both ends by adapters, which have limits, tell everything late, and die at any moment.

use std::time::Duration;

use proptest::prelude::*;
use sanwire_iscsi::{ClientEvent, Failure};
use sanwire_sim::random::Random;
use sanwire_sim::rdma::{AdapterPlan, PATH_MTU_BYTES};

use super::rounds::{keeps_what_is_written, pattern};
use super::world::{BLOCK_BYTES, MEMORY_BYTES, World, config, name};

fn any_kind(seed: u64) -> World {
    let random = &mut Random::new(seed);
    let plans = [AdapterPlan::any(random), AdapterPlan::any(random)];
    World::by_adapters(plans, config(Some(name())), seed)
}

fn plain(seed: u64) -> World {
    World::by_adapters([AdapterPlan::plain(); 2], config(Some(name())), seed)
}

fn losses(world: &World) -> usize {
    world.events.iter().filter(|event| matches!(event, ClientEvent::Lost { .. })).count()
}

#[test]
fn a_discovery_session_finds_the_target_and_ends() {
    for seed in 0..50 {
        let mut world = World::by_adapters([AdapterPlan::plain(); 2], config(None), seed);
        world.client.discover(world.now);
        world.run(usize::MAX);
        assert!(world.events.iter().any(|event| matches!(event, ClientEvent::Targets(_))), "{:?}", world.events);
        world.client.disconnect(world.now);
        world.run(usize::MAX);
        assert!(world.connections().is_empty() && world.client.poll_timeout().is_none() && world.host.ends.is_empty());
    }
}

/// Around all lengths where something changes, by adapters of any kind; and none of them loses its connection.
#[test]
fn data_of_every_length_passes_by_any_adapter() {
    for seed in 0..100 {
        let mut world = any_kind(seed);
        for (round, blocks) in [1, 7, 8, 9, 17, 100, 128, 2047].into_iter().enumerate() {
            let data = pattern(blocks * BLOCK_BYTES, round);
            world.order(0x2a, 3, Some(data.clone()), 0);
            world.settle();
            assert!(world.host.disk[3 * BLOCK_BYTES..].starts_with(&data), "seed {seed}: {blocks}");
            let id = world.order(0x28, 3, None, data.len());
            world.settle();
            assert_eq!(losses(&world), 0, "seed {seed}: {blocks}");
            assert!(world.data_of(id) == Some(data), "seed {seed}: {blocks}");
        }
        assert_eq!(world.host.memory.free_bytes(), MEMORY_BYTES, "seed {seed}");
    }
}

fn sharing() -> AdapterPlan {
    AdapterPlan { waits_for_receives: true, shared_receives: 8, ..AdapterPlan::plain() }
}

/// Far fewer receives than all connections may send messages: those that find none wait, and none is lost with a connection.
#[test]
fn connections_share_the_receives_of_an_adapter() {
    for seed in 0..50 {
        let plans = [AdapterPlan::plain(), AdapterPlan { shared_receives: 1 + seed as usize % 3, ..sharing() }];
        let mut world = World::by_adapters(plans, config(Some(name())), seed);
        let data: Vec<Vec<u8>> = (0..14).map(|number| pattern(20 * BLOCK_BYTES, number)).collect();
        for (number, data) in data.iter().enumerate() {
            world.order(0x2a, number as u16 * 20, Some(data.clone()), 0);
        }
        world.settle();
        let ours = world.cables.as_ref().map(|cables| cables.adapters[1].clone()).expect("adapters");
        assert_eq!(losses(&world), 0, "seed {seed}");
        world.connections().into_iter().for_each(|connection| world.cut(connection));
        let id = world.order(0x28, 0, None, 20 * BLOCK_BYTES);
        world.settle();
        assert!(world.data_of(id).as_ref() == Some(&data[0]), "seed {seed}");
        drop(world);
        assert_eq!(ours.free_receives(), plans[1].shared_receives, "seed {seed}");
    }
}

/// Windows of the adapter's own are bound with the command that tells of them, and bound again when the answer has ended their keys.
#[test]
fn memory_windows_open_what_commands_want() {
    for invalidates in [true, false] {
        let initiator = AdapterPlan { has_memory_windows: true, ..AdapterPlan::plain() };
        let target = AdapterPlan { invalidates, ..AdapterPlan::plain() };
        let mut world = World::by_adapters([initiator, target], config(Some(name())), 3);
        for round in 0..20 {
            let data = pattern(100 * BLOCK_BYTES, round);
            world.order(0x2a, 3, Some(data.clone()), 0);
            world.settle();
            let id = world.order(0x28, 3, None, data.len());
            world.settle();
            assert!(world.data_of(id) == Some(data), "round {round}");
        }
        assert_eq!(losses(&world), 0);
        let stags = world.client.movement().and_then(|movement| movement.rdma).map(|rdma| rdma.stags);
        assert_eq!(stags, Some(0));
    }
}

/// Longer than a piece in which a server sends, and than what one Data-In can tell of.
#[test]
fn a_very_long_read_brings_all_of_its_data() {
    for seed in 0..5 {
        let mut world = any_kind(seed);
        world.host.disk = pattern(17 << 20, 3);
        let id = world.order(0x28, 0, None, 17 << 20);
        world.settle();
        assert!(world.data_of(id).is_some_and(|data| data == world.host.disk), "seed {seed}");
    }
}

/// More than its queues and windows take: what has no room waits, and nothing is lost by that.
#[test]
fn many_commands_share_an_adapter_that_takes_one_thing_at_a_time() {
    for seed in 0..100 {
        let plan = AdapterPlan { queue_max: 1, ird: 1, ord: 1, windows_max: 1, ..AdapterPlan::plain() };
        let mut world = World::by_adapters([plan; 2], config(Some(name())), seed);
        let data: Vec<Vec<u8>> = (0..14).map(|number| pattern(40 * BLOCK_BYTES, number)).collect();
        for (number, data) in data.iter().enumerate() {
            world.order(0x2a, number as u16 * 40, Some(data.clone()), 0);
        }
        world.settle();
        let ids: Vec<_> = (0..14).map(|number| world.order(0x28, number * 40, None, 40 * BLOCK_BYTES)).collect();
        world.settle();
        assert_eq!(losses(&world), 0, "seed {seed}");
        let mut found = 0;
        for event in world.events.drain(..) {
            if let ClientEvent::Completed { id, data_in: Some(frame), data_in_bytes, .. } = event {
                let number = ids.iter().position(|known| *known == id).expect("a read");
                assert!(frame[..data_in_bytes] == data[number][..], "seed {seed}: {number}");
                found += 1;
            }
        }
        assert_eq!((found, world.host.memory.free_bytes()), (14, MEMORY_BYTES), "seed {seed}");
    }
}

/// As many as may be under way, and besides them those without numbers.
#[test]
fn receives_are_posted_for_all_that_may_come() {
    let mut world = plain(1);
    world.order(0, 0, None, 0);
    world.settle();
    let credits = |movement: sanwire_iscsi::Movement| movement.rdma.expect("RDMA").credits;
    let client = credits(world.client.movement().expect("a session"));
    let server = credits(world.host.server.movements().rdma);
    let connections = world.connections().len() as u64;
    assert_eq!((client, server), (connections * (16 + 64), connections * (32 + 64)));
}

#[test]
fn both_ends_say_how_data_has_come_and_how_much_memory_was_open() {
    let mut alone = config(Some(name()));
    alone.wishes.connections = 1;
    let mut world = World::by_adapters([AdapterPlan::plain(); 2], alone, 1);
    let length = 2000 * BLOCK_BYTES;
    world.order(0x2a, 0, Some(pattern(length, 1)), 0);
    world.order(0x28, 0, None, length);
    world.settle();
    let (server, client) = (world.host.server.movements().rdma, world.client.movement().expect("a session"));
    for movement in [server, client] {
        // The texts of the login have come besides.
        assert!((length as u64..length as u64 + 1000).contains(&movement.placed_bytes), "{movement:?}");
        assert_eq!(movement.direct_bytes, length as u64);
        let rdma = movement.rdma.expect("RDMA");
        assert_eq!((rdma.stags, rdma.stags_ever, rdma.fpdu_max_bytes), (0, 2, 0));
        assert_eq!(rdma.segment_bytes, Some(PATH_MTU_BYTES));
    }
    let connection = world.connections()[0];
    let carried = world.client.carried(connection).expect("an adapter");
    assert!(carried.received_bytes > length as u64 && carried.sent_bytes > 100, "{carried:?}");
}

/// A cut after each step of a small exchange, which one end may not notice.
#[test]
fn an_exchange_outlives_the_death_of_its_connection_at_every_step() {
    let mut last = usize::MAX;
    for step in 0.. {
        let mut alone = config(Some(name()));
        alone.wishes.connections = 1;
        let mut world = World::by_adapters([AdapterPlan::plain(); 2], alone, step as u64 % 7);
        let data = pattern(30 * BLOCK_BYTES, step);
        world.order(0x2a, 0, Some(data.clone()), 0);
        world.run(step);
        let is_over = world.client.in_transit() == 0;
        world.connections().first().copied().into_iter().for_each(|connection| world.cut(connection));
        world.settle();
        let id = world.order(0x28, 0, None, data.len());
        world.settle();
        assert!(world.data_of(id) == Some(data), "{step}");
        assert_eq!(world.host.memory.free_bytes(), MEMORY_BYTES, "{step}");
        if is_over {
            last = last.min(step);
        }
        if step > last.saturating_add(20) {
            break;
        }
    }
    assert!(last > 20, "{last}");
}

/// What the log of a server says, where its adapter has told why.
#[test]
fn a_target_whose_connection_breaks_after_its_login_says_why() {
    let opened = |seed| {
        let mut alone = config(Some(name()));
        alone.wishes.connections = 1;
        let mut world = World::by_adapters([AdapterPlan::plain(); 2], alone, seed);
        world.order(0, 0, None, 0);
        world.settle();
        world
    };
    let mut told = 0;
    for seed in 0..20 {
        let mut world = opened(seed);
        world.client.disconnect(world.now);
        world.run(usize::MAX);
        assert_eq!(world.host.broken, [""; 0], "seed {seed}: it was logged out");
        let mut world = opened(seed);
        world.cut(world.connections()[0]);
        world.run(usize::MAX);
        told += world.host.broken.len();
        let broken = &world.host.broken;
        assert!(broken.iter().all(|why| why == "the link to the other end is gone"), "seed {seed}: {broken:?}");
    }
    assert!((1..=20).contains(&told), "{told}: it does not notice each, and tells of none twice");
}

/// It was lost, not refused: a session that has one connection fewer for good would not be what both ends have agreed on.
#[test]
fn a_connection_that_dies_in_its_login_is_made_again() {
    for steps in 0..30 {
        let mut world = plain(steps as u64);
        world.order(0, 0, None, 0);
        for _ in 0..10_000 {
            if world.connections().len() > 1 {
                break;
            }
            if !world.step() {
                world.pass_time();
            }
        }
        let further = world.connections()[1];
        world.run(steps);
        world.cut(further);
        world.settle();
        let connections = |world: &World| world.client.server().map(|server| server.connections);
        for _ in 0..50 {
            world.run(usize::MAX);
            if connections(&world) == Some(4) {
                break;
            }
            world.pass_time();
        }
        assert_eq!(connections(&world), Some(4), "{steps}");
    }
}

/// What the user can mend is not that the target is away.
#[test]
fn who_can_open_no_memory_is_told_so() {
    let plan = AdapterPlan { windows_max: 0, ..AdapterPlan::plain() };
    let mut world = World::by_adapters([plan, AdapterPlan::plain()], config(Some(name())), 1);
    world.order(0, 0, None, 0);
    world.settle();
    assert_eq!(world.client.take_trouble(), None);
    world.order(0x28, 0, None, BLOCK_BYTES);
    for _ in 0..10_000 {
        if losses(&world) > 0 || !world.step() {
            break;
        }
    }
    let trouble = world.client.take_trouble();
    assert!(trouble.as_ref().is_some_and(|why| why.contains("opens no memory")), "{trouble:?}");
    // The command comes again with each session, and ends it: that is not tried without a pause.
    let until = world.now + Duration::from_secs(20);
    for _ in 0..100_000 {
        if world.now >= until {
            break;
        }
        if !world.step() {
            world.pass_time();
        }
    }
    assert!(world.now >= until && losses(&world) <= 11, "{} sessions were lost in 20 s", losses(&world));
}

/// A command that waits for memory has its frame in no window yet.
#[test]
fn reads_that_wait_for_memory_bring_their_data_after_the_death_of_their_connection() {
    for step in 0..150 {
        let mut alone = config(Some(name()));
        alone.wishes.connections = 1;
        let plan = AdapterPlan { windows_max: 1, ..AdapterPlan::plain() };
        let mut world = World::by_adapters([plan; 2], alone, step as u64);
        world.host.disk = pattern(80 * BLOCK_BYTES, step);
        world.order(0, 0, None, 0);
        world.settle();
        let ids: Vec<_> = (0..8).map(|number| world.order(0x28, number * 10, None, 10 * BLOCK_BYTES)).collect();
        world.run(step);
        world.connections().first().copied().into_iter().for_each(|connection| world.cut(connection));
        world.settle();
        let mut found = 0;
        for event in world.events.drain(..) {
            if let ClientEvent::Completed { id, data_in: Some(frame), data_in_bytes, .. } = event
                && let Some(number) = ids.iter().position(|known| *known == id)
            {
                let expected = &world.host.disk[number * 10 * BLOCK_BYTES..][..10 * BLOCK_BYTES];
                assert!(frame[..data_in_bytes] == *expected, "step {step}: {number}");
                found += 1;
            }
        }
        assert_eq!(found, 8, "step {step}");
    }
}

#[test]
fn an_initiator_whose_memory_cannot_be_read_is_refused_with_the_reason() {
    let plan = AdapterPlan { ird: 0, ..AdapterPlan::plain() };
    let mut world = World::by_adapters([plan, AdapterPlan::plain()], config(Some(name())), 1);
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
    assert!(world.host.refusals[0].contains("its IRD is 0"), "{:?}", world.host.refusals);
    assert!(matches!(failure, Failure::NoRdma { .. }), "{failure}");
    assert!(failure.to_string().contains("it refuses the RDMA connection"), "{failure}");
}

/// The data of its initiators' WRITEs could not be read: each would end for a reason that nobody understands.
#[test]
fn a_target_whose_adapter_makes_no_reads_refuses_with_the_reason() {
    let plan = AdapterPlan { ord: 0, ..AdapterPlan::plain() };
    let mut world = World::by_adapters([AdapterPlan::plain(), plan], config(Some(name())), 1);
    world.order(0, 0, None, 0);
    for _ in 0..10_000 {
        if world.host.refusals.is_empty() && !world.step() {
            world.pass_time();
        }
    }
    assert!(world.host.refusals[0].contains("its ORD is 0"), "{:?}", world.host.refusals);
    assert!(world.client.server().is_none(), "it has no session");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// By adapters of any kind, and however often connections die: what was written is read.
    #[test]
    fn what_was_written_is_read(
        seed in any::<u64>(),
        cuts in prop::collection::vec(0..120usize, 0..6),
        lengths in prop::collection::vec(1..200usize, 1..10),
    ) {
        keeps_what_is_written(any_kind(seed), cuts, lengths)?;
    }
}
