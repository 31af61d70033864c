//! The engine alone, in several shards: commands are ended across shards, nexuses are lost and come back elsewhere, stores are slow,
//! hang, are full or gone. No command writes after it has ended; no abort is answered before; what is lost keeps its blocks.

use std::time::Duration;

use sanwire_sim::engine::plan::{Deeds, Plan};
use sanwire_sim::engine::world::World;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};
use sanwire_sim::world::Outcome;

fn live(plan: Plan, seed: u64) -> Outcome<()> {
    World::live(plan, seed).map(drop)
}

/// How often something is done, where it is done at all.
fn often(random: &mut Random) -> u32 {
    random.choose(&[0, 20_000, 100_000])
}

fn any_deeds(random: &mut Random) -> Deeds {
    let [abort_task, abandon_task, abort_task_set, reset_unit, reset_target, preempt, lose_nexus, restart] =
        [(); 8].map(|()| often(random));
    Deeds { abort_task, abandon_task, abort_task_set, reset_unit, reset_target, preempt, lose_nexus, restart }
}

/// Stores that fail, hang, or both.
fn trouble(plan: &mut Plan, random: &mut Random) {
    plan.hanging_per_million = random.choose(&[0, 10_000, 50_000]);
    plan.stalls = random.range(0..=3);
    plan.patience = random.choose(&[None, Some(Duration::from_millis(50)), Some(Duration::from_secs(60))]);
    plan.healed_after = Duration::from_millis(random.choose(&[100, 2_000, 20_000]));
}

#[test]
fn tasks_of_all_shards_have_ended_when_a_reset_is_answered() {
    run_seeds("tasks_of_all_shards_have_ended_when_a_reset_is_answered", 300, |seed| {
        let random = &mut plan_random(40, seed);
        let mut plan = Plan::any(random);
        plan.shards = random.range(2..=4) as usize;
        plan.deeds.abort_task = often(random);
        plan.deeds.abort_task_set = often(random);
        plan.deeds.reset_unit = 100_000;
        plan.deeds.reset_target = often(random);
        live(plan, seed)
    });
}

#[test]
fn tasks_of_a_preempted_initiator_have_ended_when_preempt_and_abort_is_answered() {
    run_seeds("tasks_of_a_preempted_initiator_have_ended_when_preempt_and_abort_is_answered", 300, |seed| {
        let random = &mut plan_random(41, seed);
        let mut plan = Plan::any(random);
        plan.shards = random.range(2..=4) as usize;
        plan.deeds.preempt = random.choose(&[50_000, 300_000]);
        plan.deeds.lose_nexus = often(random);
        live(plan, seed)
    });
}

#[test]
fn a_lost_nexus_keeps_its_blocks_until_its_writes_have_ended() {
    run_seeds("a_lost_nexus_keeps_its_blocks_until_its_writes_have_ended", 300, |seed| {
        let random = &mut plan_random(42, seed);
        let mut plan = Plan::any(random);
        plan.disk.delay_us.1 = random.choose(&[2_000, 300_000, 5_000_000]);
        plan.disk.slow_per_million = 0;
        plan.deeds.lose_nexus = random.choose(&[50_000, 200_000]);
        plan.deeds.restart = often(random);
        plan.deeds.abandon_task = often(random);
        live(plan, seed)
    });
}

/// Nobody looks for memory: a shard tries what waits only when its region has told of a release.
#[test]
fn commands_that_wait_for_memory_are_woken_when_some_comes_free() {
    run_seeds("commands_that_wait_for_memory_are_woken_when_some_comes_free", 300, |seed| {
        let random = &mut plan_random(46, seed);
        let mut plan = Plan::any(random);
        plan.memory_bytes = random.choose(&[4 << 10, 8 << 10, 16 << 10]);
        plan.depth = random.range(3..=8) as usize;
        plan.deeds.abort_task = often(random);
        plan.deeds.abandon_task = often(random);
        plan.deeds.lose_nexus = often(random);
        plan.deeds.restart = often(random);
        live(plan, seed)
    });
}

#[test]
fn stores_that_are_full_gone_or_hang_cost_time_and_nothing_else() {
    run_seeds("stores_that_are_full_gone_or_hang_cost_time_and_nothing_else", 300, |seed| {
        let random = &mut plan_random(43, seed);
        let mut plan = Plan::any(random);
        trouble(&mut plan, random);
        live(plan, seed)
    });
}

#[test]
fn everything_at_once_ends_well() {
    run_seeds("everything_at_once_ends_well", 400, |seed| {
        let random = &mut plan_random(44, seed);
        let mut plan = Plan::any(random);
        trouble(&mut plan, random);
        plan.deeds = any_deeds(random);
        live(plan, seed)
    });
}

/// Their ends come in any order, late, for what was done twice, or never: then the request is taken for lost.
#[test]
fn stores_that_do_their_requests_in_other_threads_are_like_any_other() {
    run_seeds("stores_that_do_their_requests_in_other_threads_are_like_any_other", 400, |seed| {
        let random = &mut plan_random(45, seed);
        let mut plan = Plan::any(random);
        trouble(&mut plan, random);
        plan.pending_per_million = random.choose(&[500_000, 1_000_000]);
        plan.split_per_million = random.choose(&[0, 500_000]);
        plan.dropped_per_million = random.choose(&[0, 20_000, 100_000]);
        plan.deeds = any_deeds(random);
        live(plan, seed)
    });
}
