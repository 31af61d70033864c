//! Thousands of seeds, by what goes wrong.

use std::time::Duration;

use sanwire_hyperscsi::Stance;
use sanwire_sim::derived::DerivedPlan;
use sanwire_sim::hyperscsi::plan::{Fault, LinkFault, Plan};
use sanwire_sim::hyperscsi::wire::World;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};

/// A lossy, doubling, reordering link, more or less.
fn bad_link(plan: &mut Plan, random: &mut Random) {
    plan.wire.link.loss_per_million = random.choose(&[0, 1_000, 20_000, 100_000, 300_000]);
    plan.wire.link.duplicate_per_million = random.choose(&[0, 10_000, 200_000]);
    plan.wire.link.jitter_us = random.choose(&[0, 10, 1_000, 20_000]);
}

/// A slow disk that fails now and then.
fn bad_disk(plan: &mut Plan, random: &mut Random) {
    plan.disk.delay_us = random.choose(&[(0, 0), (1, 50), (10, 20_000)]);
    plan.disk.slow_per_million = random.choose(&[0, 20_000]);
    plan.disk.error_per_million = random.choose(&[0, 0, 50_000]);
}

/// Moments before the world is healed, in order.
fn moments(plan: &Plan, random: &mut Random, most: u64) -> Vec<Duration> {
    let healed_us = plan.healed_after.as_micros() as u64;
    let mut moments: Vec<Duration> =
        (0..random.range(1..=most)).map(|_| random.micros(0..=healed_us * 9 / 10)).collect();
    moments.sort_unstable();
    moments
}

/// The least memory of a server: for the longest of what its clients send, and for what comes of it when it is expanded.
fn least_memory_bytes(plan: &Plan) -> usize {
    let may_be_compressed = plan.wire.terms.iter().any(|terms| terms.client.compression != Stance::Ignored);
    plan.work.blocks_max as usize * 512 * if may_be_compressed { 2 } else { 1 }
}

fn kills(plan: &mut Plan, random: &mut Random, fault: Fault) {
    for at in moments(plan, random, 4) {
        let down = random.choose(&[1, 10_000, 300_000, 2_000_000]);
        plan.faults.push((at, fault));
        plan.faults.push((at + random.micros(0..=down), Fault::Start));
    }
}

#[test]
fn loss() {
    run_seeds("loss", 2500, |seed| {
        let random = &mut plan_random(1, seed);
        let mut plan = Plan::any(random);
        bad_link(&mut plan, random);
        bad_disk(&mut plan, random);
        World::live(plan, seed).map(drop)
    });
}

/// Some may not use what is served, and some may only read there: nothing comes of what they write.
#[test]
fn derived_for_some() {
    run_seeds("derived_for_some", 200, |seed| {
        let random = &mut plan_random(14, seed);
        let mut plan = Plan::any(random);
        plan.derive_for_some(random);
        bad_disk(&mut plan, random);
        bad_link(&mut plan, random);
        if random.chance(500_000) {
            let fault = random.choose(&[Fault::Kill, Fault::ShutDown, Fault::LosePower]);
            kills(&mut plan, random, fault);
        }
        World::live(plan, seed).map(drop)
    });
}

