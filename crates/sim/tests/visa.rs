//! Thousands of seeds of VISA, in both modes and over TCP, by what goes wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sanwire_core::Protection;
use sanwire_sim::derived::DerivedPlan;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};
use sanwire_sim::visa::plan::{Fault, LinkFault, Plan};
use sanwire_sim::visa::wire::World;
use sanwire_sim::world::Outcome;

/// A lossy, doubling, reordering link, more or less.
fn bad_link(plan: &mut Plan, random: &mut Random) {
    plan.wire.link.loss_per_million = random.choose(&[0, 1_000, 20_000, 100_000, 300_000]);
    plan.wire.link.duplicate_per_million = random.choose(&[0, 10_000, 200_000]);
    plan.wire.link.damage_per_million = random.choose(&[0, 10_000]);
    plan.wire.link.jitter_us = random.choose(&[0, 10, 1_000, 20_000]);
}

/// A slow disk that fails now and then.
fn bad_disk(plan: &mut Plan, random: &mut Random) {
    plan.disk.delay_us = random.choose(&[(0, 0), (1, 50), (10, 20_000)]);
    plan.disk.slow_per_million = random.choose(&[0, 20_000]);
    plan.disk.error_per_million = random.choose(&[0, 0, 50_000]);
}

/// A server with hardly more than the largest command takes.
fn little_memory(plan: &mut Plan, random: &mut Random) {
    let least = (plan.work.blocks_max as usize * 512).max(8 * 512).next_multiple_of(4096);
    plan.server_memory_bytes = least * random.range(1..=3) as usize;
}

/// Moments before the world is healed, in order.
fn moments(plan: &Plan, random: &mut Random, most: u64) -> Vec<Duration> {
    let healed_us = plan.healed_after.as_micros() as u64;
    let mut moments: Vec<Duration> =
        (0..random.range(1..=most)).map(|_| random.micros(0..=healed_us * 9 / 10)).collect();
    moments.sort_unstable();
    moments
}

fn kills(plan: &mut Plan, random: &mut Random, fault: Fault) {
    for at in moments(plan, random, 4) {
        let down = random.choose(&[1, 10_000, 300_000, 2_000_000]);
        plan.faults.push((at, fault));
        plan.faults.push((at + random.micros(0..=down), Fault::Start));
    }
}

fn cuts(plan: &mut Plan, random: &mut Random) {
    for at in moments(plan, random, 4) {
        let client = random.range(0..=plan.clients as u64 - 1) as usize;
        let (there, back) = random.choose(&[(true, true), (true, false), (false, true)]);
        plan.faults.push((at, Fault::Wire(LinkFault::Cut { client, there, back })));
        let length_us = random.choose(&[10_000, 500_000, 2_000_000, 8_000_000]);
        plan.faults.push((at + random.micros(0..=length_us), Fault::Wire(LinkFault::Mend(client))));
    }
}

/// Whether so many seeds are run as a test does of itself.
fn is_whole() -> bool {
    std::env::var_os("SANWIRE_SEED").is_none() && std::env::var_os("SANWIRE_SEEDS").is_none()
}

fn live(plan: Plan, seed: u64) -> Outcome<()> {
    World::live(plan, seed).map(drop)
}

#[test]
fn loss_in_modern_mode() {
    run_seeds("loss_in_modern_mode", 700, |seed| {
        let random = &mut plan_random(201, seed);
        let mut plan = Plan::any(random);
        bad_link(&mut plan, random);
        bad_disk(&mut plan, random);
        let world = World::live(plan, seed)?;
        if matches!(world.wire.modes, [0, 1..=u64::MAX]) {
            Ok(())
        } else {
            Err("nobody asked for classic mode".to_owned())
        }
    });
}

#[test]
fn loss_in_classic_mode() {
    run_seeds("loss_in_classic_mode", 700, |seed| {
        let random = &mut plan_random(202, seed);
        let mut plan = Plan::any_classic(random);
        bad_link(&mut plan, random);
        bad_disk(&mut plan, random);
        // A timer of a second for each of many losses in a row.
        plan.wire.link.loss_per_million = plan.wire.link.loss_per_million.min(100_000);
        let world = World::live(plan, seed)?;
        if matches!(world.wire.modes, [1..=u64::MAX, 0]) {
            Ok(())
        } else {
            Err("classic mode was asked for".to_owned())
        }
    });
}

