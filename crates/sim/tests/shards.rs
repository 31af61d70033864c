//! Several shards behind one address, many clients, and steering that errs: a session lives in one shard, whatever comes where.

use std::time::Duration;

use sanwire_sim::hyperscsi::plan::{Fault, LinkFault, Medium, Plan};
use sanwire_sim::hyperscsi::wire::World;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};
use sanwire_sim::world::Outcome;

/// Many clients at several shards, on a slow disk, with much that must not be executed twice.
fn many_clients(random: &mut Random) -> Plan {
    let mut plan = Plan::any(random);
    plan.clients = random.range(2..=10) as usize;
    plan.wire.shards = random.range(2..=4) as usize;
    plan.wire.terms.clear();
    plan.wire.capacity_packets = random.choose(&[16, 256, 1024]);
    plan.wire.rekey_interval = Duration::from_secs(3600);
    plan.work.managers = random.range(0..=plan.clients as u64) as usize;
    plan.work.commands = random.range(10..=25);
    plan.work.depth = random.range(1..=6) as usize;
    plan.work.blocks_max = random.choose(&[1, 8, 64]);
    plan.work.count_per_million = random.choose(&[50_000, 300_000]);
    plan.work.think_us = random.choose(&[100, 20_000, 200_000]);
    plan.disk.delay_us = random.choose(&[(1, 50), (10, 20_000), (1_000, 400_000)]);
    plan.blocks = 256;
    plan
}

/// Ports of some shards go away, often of all at once, and are there again one after another.
fn lose_ports(plan: &mut Plan, random: &mut Random) {
    let links = plan.wire.media().len();
    let healed_us = plan.healed_after.as_micros() as u64;
    for _ in 0..random.range(1..=3) {
        let at = random.micros(0..=healed_us * 9 / 10);
        let link = random.range(0..=links as u64 - 1) as usize;
        let is_whole = random.chance(500_000);
        for shard in (0..plan.wire.shards).filter(|_| is_whole || random.chance(500_000)).collect::<Vec<_>>() {
            let longest = random.choose(&[1_000, 100_000, 2_000_000]);
            let after = random.micros(0..=longest);
            plan.faults.push((at, Fault::Wire(LinkFault::LosePort { link, shard })));
            plan.faults.push((at + after, Fault::Wire(LinkFault::OpenPort { link, shard })));
        }
    }
}

/// While the server runs, nobody is told that it was restarted.
fn nobody_is_in_doubt(world: &World) -> Outcome<()> {
    match world.workers.iter().find(|worker| worker.in_doubt > 0) {
        Some(_) => Err(format!("a server that runs has forgotten a session: {}", world.describe())),
        None => Ok(()),
    }
}

#[test]
fn ports_that_are_away_for_a_while_cost_time_and_nothing_else() {
    run_seeds("ports_that_are_away_for_a_while_cost_time_and_nothing_else", 300, |seed| {
        let random = &mut plan_random(20, seed);
        let mut plan = many_clients(random);
        if random.chance(300_000) {
            plan.wire.more_links.push((Medium::Udp, plan.wire.link));
        }
        lose_ports(&mut plan, random);
        nobody_is_in_doubt(&World::live(plan, seed)?)
    });
}

#[test]
fn packets_that_come_to_any_shard_are_lost_and_nothing_else() {
    run_seeds("packets_that_come_to_any_shard_are_lost_and_nothing_else", 300, |seed| {
        let random = &mut plan_random(21, seed);
        let mut plan = many_clients(random);
        plan.wire.misdirected_per_million = random.choose(&[1_000, 100_000, 500_000]);
        if random.chance(300_000) {
            plan.wire.attacks = random.choose(&[10, 300]);
        }
        nobody_is_in_doubt(&World::live(plan, seed)?)
    });
}

#[test]
fn a_server_whose_ports_come_one_by_one_after_each_start_executes_nothing_twice() {
    run_seeds("a_server_whose_ports_come_one_by_one_after_each_start_executes_nothing_twice", 300, |seed| {
        let random = &mut plan_random(22, seed);
        let mut plan = many_clients(random);
        let mut at = random.micros(0..=400_000);
        while at < plan.healed_after {
            plan.faults.push((at, random.choose(&[Fault::Kill, Fault::ShutDown])));
            let start = at + random.micros(1_000..=300_000);
            for shard in 1..plan.wire.shards {
                let longest = random.choose(&[500, 20_000, 300_000]);
                let there = start + random.micros(0..=longest);
                plan.faults.push((at, Fault::Wire(LinkFault::LosePort { link: 0, shard })));
                plan.faults.push((there, Fault::Wire(LinkFault::OpenPort { link: 0, shard })));
            }
            plan.faults.push((start, Fault::Start));
            at = start + random.micros(100_000..=1_500_000);
        }
        World::live(plan, seed).map(drop)
    });
}