/// What is served is a part of the disk, in several places of it.
#[test]
fn derived() {
    run_seeds("derived", 200, |seed| {
        let random = &mut plan_random(13, seed);
        let mut plan = Plan::any(random);
        plan.derived = Some(DerivedPlan::of(random.range(1..=6)));
        bad_disk(&mut plan, random);
        if random.chance(300_000) {
            bad_link(&mut plan, random);
        }
        let fault = random.choose(&[Fault::Kill, Fault::ShutDown, Fault::LosePower]);
        kills(&mut plan, random, fault);
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn partition() {
    run_seeds("partition", 1500, |seed| {
        let random = &mut plan_random(2, seed);
        let mut plan = Plan::any(random);
        bad_disk(&mut plan, random);
        if random.chance(300_000) {
            bad_link(&mut plan, random);
        }
        plan.wire.session_idle_max = Duration::from_millis(random.choose(&[200, 5_000, 30_000]));
        plan.healed_after = random.micros(1_000_000..=12_000_000);
        for at in moments(&plan, random, 4) {
            let client = random.range(0..=plan.clients as u64 - 1) as usize;
            let (there, back) = random.choose(&[(true, true), (true, false), (false, true)]);
            plan.faults.push((at, Fault::Wire(LinkFault::Cut { client, there, back })));
            let length_us = random.choose(&[10_000, 500_000, 2_000_000, 8_000_000]);
            plan.faults.push((at + random.micros(0..=length_us), Fault::Wire(LinkFault::Mend(client))));
        }
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn restart() {
    run_seeds("restart", 2000, |seed| {
        let random = &mut plan_random(3, seed);
        let mut plan = Plan::any(random);
        bad_disk(&mut plan, random);
        if random.chance(300_000) {
            bad_link(&mut plan, random);
        }
        let fault = random.choose(&[Fault::Kill, Fault::Kill, Fault::ShutDown]);
        kills(&mut plan, random, fault);
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn power_failure() {
    run_seeds("power_failure", 1500, |seed| {
        let random = &mut plan_random(4, seed);
        let mut plan = Plan::any(random);
        bad_disk(&mut plan, random);
        plan.work.blocks_max = random.choose(&[1, 4, 16]);
        plan.blocks = random.choose(&[64, 2048]);
        kills(&mut plan, random, Fault::LosePower);
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn corruption_and_attacker() {
    run_seeds("corruption_and_attacker", 1500, |seed| {
        let random = &mut plan_random(5, seed);
        let mut plan = Plan::any(random);
        if random.chance(300_000) {
            bad_link(&mut plan, random);
        }
        plan.wire.link.damage_per_million = random.choose(&[0, 1_000, 100_000]);
        plan.wire.attacks = random.choose(&[10, 300, 2_000]);
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn tiny_memory() {
    run_seeds("tiny_memory", 1500, |seed| {
        let random = &mut plan_random(6, seed);
        let mut plan = Plan::any(random);
        bad_disk(&mut plan, random);
        if random.chance(300_000) {
            bad_link(&mut plan, random);
        }
        plan.work.depth = random.range(4..=16) as usize;
        let largest = plan.work.blocks_max as usize * 512;
        let least = least_memory_bytes(&plan).max(8 * 512).next_multiple_of(4096);
        plan.server_memory_bytes = least * random.range(1..=3) as usize;
        plan.client_memory_bytes = largest.next_multiple_of(4096).max(128 * 512) * 2;
        World::live(plan, seed).map(drop)
    });
}

/// Requests overtake each other on their way to a server that has room for one of them.
#[test]
fn overtaken_requests_find_room() {
    run_seeds("overtaken_requests_find_room", 500, |seed| {
        let random = &mut plan_random(10, seed);
        let mut plan = Plan::any(random);
        plan.wire.link.jitter_us = random.choose(&[100, 1_000, 5_000]);
        plan.clients = 2;
        plan.wire.capacity_packets = random.choose(&[1, 2, 3, 16, 64]);
        plan.work.blocks_max = random.choose(&[8, 16]);
        plan.work.depth = random.range(4..=12) as usize;
        plan.server_memory_bytes = least_memory_bytes(&plan);
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn changing_path() {
    run_seeds("changing_path", 500, |seed| {
        let random = &mut plan_random(7, seed);
        let mut plan = Plan::any(random);
        for at in moments(&plan, random, 3) {
            let fault = match random.range(0..=2) {
                0 => Fault::Wire(LinkFault::Narrow(random.range(1500..=plan.wire.claimed_bytes as u64) as usize)),
                // A window of a few packets moves so many bytes each round trip, no more.
                _ => Fault::Wire(LinkFault::Lengthen(
                    random.range(1..=if plan.wire.capacity_packets < 64 { 5_000 } else { 50_000 }),
                )),
            };
            plan.faults.push((at, fault));
        }
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn either_end_is_paused_and_resumed() {
    run_seeds("either_end_is_paused_and_resumed", 500, |seed| {
        let random = &mut plan_random(11, seed);
        let mut plan = Plan::any(random);
        if random.chance(300_000) {
            bad_link(&mut plan, random);
        }
        for at in moments(&plan, random, 4) {
            let client = random.range(0..=plan.clients as u64 - 1) as usize;
            let after = random.micros(0..=2_000_000);
            let (pause, resume) = match random.chance(500_000) {
                true => (LinkFault::Pause(client), LinkFault::Resume(client)),
                false => (LinkFault::PauseServer(client), LinkFault::ResumeServer(client)),
            };
            plan.faults.push((at, Fault::Wire(pause)));
            plan.faults.push((at + after, Fault::Wire(resume)));
            if random.chance(300_000) {
                plan.faults.push((at, Fault::Wire(LinkFault::Cut { client, there: true, back: true })));
                plan.faults.push((at + random.micros(0..=4_000_000), Fault::Wire(LinkFault::Mend(client))));
            }
        }
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn clients_come_and_go() {
    run_seeds("clients_come_and_go", 500, |seed| {
        let random = &mut plan_random(8, seed);
        let mut plan = Plan::any(random);
        bad_disk(&mut plan, random);
        if random.chance(300_000) {
            bad_link(&mut plan, random);
        }
        plan.wire.session_idle_max = Duration::from_secs(random.choose(&[1, 10]));
        for at in moments(&plan, random, 4) {
            plan.faults.push((at, Fault::Wire(LinkFault::Replace(random.range(0..=plan.clients as u64 - 1) as usize))));
        }
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn the_same_seed_is_the_same_world() {
    run_seeds("the_same_seed_is_the_same_world", 100, |seed| {
        let run = || {
            let random = &mut plan_random(9, seed);
            let mut plan = Plan::any(random);
            bad_link(&mut plan, random);
            bad_disk(&mut plan, random);
            kills(&mut plan, random, Fault::Kill);
            plan.wire.attacks = 100;
            World::live(plan, seed).map(|world| world.trace())
        };
        let (first, second) = (run()?, run()?);
        if first == second { Ok(()) } else { Err("two runs differ".to_owned()) }
    });
}