/// Without a check what is damaged passes; but for that all holds.
#[test]
fn without_a_check() {
    run_seeds("without_a_check", 300, |seed| {
        let random = &mut plan_random(203, seed);
        let mut plan = Plan::any_mode(random);
        bad_link(&mut plan, random);
        plan.wire.link.damage_per_million = 0;
        plan.wire.wishes[random.range(0..=1) as usize].unchecked = true;
        (plan.wire.protection, plan.wire.protection_min) = (Protection::Checksum, Protection::Checksum);
        live(plan, seed)
    });
}

#[test]
fn partition() {
    run_seeds("partition", 600, |seed| {
        let random = &mut plan_random(204, seed);
        let mut plan = Plan::any_mode(random);
        bad_disk(&mut plan, random);
        if random.chance(300_000) {
            bad_link(&mut plan, random);
        }
        plan.wire.session_idle_max = Duration::from_millis(random.choose(&[200, 5_000, 30_000]));
        plan.healed_after = random.micros(1_000_000..=12_000_000);
        cuts(&mut plan, random);
        live(plan, seed)
    });
}

#[test]
fn restart() {
    run_seeds("restart", 700, |seed| {
        let random = &mut plan_random(205, seed);
        let mut plan = Plan::any_mode(random);
        bad_disk(&mut plan, random);
        if random.chance(300_000) {
            bad_link(&mut plan, random);
        }
        let fault = random.choose(&[Fault::Kill, Fault::Kill, Fault::ShutDown]);
        kills(&mut plan, random, fault);
        live(plan, seed)
    });
}

/// Requests that come again after a cut, or at a server that was restarted, are none.
#[test]
fn requests_to_manage_are_done_once_for_those_who_may() {
    let done = AtomicU64::new(0);
    run_seeds("visa_requests_to_manage", 300, |seed| {
        let random = &mut plan_random(214, seed);
        let mut plan = Plan::any_mode(random);
        (plan.work.manage_per_million, plan.work.count_per_million) = (300_000, 0);
        plan.work.managers = random.range(0..=plan.clients as u64) as usize;
        if random.chance(300_000) {
            (plan.wire.is_stream, plan.wire.claimed_bytes) = (true, 60_000);
        } else {
            bad_link(&mut plan, random);
            plan.wire.link.loss_per_million = plan.wire.link.loss_per_million.min(100_000);
        }
        match random.range(0..=2) {
            0 => cuts(&mut plan, random),
            1 => kills(&mut plan, random, Fault::Kill),
            _ => {
                plan.wire.protection = random.choose(&Protection::ALL[1..]);
                plan.wire.attacks = random.choose(&[10, 300]);
            }
        }
        let world = World::live(plan, seed)?;
        done.fetch_add(world.counts.len() as u64, Ordering::Relaxed);
        Ok(())
    });
    assert!(!is_whole() || done.load(Ordering::Relaxed) > 300, "nothing is managed");
}

#[test]
fn power_failure() {
    run_seeds("power_failure", 400, |seed| {
        let random = &mut plan_random(206, seed);
        let mut plan = Plan::any_mode(random);
        bad_disk(&mut plan, random);
        plan.work.blocks_max = random.choose(&[1, 4, 16]);
        plan.blocks = random.choose(&[64, 2048]);
        kills(&mut plan, random, Fault::LosePower);
        live(plan, seed)
    });
}

/// Some may not use what is served, and some may only read there: nothing comes of what they write.
#[test]
fn derived_for_some() {
    run_seeds("derived_for_some", 200, |seed| {
        let random = &mut plan_random(214, seed);
        let mut plan = Plan::any_mode(random);
        plan.derive_for_some(random);
        bad_disk(&mut plan, random);
        bad_link(&mut plan, random);
        if random.chance(500_000) {
            let fault = random.choose(&[Fault::Kill, Fault::ShutDown, Fault::LosePower]);
            kills(&mut plan, random, fault);
        }
        live(plan, seed)
    });
}

/// What is served is a part of the disk, in several places of it.
#[test]
fn derived() {
    run_seeds("derived", 200, |seed| {
        let random = &mut plan_random(213, seed);
        let mut plan = Plan::any_mode(random);
        plan.derived = Some(DerivedPlan::of(random.range(1..=6)));
        bad_disk(&mut plan, random);
        if random.chance(300_000) {
            bad_link(&mut plan, random);
        }
        let fault = random.choose(&[Fault::Kill, Fault::ShutDown, Fault::LosePower]);
        kills(&mut plan, random, fault);
        live(plan, seed)
    });
}

