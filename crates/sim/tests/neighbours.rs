//! What a client has of its small commands beside one with many large commands that does nothing wrong: a part of what it has
//! alone, however little memory the server has, and however slowly the other one takes its answers.

use std::time::Duration;

use sanwire_sim::hyperscsi::link::LinkPlan;
use sanwire_sim::hyperscsi::plan::{Medium, Plan};
use sanwire_sim::hyperscsi::wire::World;
use sanwire_sim::model::Range;
use sanwire_sim::seeds::run_seeds;
use sanwire_sim::task::Kind;
use sanwire_sim::world::Outcome;

/// A client's reads that are under way together, and how long each is.
#[derive(Clone, Copy)]
struct Load {
    depth: usize,
    blocks: u64,
}

/// 1 MiB each: in all five times what the server has memory for.
const LARGE: Load = Load { depth: 32, blocks: 2048 };

/// 4 KiB each.
const SMALL: Load = Load { depth: 4, blocks: 8 };

const NOTHING: Load = Load { depth: 0, blocks: 1 };

/// What is left of their speed at least, in hundredths: a large answer goes between two small ones now and then.
const PART_MIN: u64 = 20;

/// How soon after an answer the next command is given.
const TURN: Duration = Duration::from_micros(20);

/// Two clients at one shard.
fn pair() -> Plan {
    let mut plan = Plan::clean(Medium::Ethernet, 9000);
    plan.clients = 2;
    plan.blocks = 4096;
    plan.work.commands = 0;
    plan.disk.delay_us = (1, 5);
    plan.server_memory_bytes = 6 << 20;
    plan.client_memory_bytes = 40 << 20;
    plan
}

/// The reads of each client that were answered in `length`, after a while in which they found their pace.
fn answered(plan: &Plan, loads: [Load; 2], length: Duration, seed: u64) -> Outcome<[u64; 2]> {
    let mut world = World::new(plan.clone(), seed);
    world.start()?;
    let warm_up = length / 4;
    let (mut given, mut before) = ([0_u64; 2], None);
    let begin = world.now + warm_up;
    while world.now < begin + length {
        for (client, load) in loads.iter().enumerate() {
            while world.workers[client].in_flight() < load.depth {
                let lba = given[client] * load.blocks % (world.plan.blocks - load.blocks);
                if !world.give(client, Kind::Read, Range { lba, blocks: load.blocks })? {
                    break;
                }
                given[client] += 1;
            }
        }
        world.run_for(TURN)?;
        if before.is_none() && world.now >= begin {
            before = Some(done(&world, given));
        }
    }
    let (before, after) = (before.unwrap_or_default(), done(&world, given));
    Ok([after[0] - before[0], after[1] - before[1]])
}

fn done(world: &World, given: [u64; 2]) -> [u64; 2] {
    [0, 1].map(|client| given[client] - world.workers[client].in_flight() as u64)
}

/// The small reads beside the large ones, in hundredths of those alone. The large ones go on, too.
fn part(plan: &Plan, length: Duration, seed: u64) -> Outcome<u64> {
    let [_, alone] = answered(plan, [NOTHING, SMALL], length, seed)?;
    let [large, beside] = answered(plan, [LARGE, SMALL], length, seed)?;
    if large == 0 {
        return Err("the large reads stand still".to_owned());
    }
    Ok(beside * 100 / alone.max(1))
}

#[test]
fn small_reads_have_a_good_part_of_their_speed_beside_many_large_ones() {
    run_seeds("small_reads", 1, |seed| {
        for weights in [[1, 1], [1, 4], [10, 1]] {
            let mut plan = pair();
            plan.wire.weights = weights.to_vec();
            let part = part(&plan, Duration::from_millis(200), seed)?;
            if part < PART_MIN {
                return Err(format!("weights {weights:?}: {part} of 100"));
            }
        }
        Ok(())
    });
}

#[test]
fn so_they_have_beside_one_that_takes_its_large_ones_over_a_slow_link() {
    run_seeds("small_reads_beside_slow", 1, |seed| {
        for weights in [[1, 1], [10, 1]] {
            let mut plan = pair();
            plan.wire.weights = weights.to_vec();
            // 80 Mbit/s.
            plan.wire.links = vec![LinkPlan { bytes_per_us: 10, delay_us: 1000, ..plan.wire.link }];
            let part = part(&plan, Duration::from_secs(1), seed)?;
            if part < PART_MIN {
                return Err(format!("weights {weights:?}: {part} of 100"));
            }
        }
        Ok(())
    });
}
