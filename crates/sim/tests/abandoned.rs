//! A client that does not wait any longer for a server that is away, and finds it again: what it had asked before lands before what it asks
//! then, or never, and its former session holds nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sanwire_sim::hyperscsi::plan::{Fault, LinkFault, Plan};
use sanwire_sim::hyperscsi::wire::World;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};
use sanwire_sim::world::Outcome;

/// The ways to the server and back are cut, for longer than the client waits or not quite.
fn cuts(plan: &mut Plan, random: &mut Random, patience: Duration) {
    let mut at = random.micros(50_000..=800_000);
    let patience_us = patience.as_micros() as u64;
    while at < plan.healed_after {
        let (there, back) = random.choose(&[(true, true), (true, true), (false, true), (true, false)]);
        plan.faults.push((at, Fault::Wire(LinkFault::Cut { client: 0, there, back })));
        // It is missed some seconds later.
        at += Duration::from_secs(3) + random.micros(0..=2 * patience_us);
        plan.faults.push((at, Fault::Wire(LinkFault::Mend(0))));
        at += random.micros(100_000..=1_500_000);
    }
    plan.faults.retain(|(at, _)| *at < plan.healed_after);
}

fn live(plan: Plan, seed: u64) -> Outcome<u64> {
    let mut world = World::new(plan, seed);
    world.start()?;
    world.run_for(world.plan.healed_after)?;
    world.run_until(world.now + Duration::from_secs(600), World::is_worked_off)?;
    let sessions =
        world.host.as_ref().map_or(0, |host| host.shards.iter().map(|shard| shard.sessions()).sum::<usize>());
    if sessions > 1 {
        return Err(format!("{sessions} sessions of one client: {}", world.describe()));
    }
    let blocks = world.plan.blocks;
    world.workers[0].verify_all(blocks);
    world.run_until(world.now + Duration::from_secs(120), World::is_worked_off)?;
    let abandoned = world.workers[0].abandoned;
    world.farewell().map(|()| abandoned)
}

#[test]
fn what_a_client_does_not_wait_for_any_more_never_lands_on_what_it_writes_later() {
    let abandoned = AtomicU64::new(0);
    run_seeds("what_a_client_does_not_wait_for_any_more", 100, |seed| {
        let random = &mut plan_random(97, seed);
        let mut plan = Plan::any(random);
        (plan.clients, plan.blocks) = (1, 32);
        plan.wire.terms.clear();
        plan.disk.delay_us = random.choose(&[(10, 20_000), (1_000, 400_000), (100_000, 6_000_000)]);
        plan.work.commands = 80;
        plan.work.blocks_max = 8;
        plan.work.abort_per_million = 0;
        plan.work.reset_per_million = 0;
        plan.work.think_us = random.choose(&[50_000, 300_000]);
        let patience = Duration::from_millis(random.choose(&[100, 500, 2_000]));
        plan.work.patience = Some(patience);
        plan.healed_after = random.micros(6_000_000..=20_000_000);
        cuts(&mut plan, random, patience);
        let count = live(plan, seed)?;
        abandoned.fetch_add(count, Ordering::Relaxed);
        Ok(())
    });
    assert!(abandoned.into_inner() > 0 || std::env::var_os("SANWIRE_SEED").is_some());
}
