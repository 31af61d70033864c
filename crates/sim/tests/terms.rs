//! What both ends of HyperSCSI agree on, and requests to manage the server, on bad networks and under attack.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sanwire_core::Protection;
use sanwire_hyperscsi::DeviceOption;
use sanwire_sim::hyperscsi::plan::{LinkFault, Medium, Plan};
use sanwire_sim::hyperscsi::terms::{Change, Terms};
use sanwire_sim::hyperscsi::wire::World;
use sanwire_sim::plan::Fault;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};

/// What may go wrong on the way, and who strikes there.
fn trouble(plan: &mut Plan, random: &mut Random) {
    plan.wire.link.loss_per_million = random.choose(&[0, 1_000, 20_000, 100_000]);
    plan.wire.link.duplicate_per_million = random.choose(&[0, 10_000, 200_000]);
    plan.wire.link.jitter_us = random.choose(&[0, 10, 1_000, 20_000]);
    plan.wire.link.damage_per_million = random.choose(&[0, 0, 10_000]);
    plan.wire.attacks = random.choose(&[0, 300, 1_000]);
    plan.wire.session_idle_max = Duration::from_millis(random.choose(&[200, 5_000, 30_000]));
    if random.chance(300_000) {
        let medium = random.choose(&[Medium::Ethernet, Medium::Udp]);
        plan.wire.more_links.push((medium, plan.wire.link));
    }
    for at in moments(plan, random, 0..=2) {
        let client = random.range(0..=plan.clients as u64 - 1) as usize;
        let (there, back) = random.choose(&[(true, true), (true, false), (false, true)]);
        plan.faults.push((at, Fault::Wire(LinkFault::Cut { client, there, back })));
        let length_us = random.choose(&[10_000, 500_000, 4_000_000]);
        plan.faults.push((at + random.micros(0..=length_us), Fault::Wire(LinkFault::Mend(client))));
    }
    if random.chance(200_000) {
        let at = moments(plan, random, 1..=1)[0];
        plan.faults.push((at, Fault::Kill));
        plan.faults.push((at + random.micros(0..=500_000), Fault::Start));
    }
}

/// Moments before the world is healed.
fn moments(plan: &Plan, random: &mut Random, count: std::ops::RangeInclusive<u64>) -> Vec<Duration> {
    let healed_us = plan.healed_after.as_micros() as u64;
    (0..random.range(count)).map(|_| random.micros(0..=healed_us * 9 / 10)).collect()
}

/// A world in which clients are on these terms.
fn on_terms(random: &mut Random, terms: impl Fn(&mut Random) -> Terms) -> Plan {
    let mut plan = Plan::any(random);
    plan.agree((0..plan.clients).map(|_| terms(random)).collect());
    plan
}

/// Either end wants something else now and then. What clients ask for fits into the shortest transfer of all.
fn changes(plan: &mut Plan, random: &mut Random) {
    plan.work.blocks_max = plan.work.blocks_max.min(128);
    for at in moments(plan, random, 1..=6) {
        let client = random.range(0..=plan.clients as u64 - 1) as usize;
        let fault = match random.chance(300_000) {
            true => LinkFault::Wish { client, change: Change::of_either_end(random) },
            false => LinkFault::Change { client, change: Change::any(&plan.wire.terms[client], random) },
        };
        plan.faults.push((at, Fault::Wire(fault)));
    }
}

fn management(plan: &mut Plan, random: &mut Random) {
    plan.work.manage_per_million = 300_000;
    plan.work.managers = random.range(0..=plan.clients as u64) as usize;
}

/// Whether so many seeds are run as this test does of itself.
fn is_whole() -> bool {
    std::env::var_os("SANWIRE_SEED").is_none() && std::env::var_os("SANWIRE_SEEDS").is_none()
}

#[test]
fn options_change_in_mid_work() {
    let compressed = AtomicU64::new(0);
    run_seeds("options_change_in_mid_work", 600, |seed| {
        let random = &mut plan_random(20, seed);
        let mut plan = on_terms(random, Terms::any);
        trouble(&mut plan, random);
        changes(&mut plan, random);
        let world = World::live(plan, seed)?;
        compressed.fetch_add(world.wire.stats.compressed_packets, Ordering::Relaxed);
        Ok(())
    });
    assert!(!is_whole() || compressed.load(Ordering::Relaxed) > 1000, "nothing is compressed");
}

#[test]
fn requests_to_manage_are_done_once_for_those_who_may() {
    let done = AtomicU64::new(0);
    run_seeds("requests_to_manage", 500, |seed| {
        let random = &mut plan_random(21, seed);
        let mut plan =
            on_terms(random, |random| if random.chance(300_000) { Terms::any(random) } else { Terms::default() });
        trouble(&mut plan, random);
        management(&mut plan, random);
        plan.work.count_per_million = 0;
        let world = World::live(plan, seed)?;
        done.fetch_add(world.counts.len() as u64, Ordering::Relaxed);
        Ok(())
    });
    assert!(!is_whole() || done.load(Ordering::Relaxed) > 1000, "nothing is managed");
}

/// Each seed has one pair of options on; the others are as chance has it.
#[test]
fn every_pair_of_options_works_on_bad_networks_under_attack() {
    let all = DeviceOption::ALL;
    let pairs: Vec<_> = (0..all.len()).flat_map(|one| (0..one).map(move |other| [all[other], all[one]])).collect();
    let agreed = Mutex::new(BTreeSet::new());
    run_seeds("every_pair_of_options", 12 * pairs.len() as u64, |seed| {
        let random = &mut plan_random(22, seed);
        let pair = pairs[seed as usize % pairs.len()];
        let mut plan = on_terms(random, |random| {
            let mut terms = if random.chance(500_000) { Terms::any(random) } else { Terms::default() };
            pair.into_iter().for_each(|option| terms.turn_on(option, random));
            terms
        });
        // Either end guards all packets so, or both do.
        let guards = [DeviceOption::Encryption, DeviceOption::Hashing];
        if guards.iter().all(|guard| pair.contains(guard)) {
            plan.wire.protection = random.choose(&Protection::ALL[2..]);
            plan.wire.is_mixed = false;
        }
        trouble(&mut plan, random);
        plan.wire.attacks = 300;
        plan.faults.push((plan.healed_after / 3, Fault::Wire(LinkFault::Cut { client: 0, there: true, back: true })));
        plan.faults.push((plan.healed_after / 2, Fault::Wire(LinkFault::Mend(0))));
        World::live(plan, seed)?;
        // What they have agreed on was compared with what was drawn in the end.
        agreed.lock().map_err(|error| error.to_string())?.insert(pair);
        Ok(())
    });
    assert!(!is_whole() || agreed.lock().is_ok_and(|agreed| agreed.len() == 28), "pairs are missing");
}
