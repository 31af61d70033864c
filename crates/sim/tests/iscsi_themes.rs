//! Thousands of seeds of iSCSI, by what goes wrong.

use std::time::Duration;

use sanwire_sim::derived::DerivedPlan;
use sanwire_sim::iscsi::plan::{Fault, Plan, StreamFault};
use sanwire_sim::iscsi::wire::World;
use sanwire_sim::random::Random;
use sanwire_sim::rdma::AdapterPlan;
use sanwire_sim::seeds::{plan_random, run_seeds};
use sanwire_sim::world::Outcome;

/// A slow disk that fails now and then.
fn bad_disk(plan: &mut Plan, random: &mut Random) {
    plan.disk.delay_us = random.choose(&[(0, 0), (1, 50), (10, 20_000)]);
    plan.disk.slow_per_million = random.choose(&[0, 20_000]);
    plan.disk.error_per_million = random.choose(&[0, 0, 50_000]);
}

/// Moments before the world is healed, in order.
fn moments(plan: &Plan, random: &mut Random, most: u64) -> Vec<Duration> {
    // Most work is done soon.
    let last_us = random.choose(&[3_000, 50_000, plan.healed_after.as_micros() as u64 * 9 / 10]);
    let mut moments: Vec<Duration> = (0..random.range(1..=most)).map(|_| random.micros(0..=last_us)).collect();
    moments.sort_unstable();
    moments
}

fn kills(plan: &mut Plan, random: &mut Random, fault: Fault) {
    for at in moments(plan, random, 3) {
        let down_us = random.choose(&[1, 10_000, 300_000, 2_000_000]);
        plan.faults.push((at, fault));
        plan.faults.push((at + random.micros(0..=down_us), Fault::Start));
    }
}

fn cuts(plan: &mut Plan, random: &mut Random) {
    for at in moments(plan, random, 6) {
        let choices = [
            Fault::Wire(StreamFault::Cut),
            Fault::Wire(StreamFault::Cut),
            Fault::Wire(StreamFault::CutUnnoticedByServer),
            Fault::Wire(StreamFault::CutUnnoticedByClient),
        ];
        plan.faults.push((at, random.choose(&choices)));
    }
}

