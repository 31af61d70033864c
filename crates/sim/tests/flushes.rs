//! Disks whose flushes fail and lose what they were to make stable, under clients that keep nothing: none of them takes a flush for a
//! success whose writes are lost.

use std::time::Duration;

use sanwire_sim::hyperscsi::plan::{Fault, LinkFault, Plan};
use sanwire_sim::hyperscsi::wire::World;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};
use sanwire_sim::world::Outcome;

/// What goes wrong besides: what is lost is not even shown any more, the server ends in one of these ways, a client is away for longer
/// than its session stays.
fn trouble(plan: &mut Plan, random: &mut Random, ends: &[Fault]) {
    let healed_us = plan.healed_after.as_micros() as u64;
    for _ in 0..random.range(1..=8) {
        plan.faults.push((random.micros(0..=healed_us), Fault::Evict));
    }
    let least = u64::from(plan.is_verified);
    for _ in 0..random.range(least..=1) {
        let at = random.micros(0..=healed_us);
        plan.faults.push((at, random.choose(ends)));
        plan.faults.push((at + random.micros(0..=200_000), Fault::Start));
    }
    for _ in 0..random.range(0..=2) {
        let at = random.micros(0..=healed_us * 9 / 10);
        let client = random.range(0..=plan.clients as u64 - 1) as usize;
        plan.faults.push((at, Fault::Wire(LinkFault::Cut { client, there: true, back: true })));
        plan.faults.push((at + random.micros(0..=2_000_000), Fault::Wire(LinkFault::Mend(client))));
    }
}

fn lossy_plan(random: &mut Random) -> Plan {
    let mut plan = Plan::any(random);
    (plan.clients, plan.blocks) = (random.range(2..=4) as usize, 64);
    plan.wire.shards = random.choose(&[1, 2]);
    plan.wire.terms.clear();
    plan.wire.session_idle_max = Duration::from_millis(random.choose(&[200, 30_000]));
    plan.write_cache = true;
    plan.disk.delay_us = random.choose(&[(0, 0), (1, 50), (10, 5_000)]);
    plan.disk.flush_us = random.choose(&[0, 5_000, 50_000]);
    plan.disk.early_per_million = 500_000;
    plan.disk.loss_per_million = random.choose(&[50_000, 200_000, 500_000]);
    plan.work.commands = 60;
    plan.work.blocks_max = 8;
    plan.work.flush_per_million = 250_000;
    plan.work.think_us = random.choose(&[5_000, 50_000]);
    plan.healed_after = random.micros(2_000_000..=4_000_000);
    plan
}

fn live(seed: u64) -> Outcome<()> {
    let random = &mut plan_random(96, seed);
    let mut plan = lossy_plan(random);
    trouble(&mut plan, random, &[Fault::Kill, Fault::LosePower]);
    World::live(plan, seed).map(drop)
}

#[test]
fn no_flush_is_a_success_for_a_client_whose_writes_another_flush_has_lost() {
    run_seeds("no_flush_is_a_success_for_a_client_whose_writes", 300, live);
}

/// Of two that a client gave at once, the first to end was to tell it of a loss before them; the answer of the other came first.
#[test]
fn no_flush_is_a_success_beside_one_that_tells_of_an_earlier_loss() {
    live(2395).unwrap();
}

/// What a server with a state directory remembers of a flush that has failed tells those of its clients that do not go by the write
/// verifier, in its next run.
#[test]
fn no_flush_is_a_success_for_a_client_whose_writes_were_lost_before_its_server_was_started_again() {
    run_seeds("whose_writes_were_lost_before_its_server_was_started_again", 300, |seed| {
        let random = &mut plan_random(97, seed);
        let mut plan = lossy_plan(random);
        plan.is_verified = true;
        trouble(&mut plan, random, &[Fault::Kill, Fault::ShutDown]);
        World::live(plan, seed).map(drop)
    });
}