/// Who hears everything, and has no key, gets nothing by it where data is authenticated.
#[test]
fn corruption_and_attacker() {
    run_seeds("corruption_and_attacker", 600, |seed| {
        let random = &mut plan_random(207, seed);
        let mut plan = Plan::any_mode(random);
        if random.chance(300_000) {
            bad_link(&mut plan, random);
        }
        plan.wire.link.damage_per_million = random.choose(&[0, 1_000, 100_000]);
        plan.wire.protection = random.choose(&Protection::ALL[1..]);
        plan.wire.attacks = random.choose(&[10, 300, 2_000]);
        live(plan, seed)
    });
}

#[test]
fn tiny_memory() {
    run_seeds("tiny_memory", 400, |seed| {
        let random = &mut plan_random(208, seed);
        let mut plan = Plan::any_mode(random);
        bad_disk(&mut plan, random);
        if random.chance(300_000) {
            bad_link(&mut plan, random);
        }
        plan.work.depth = random.range(4..=16) as usize;
        little_memory(&mut plan, random);
        let largest = plan.work.blocks_max as usize * 512;
        plan.client_memory_bytes = largest.next_multiple_of(4096).max(128 * 512) * 2;
        live(plan, seed)
    });
}

#[test]
fn clients_come_and_go() {
    run_seeds("clients_come_and_go", 300, |seed| {
        let random = &mut plan_random(209, seed);
        let mut plan = Plan::any_mode(random);
        bad_disk(&mut plan, random);
        if random.chance(300_000) {
            bad_link(&mut plan, random);
        }
        plan.wire.session_idle_max = Duration::from_secs(random.choose(&[1, 10]));
        for at in moments(&plan, random, 4) {
            let client = random.range(0..=plan.clients as u64 - 1) as usize;
            plan.faults.push((at, Fault::Wire(LinkFault::Replace(client))));
        }
        live(plan, seed)
    });
}

/// Programs that are killed and run again, by another port or connection, and find what they have left: with little memory it waits.
#[test]
fn killed_clients_run_again() {
    run_seeds("killed_clients_run_again", 400, |seed| {
        let random = &mut plan_random(212, seed);
        let mut plan = Plan::any_mode(random);
        bad_disk(&mut plan, random);
        if random.chance(500_000) {
            (plan.wire.is_stream, plan.wire.claimed_bytes) = (true, 60_000);
        }
        // What the next run reads and writes is what the last one did.
        plan.blocks = random.choose(&[16, 64, 1024]);
        plan.work.blocks_max = plan.work.blocks_max.min(plan.blocks);
        if random.chance(500_000) {
            little_memory(&mut plan, random);
        }
        plan.work.depth = random.range(4..=16) as usize;
        for at in moments(&plan, random, 4) {
            let client = random.range(0..=plan.clients as u64 - 1) as usize;
            let later = random.choose(&[0, 1_000, 50_000, 1_000_000]);
            plan.faults.push((at, Fault::Wire(LinkFault::Rerun(client, random.micros(0..=later)))));
        }
        live(plan, seed)
    });
}

/// Connections that are cut, a server that dies; where there is little memory, what has come is not read for a while.
#[test]
fn over_tcp() {
    run_seeds("over_tcp", 300, |seed| {
        let random = &mut plan_random(210, seed);
        let mut plan = Plan::any_mode(random);
        plan.wire.is_stream = true;
        plan.wire.claimed_bytes = 60_000;
        bad_disk(&mut plan, random);
        cuts(&mut plan, random);
        if random.chance(500_000) {
            little_memory(&mut plan, random);
        }
        if random.chance(500_000) {
            kills(&mut plan, random, Fault::Kill);
        }
        live(plan, seed)
    });
}

#[test]
fn the_same_seed_is_the_same_world() {
    run_seeds("the_same_seed_is_the_same_world", 50, |seed| {
        let run = || {
            let random = &mut plan_random(211, seed);
            let mut plan = Plan::any_mode(random);
            bad_link(&mut plan, random);
            bad_disk(&mut plan, random);
            kills(&mut plan, random, Fault::Kill);
            plan.wire.protection = Protection::Hash;
            plan.wire.attacks = 100;
            World::live(plan, seed).map(|world| world.trace())
        };
        let (first, second) = (run()?, run()?);
        if first == second { Ok(()) } else { Err("two runs differ".to_owned()) }
    });
}