#[test]
fn iscsi_clean() {
    run_seeds("iscsi_clean", 300, |seed| {
        let random = &mut plan_random(21, seed);
        let mut plan = Plan::any(random);
        bad_disk(&mut plan, random);
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn iscsi_cuts() {
    run_seeds("iscsi_cuts", 1000, |seed| {
        let random = &mut plan_random(22, seed);
        let mut plan = Plan::any(random);
        bad_disk(&mut plan, random);
        cuts(&mut plan, random);
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn iscsi_corruption() {
    run_seeds("iscsi_corruption", 500, |seed| {
        let random = &mut plan_random(23, seed);
        let mut plan = Plan::any(random);
        plan.wire.wishes.digests = true;
        plan.wire.pieces.damage_per_million = random.choose(&[1_000, 20_000, 100_000]);
        if random.chance(300_000) {
            bad_disk(&mut plan, random);
            cuts(&mut plan, random);
        }
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn iscsi_partition() {
    run_seeds("iscsi_partition", 400, |seed| {
        let random = &mut plan_random(24, seed);
        let mut plan = Plan::any(random);
        bad_disk(&mut plan, random);
        for at in moments(&plan, random, 4) {
            let length_us = random.choose(&[10_000, 2_000_000, 8_000_000, 40_000_000]);
            plan.faults.push((at, Fault::Wire(StreamFault::Stall(random.micros(0..=length_us)))));
        }
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn iscsi_restart() {
    run_seeds("iscsi_restart", 600, |seed| {
        let random = &mut plan_random(25, seed);
        let mut plan = Plan::any(random);
        bad_disk(&mut plan, random);
        let fault = random.choose(&[Fault::Kill, Fault::Kill, Fault::ShutDown]);
        kills(&mut plan, random, fault);
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn iscsi_power_failure() {
    run_seeds("iscsi_power_failure", 400, |seed| {
        let random = &mut plan_random(26, seed);
        let mut plan = Plan::any(random);
        bad_disk(&mut plan, random);
        kills(&mut plan, random, Fault::LosePower);
        World::live(plan, seed).map(drop)
    });
}

/// Perhaps cuts, and a server that is killed, shut down, or loses its power.
fn everything(plan: &mut Plan, random: &mut Random) {
    if random.chance(500_000) {
        cuts(plan, random);
    }
    let fault = random.choose(&[Fault::Kill, Fault::ShutDown, Fault::LosePower]);
    kills(plan, random, fault);
}

/// The same, with a disk that fails.
fn live_through_everything(mut plan: Plan, random: &mut Random, seed: u64) -> Outcome<()> {
    bad_disk(&mut plan, random);
    everything(&mut plan, random);
    World::live(plan, seed).map(drop)
}

/// Some may not use what is served, and some may only read there: nothing comes of what they write.
#[test]
fn iscsi_derived_for_some() {
    run_seeds("iscsi_derived_for_some", 200, |seed| {
        let random = &mut plan_random(30, seed);
        let mut plan = Plan::any(random);
        plan.derive_for_some(random);
        live_through_everything(plan, random, seed)
    });
}

/// What is served is a part of the disk, in several places of it.
#[test]
fn iscsi_derived() {
    run_seeds("iscsi_derived", 200, |seed| {
        let random = &mut plan_random(29, seed);
        let mut plan = Plan::any(random);
        plan.derived = Some(DerivedPlan::of(random.range(1..=6)));
        live_through_everything(plan, random, seed)
    });
}

#[test]
fn iscsi_tiny_memory() {
    run_seeds("iscsi_tiny_memory", 500, |seed| {
        let random = &mut plan_random(27, seed);
        let mut plan = Plan::any(random);
        bad_disk(&mut plan, random);
        if random.chance(500_000) {
            cuts(&mut plan, random);
        }
        plan.work.depth = random.range(4..=16) as usize;
        let largest = plan.work.blocks_max as usize * 512;
        plan.server_memory_bytes = largest.max(8 * 512).next_multiple_of(4096) * random.range(2..=4) as usize;
        plan.client_memory_bytes = largest.next_multiple_of(4096).max(128 * 512) * 2;
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn the_same_seed_is_the_same_iscsi_world() {
    run_seeds("the_same_seed_is_the_same_iscsi_world", 50, |seed| {
        let run = || {
            let random = &mut plan_random(28, seed);
            let mut plan = Plan::any(random);
            bad_disk(&mut plan, random);
            cuts(&mut plan, random);
            kills(&mut plan, random, Fault::Kill);
            World::live(plan, seed).map(|world| world.trace())
        };
        let (first, second) = (run()?, run()?);
        if first == second { Ok(()) } else { Err("two runs differ".to_owned()) }
    });
}

/// What goes wrong, over RDMA.
fn iser(name: &'static str, count: u64, number: u64, change: impl Fn(&mut Plan, &mut Random) + Sync) {
    run_seeds(name, count, |seed| {
        let random = &mut plan_random(number, seed);
        let mut plan = Plan::any(random);
        plan.wire.is_iser = true;
        bad_disk(&mut plan, random);
        change(&mut plan, random);
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn iser_clean() {
    iser("iser_clean", 300, 221, |_, _| {});
}

#[test]
fn iser_cuts() {
    iser("iser_cuts", 600, 222, cuts);
}

/// Wherever a bit is wrong, a CRC of iWARP finds it, and the connection ends.
#[test]
fn iser_corruption() {
    iser("iser_corruption", 300, 223, |plan, random| {
        plan.wire.pieces.damage_per_million = random.choose(&[1_000, 5_000]);
    });
}

#[test]
fn iser_partition() {
    iser("iser_partition", 300, 224, |plan, random| {
        for at in moments(plan, random, 4) {
            let length_us = random.choose(&[10_000, 2_000_000, 8_000_000, 40_000_000]);
            plan.faults.push((at, Fault::Wire(StreamFault::Stall(random.micros(0..=length_us)))));
        }
    });
}

#[test]
fn iser_restart() {
    iser("iser_restart", 400, 225, |plan, random| {
        let fault = random.choose(&[Fault::Kill, Fault::ShutDown, Fault::LosePower]);
        kills(plan, random, fault);
    });
}

/// Some may not use what is served, and some may only read there: nothing comes of what they write, though its data is in their memory.
#[test]
fn iser_derived_for_some() {
    iser("iser_derived_for_some", 200, 230, |plan, random| {
        plan.derive_for_some(random);
        everything(plan, random);
    });
}

/// What is served is a part of the disk, in several places of it.
#[test]
fn iser_derived() {
    iser("iser_derived", 200, 229, |plan, random| {
        plan.derived = Some(DerivedPlan::of(random.range(1..=6)));
        everything(plan, random);
    });
}

#[test]
fn iser_tiny_memory() {
    iser("iser_tiny_memory", 300, 226, |plan, random| {
        if random.chance(500_000) {
            cuts(plan, random);
        }
        plan.work.depth = random.range(4..=16) as usize;
        let largest = plan.work.blocks_max as usize * 512;
        plan.server_memory_bytes = largest.max(8 * 512).next_multiple_of(4096) * random.range(2..=4) as usize;
        plan.client_memory_bytes = largest.next_multiple_of(4096).max(128 * 512) * 2;
    });
}

/// A disk that answers in any order, and connections that overtake each other.
#[test]
fn iser_reordered() {
    iser("iser_reordered", 300, 227, |plan, random| {
        plan.wire.wishes.connections = random.range(2..=4) as u16;
        plan.wire.pieces.delay_us = (10, 5_000);
        plan.wire.commands_max = 32;
        plan.work.depth = 12;
        (plan.disk.delay_us, plan.disk.slow_per_million) = ((1, 20_000), 20_000);
    });
}

/// Clients that send on and read nothing for a while.
fn slow_readers(plan: &mut Plan, random: &mut Random) {
    for at in moments(plan, random, 4) {
        let client = random.range(0..=plan.clients as u64 - 1) as usize;
        let length_us = random.choose(&[10_000, 2_000_000, 8_000_000]);
        let deaf_for = random.micros(0..=length_us);
        plan.faults.push((at, Fault::Wire(StreamFault::Deafen(client, deaf_for))));
    }
}

#[test]
fn iser_slow_readers() {
    iser("iser_slow_readers", 300, 228, slow_readers);
}

/// What goes wrong, by adapters of any kind.
fn by_adapters(name: &'static str, count: u64, number: u64, change: impl Fn(&mut Plan, &mut Random) + Sync) {
    iser(name, count, number, |plan, random| {
        plan.wire.adapters = Some([AdapterPlan::any(random), AdapterPlan::any(random)]);
        change(plan, random);
    });
}

#[test]
fn iser_by_adapters_clean() {
    by_adapters("iser_by_adapters_clean", 300, 231, |_, _| {});
}

#[test]
fn iser_by_adapters_cuts() {
    by_adapters("iser_by_adapters_cuts", 600, 232, cuts);
}

#[test]
fn iser_by_adapters_partition() {
    by_adapters("iser_by_adapters_partition", 200, 233, |plan, random| {
        for at in moments(plan, random, 4) {
            let length_us = random.choose(&[10_000, 2_000_000, 8_000_000, 40_000_000]);
            plan.faults.push((at, Fault::Wire(StreamFault::Stall(random.micros(0..=length_us)))));
        }
    });
}

/// Clients that do not ask their adapters for anything for a while, and send on.
#[test]
fn iser_by_adapters_slow_readers() {
    by_adapters("iser_by_adapters_slow_readers", 300, 239, slow_readers);
}

#[test]
fn iser_by_adapters_restart() {
    by_adapters("iser_by_adapters_restart", 400, 234, |plan, random| {
        let fault = random.choose(&[Fault::Kill, Fault::ShutDown, Fault::LosePower]);
        kills(plan, random, fault);
    });
}

#[test]
fn iser_by_adapters_tiny_memory() {
    by_adapters("iser_by_adapters_tiny_memory", 300, 235, |plan, random| {
        if random.chance(500_000) {
            cuts(plan, random);
        }
        plan.work.depth = random.range(4..=16) as usize;
        let largest = plan.work.blocks_max as usize * 512;
        plan.server_memory_bytes = largest.max(8 * 512).next_multiple_of(4096) * random.range(2..=4) as usize;
        plan.client_memory_bytes = largest.next_multiple_of(4096).max(128 * 512) * 2;
    });
}

/// A disk that answers in any order, and connections that overtake each other.
#[test]
fn iser_by_adapters_reordered() {
    by_adapters("iser_by_adapters_reordered", 300, 236, |plan, random| {
        plan.wire.wishes.connections = random.range(2..=4) as u16;
        plan.wire.pieces.delay_us = (10, 5_000);
        plan.wire.commands_max = 32;
        plan.work.depth = 12;
        (plan.disk.delay_us, plan.disk.slow_per_million) = ((1, 20_000), 20_000);
    });
}

/// Few receives for all connections of the server, and windows of the clients' adapters.
#[test]
fn iser_by_adapters_sharing() {
    by_adapters("iser_by_adapters_sharing", 300, 237, |plan, random| {
        let windows = AdapterPlan { has_memory_windows: true, ..AdapterPlan::any(random) };
        let shared_receives = random.range(1..=40) as usize;
        let shared = AdapterPlan { waits_for_receives: true, shared_receives, ..AdapterPlan::any(random) };
        plan.wire.adapters = Some([windows, shared]);
        plan.clients = random.range(2..=3) as usize;
        if random.chance(700_000) {
            everything(plan, random);
        }
    });
}
