//! An iSCSI client, over TCP or by RDMA, that asks for much and reads nothing, beside others that do nothing wrong: these go on, within
//! a bound, however little memory there is.

use std::time::Duration;

use sanwire_iscsi::DesiredParameters;
use sanwire_sim::iscsi::plan::{Fault, Plan, StreamFault};
use sanwire_sim::iscsi::wire::World;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};
use sanwire_sim::world::Outcome;

/// So long nobody waits for all of its answers because of what another one does: memory is taken back after two seconds.
const BOUND: Duration = Duration::from_secs(4);

/// Clients that do much with large blocks, in so little memory that it does not reach for one of them.
fn crowd(random: &mut Random) -> Plan {
    let wishes = DesiredParameters {
        digests: random.chance(250_000),
        error_recovery_level: random.range(0..=2) as u8,
        connections: random.choose(&[1, 1, 2]),
    };
    let mut plan = Plan::clean(wishes);
    plan.wire.commands_max = 32;
    plan.wire.pieces.delay_us = random.choose(&[(10, 10), (10, 500), (1000, 5000)]);
    plan.wire.pieces.piece_max_bytes = 1 << 20;
    plan.clients = random.range(2..=4) as usize;
    plan.blocks = 2048;
    plan.work.blocks_max = random.choose(&[64, 256]);
    plan.work.depth = 16;
    plan.work.commands = 800;
    plan.work.budget_bytes = 1 << 30;
    plan.work.think_us = 15_000;
    plan.server_memory_bytes = random.choose(&[256 << 10, 1 << 20, 3 << 20]);
    plan.client_memory_bytes = 4 << 20;
    plan.healed_after = Duration::from_secs(16);
    plan
}

/// The first client reads nothing for a while, again and again.
fn deafens(plan: &mut Plan, random: &mut Random) {
    let mut at = random.micros(100_000..=3_000_000);
    while at < plan.healed_after {
        let deaf_for = random.micros(500_000..=12_000_000);
        plan.faults.push((at, Fault::Wire(StreamFault::Deafen(0, deaf_for))));
        at += deaf_for + random.micros(100_000..=1_000_000);
    }
}

fn live(plan: Plan, seed: u64) -> Outcome<()> {
    World::live_beside_the_first(plan, seed, BOUND, Duration::from_secs(120))
}

#[test]
fn nobody_stands_still_because_another_initiator_does() {
    run_seeds("nobody_stands_still_over_iscsi", 100, |seed| {
        let random = &mut plan_random(75, seed);
        let mut plan = crowd(random);
        deafens(&mut plan, random);
        live(plan, seed)
    });
}

#[test]
fn nobody_stands_still_because_another_initiator_of_iser_does() {
    run_seeds("nobody_stands_still_because_another_initiator_of_iser_does", 60, |seed| {
        let random = &mut plan_random(77, seed);
        let mut plan = crowd(random);
        plan.wire.is_iser = true;
        deafens(&mut plan, random);
        live(plan, seed)
    });
}
