//! ATA over Ethernet, both ends, over a bad Ethernet and a disk that is slow and loses its cache: no write that was acknowledged and
//! flushed is lost, and nothing old is read, whatever was sent again and came late.

mod attacker;
mod world;

use sanwire_sim::derived::DerivedPlan;
use sanwire_sim::disk::DiskPlan;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};

use self::world::{Fault, Plan, World};

const QUICK: DiskPlan = DiskPlan {
    delay_us: (1, 50),
    flush_us: 100,
    slow_per_million: 0,
    error_per_million: 0,
    loss_per_million: 0,
    early_per_million: 0,
};

fn plan(random: &mut Random) -> Plan {
    Plan {
        blocks: random.choose(&[8, 64, 200]),
        derived: None,
        clients: random.range(1..=2) as usize,
        operations: random.range(20..=60) as usize,
        depth: random.choose(&[1, 4, 16]),
        packet_max_bytes: random.choose(&[1500, 4200, 9000]),
        buffers: random.choose(&[1, 3, 16, 64]),
        loss_per_million: 0,
        duplicate_per_million: 0,
        jitter_us: 10,
        disk: QUICK,
        faults: Vec::new(),
        is_attacked: false,
    }
}

fn bad_link(plan: &mut Plan, random: &mut Random) {
    plan.loss_per_million = random.choose(&[0, 10_000, 100_000, 300_000]);
    plan.duplicate_per_million = random.choose(&[0, 50_000, 300_000]);
    plan.jitter_us = random.choose(&[10, 1_000, 40_000, 300_000]);
}

fn slow_disk(plan: &mut Plan, random: &mut Random) {
    let delay_us = random.choose(&[(1, 50), (10, 3_000), (100, 8_000)]);
    plan.disk = DiskPlan { delay_us, slow_per_million: random.choose(&[0, 20_000]), ..QUICK };
}

/// Deaths and returns of the server, with the power or without.
fn deaths(plan: &mut Plan, random: &mut Random) {
    for _ in 0..random.range(1..=3) {
        let at = random.micros(1_000..=1_500_000);
        let down = random.choose(&[1, 20_000, 800_000, 7_000_000]);
        plan.faults.push((at, if random.chance(400_000) { Fault::LosePower } else { Fault::Kill }));
        plan.faults.push((at + random.micros(1..=down), Fault::Start));
    }
}

#[test]
fn aoe_loss() {
    run_seeds("aoe_loss", 3000, |seed| {
        let random = &mut plan_random(61, seed);
        let mut plan = plan(random);
        bad_link(&mut plan, random);
        slow_disk(&mut plan, random);
        World::live(plan, seed)
    });
}

#[test]
fn aoe_deaths() {
    run_seeds("aoe_deaths", 2000, |seed| {
        let random = &mut plan_random(62, seed);
        let mut plan = plan(random);
        if random.chance(500_000) {
            bad_link(&mut plan, random);
        }
        // A frame that is doubled, and comes when the server that has obeyed it is not there any more, is obeyed once more.
        plan.duplicate_per_million = 0;
        slow_disk(&mut plan, random);
        deaths(&mut plan, random);
        World::live(plan, seed)
    });
}

/// What is served is a part of the disk, in several places of it.
#[test]
fn aoe_derived() {
    run_seeds("aoe_derived", 200, |seed| {
        let random = &mut plan_random(65, seed);
        let mut plan = plan(random);
        plan.derived = Some(DerivedPlan::of(random.range(1..=6)));
        if random.chance(500_000) {
            bad_link(&mut plan, random);
        }
        // As in `aoe_deaths`.
        plan.duplicate_per_million = 0;
        slow_disk(&mut plan, random);
        deaths(&mut plan, random);
        World::live(plan, seed)
    });
}

/// A station that the server knows, and that may not use what is served, hears all and does what it can; some others may only read.
/// Nothing comes of what they write.
#[test]
fn aoe_derived_for_some() {
    run_seeds("aoe_derived_for_some", 200, |seed| {
        let random = &mut plan_random(67, seed);
        let mut plan = plan(random);
        plan.clients = 2;
        let (readers, hesitates) = (random.range(0..=1) as usize, random.chance(500_000));
        plan.derived = Some(DerivedPlan { outsiders: 1, readers, hesitates, ..DerivedPlan::of(random.range(1..=6)) });
        if random.chance(500_000) {
            bad_link(&mut plan, random);
        }
        slow_disk(&mut plan, random);
        plan.is_attacked = true;
        World::live(plan, seed)
    });
}

/// Requests fail, and flushes fail that have lost something, while what is said of it is lost on the way, too.
#[test]
fn aoe_errors() {
    run_seeds("aoe_errors", 1000, |seed| {
        let random = &mut plan_random(64, seed);
        let mut plan = plan(random);
        bad_link(&mut plan, random);
        slow_disk(&mut plan, random);
        plan.disk.error_per_million = random.choose(&[0, 20_000, 100_000]);
        plan.disk.loss_per_million = random.choose(&[0, 100_000, 500_000]);
        for _ in 0..random.range(0..=4) {
            plan.faults.push((random.micros(1_000..=3_000_000), Fault::Evict));
        }
        World::live(plan, seed)
    });
}

/// The Ethernet is cut, and comes back, before a target is taken to be away and after it.
#[test]
fn aoe_cuts() {
    run_seeds("aoe_cuts", 500, |seed| {
        let random = &mut plan_random(65, seed);
        let mut plan = plan(random);
        bad_link(&mut plan, random);
        slow_disk(&mut plan, random);
        for _ in 0..random.range(1..=4) {
            let cut = Fault::Cut(random.range(1_000..=8_000_000));
            plan.faults.push((random.micros(0..=2_500_000), cut));
        }
        World::live(plan, seed)
    });
}

/// A station that is not admitted hears all, and does what it can: nobody else notices.
#[test]
fn aoe_attacks() {
    run_seeds("aoe_attacks", 500, |seed| {
        let random = &mut plan_random(66, seed);
        let mut plan = plan(random);
        if random.chance(500_000) {
            bad_link(&mut plan, random);
        }
        slow_disk(&mut plan, random);
        plan.is_attacked = true;
        World::live(plan, seed)
    });
}

/// The same seed goes the same way: without that none could be looked into.
#[test]
fn aoe_seeds_are_repeated() {
    let run = |seed| {
        let random = &mut plan_random(63, seed);
        let mut plan = plan(random);
        bad_link(&mut plan, random);
        deaths(&mut plan, random);
        World::trace(plan, seed)
    };
    (0..20).for_each(|seed| assert_eq!(run(seed), run(seed), "seed {seed}"));
}
