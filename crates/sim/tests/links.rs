//! One connection over several links: of different rate, size and kind, that die and return.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_core::Protection;
use sanwire_sim::hyperscsi::link::LinkPlan;
use sanwire_sim::hyperscsi::plan::{LinkFault, Medium, Plan};
use sanwire_sim::hyperscsi::wire::World;
use sanwire_sim::model::Range;
use sanwire_sim::plan::Fault;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};
use sanwire_sim::task::Kind;
use sanwire_sim::world::Outcome;

const BLOCKS: u64 = 32;
const COMMAND_BYTES: u64 = BLOCKS * 512;
const DEPTH: usize = 24;

/// A link of so many Mbit/s.
fn link(mbit: u64, packet_bytes: usize) -> LinkPlan {
    LinkPlan { bytes_per_us: mbit / 8, ..LinkPlan::clean(packet_bytes) }
}

/// One client without work, with these links.
fn trunk(first: (Medium, LinkPlan), more: &[(Medium, LinkPlan)]) -> Plan {
    let mut plan = Plan::clean(first.0, first.1.packet_max_bytes);
    plan.wire.link = first.1;
    plan.wire.more_links = more.to_vec();
    plan.wire.claimed_bytes =
        more.iter().fold(plan.wire.claimed_bytes, |most, (_, link)| most.max(link.packet_max_bytes as u32));
    plan.work.commands = 0;
    plan.disk.delay_us = (1, 5);
    plan
}

fn started(plan: Plan, seed: u64) -> Outcome<World> {
    let links = plan.wire.media().len();
    let mut world = World::new(plan, seed);
    world.start()?;
    world.run_for(Duration::from_secs(2))?;
    let live = live_links(&world);
    if live == links {
        Ok(world)
    } else {
        Err(format!("{live} of {links} links: {:?}", world.workers[0].client.links()))
    }
}

fn live_links(world: &World) -> usize {
    world.workers[0].client.links().iter().filter(|link| link.is_live).count()
}

/// Bytes that are moved in `length`, and the longest time in which nothing was answered.
fn moved(world: &mut World, kind: Kind, length: Duration) -> Outcome<(u64, Duration)> {
    let begun = world.now;
    let mut given = world.workers[0].in_flight() as u64;
    let (mut done, mut answered_at, mut longest) = (0, world.now, Duration::ZERO);
    while world.now < begun + length {
        while world.workers[0].in_flight() < DEPTH
            && world.give(0, kind, Range { lba: given % 64 * BLOCKS, blocks: BLOCKS })?
        {
            given += 1;
        }
        world.run_for(Duration::from_micros(200))?;
        let now_done = given - world.workers[0].in_flight() as u64;
        if now_done > done {
            (done, answered_at) = (now_done, world.now);
        }
        longest = longest.max(world.now - answered_at);
    }
    Ok((done * COMMAND_BYTES, longest))
}

#[test]
fn two_equal_links_carry_more_than_one_and_six_tenths() {
    run_seeds("two_equal_links", 2, |seed| {
        for kind in [Kind::Read, Kind::Write { is_stable: false }] {
            let eth = (Medium::Ethernet, link(200, 1500));
            let length = Duration::from_millis(200);
            let (one, _) = moved(&mut started(trunk(eth, &[]), seed)?, kind, length)?;
            let (two, _) = moved(&mut started(trunk(eth, &[eth]), seed)?, kind, length)?;
            if two * 10 < one * 16 {
                return Err(format!("{kind:?}: {one} bytes by one link, {two} by two"));
            }
        }
        Ok(())
    });
}

#[test]
fn a_slow_link_does_not_hold_up_a_fast_one() {
    run_seeds("a_slow_link", 2, |seed| {
        for kind in [Kind::Read, Kind::Write { is_stable: false }] {
            let fast = (Medium::Ethernet, link(200, 1500));
            let slow = (Medium::Udp, LinkPlan { delay_us: 2000, ..link(16, 1500) });
            let length = Duration::from_millis(300);
            let (one, _) = moved(&mut started(trunk(fast, &[]), seed)?, kind, length)?;
            let (two, _) = moved(&mut started(trunk(fast, &[slow]), seed)?, kind, length)?;
            if two * 100 < one * 90 {
                return Err(format!("{kind:?}: {one} bytes without the slow link, {two} with it"));
            }
        }
        Ok(())
    });
}

#[test]
fn the_death_of_a_link_costs_less_than_a_fifth_of_a_second_and_its_return_is_used() {
    run_seeds("the_death_of_a_link", 3, |seed| {
        for (cut, kind) in
            [(0, Kind::Read), (1, Kind::Write { is_stable: false }), (0, Kind::Write { is_stable: true })]
        {
            let plan = trunk((Medium::Ethernet, link(100, 9000)), &[(Medium::Udp, link(100, 1500))]);
            let mut world = started(plan, seed)?;
            moved(&mut world, kind, Duration::from_millis(100))?;
            world.inflict(Fault::Wire(LinkFault::CutLink { client: 0, link: cut }))?;
            let (_, longest) = moved(&mut world, kind, Duration::from_millis(600))?;
            if longest > Duration::from_millis(200) || live_links(&world) != 1 {
                return Err(format!("{kind:?}: nothing for {longest:?}: {}", world.describe()));
            }
            world.inflict(Fault::Wire(LinkFault::MendLink { client: 0, link: cut }))?;
            moved(&mut world, kind, Duration::from_millis(1500))?;
            let (worker, links) = (&world.workers[0], live_links(&world));
            if links != 2 || worker.sessions != 1 || worker.other > 1 {
                return Err(format!("{kind:?}: {links} links: {}", world.describe()));
            }
            let carried = |world: &World| {
                let data_bytes = &world.wire.stats.data_bytes;
                [cut, 1 - cut].map(|link| data_bytes.get(&(link, kind != Kind::Read)).copied().unwrap_or(0))
            };
            let before = carried(&world);
            moved(&mut world, kind, Duration::from_millis(500))?;
            let after = carried(&world);
            let [again, other] = [after[0] - before[0], after[1] - before[1]];
            if again * 2 < other {
                return Err(format!("{kind:?}: {again} bytes on the link that has returned, {other} on the other"));
            }
        }
        Ok(())
    });
}

/// What was cut for large packets is cut anew where only small ones pass, and neither done twice nor changed.
#[test]
fn a_link_of_small_packets_takes_over_the_longest_transfers_of_one_of_jumbo_frames() {
    const LONGEST: Range = Range { lba: 0, blocks: (3 << 20) / 512 };
    run_seeds("a_link_of_small_packets", 2, |seed| {
        for kind in [Kind::Read, Kind::Write { is_stable: false }] {
            let mut plan = trunk((Medium::Ethernet, link(200, 9000)), &[(Medium::Udp, link(200, 1500))]);
            plan.blocks = 2 * LONGEST.blocks;
            plan.client_memory_bytes = 24 << 20;
            let mut world = started(plan, seed)?;
            // While both live, all is cut for the smaller packets.
            world.inflict(Fault::Wire(LinkFault::CutLink { client: 0, link: 1 }))?;
            world.run_for(Duration::from_secs(5))?;
            world.give(0, kind, LONGEST)?;
            world.run_for(Duration::from_secs(1))?;
            for number in 0..3 {
                assert!(world.give(0, kind, Range { lba: number * 512, ..LONGEST })?);
            }
            world.run_for(Duration::from_millis(60))?;
            world.inflict(Fault::Wire(LinkFault::MendLink { client: 0, link: 1 }))?;
            world.inflict(Fault::Wire(LinkFault::CutLink { client: 0, link: 0 }))?;
            let before = world.wire.stats.data_bytes.clone();
            world.run_for(Duration::from_secs(10))?;
            world.give(0, Kind::Read, Range { lba: 512, ..LONGEST })?;
            world.run_for(Duration::from_secs(2))?;
            let carried = |at: usize| {
                let of = |bytes: &BTreeMap<_, u64>| bytes.get(&(at, kind != Kind::Read)).copied().unwrap_or(0);
                (of(&before), of(&world.wire.stats.data_bytes) - of(&before))
            };
            let (worker, (jumbo, _), (_, small)) = (&world.workers[0], carried(0), carried(1));
            let is_in_the_middle = (1 << 20..9 << 20).contains(&jumbo) && small > 6 << 20;
            let is_done = worker.in_flight() == 0 && worker.good >= 4 && worker.in_doubt == 0;
            if !is_done || !is_in_the_middle {
                return Err(format!("{kind:?}: {jumbo} and {small} bytes: {}", world.describe()));
            }
        }
        Ok(())
    });
}

#[test]
fn the_longest_transfers_survive_links_of_other_packet_sizes_that_come_and_go() {
    run_seeds("the_longest_transfers", 30, |seed| {
        let random = &mut plan_random(34, seed);
        let rate = random.choose(&[200, 1000]);
        let mut plan = Plan::clean(Medium::Ethernet, 9000);
        plan.wire.link = link(rate, random.choose(&[1500, 4352, 9000]));
        plan.wire.more_links = vec![(Medium::Udp, link(rate, random.choose(&[1500, 9000])))];
        plan.wire.protection = random.choose(&Protection::ALL);
        plan.clients = random.choose(&[1, 2]);
        plan.blocks = 8192;
        (plan.work.blocks_max, plan.work.budget_bytes, plan.work.depth) = (6144, 24 << 20, 6);
        (plan.server_memory_bytes, plan.client_memory_bytes) = (random.choose(&[3 << 20, 7 << 20, 12 << 20]), 24 << 20);
        plan.healed_after = Duration::from_secs(2);
        for _ in 0..random.range(1..=4) {
            let (client, link) = (random.range(0..=plan.clients as u64 - 1) as usize, random.range(0..=1) as usize);
            let at = random.micros(0..=1_500_000);
            plan.faults.push((at, Fault::Wire(LinkFault::CutLink { client, link })));
            plan.faults.push((at + random.micros(0..=1_000_000), Fault::Wire(LinkFault::MendLink { client, link })));
        }
        if random.chance(300_000) {
            plan.faults.push((random.micros(0..=1_000_000), Fault::Kill));
            plan.faults.push((Duration::from_millis(1200), Fault::Start));
        }
        World::live(plan, seed).map(drop)
    });
}

/// Links of all kinds that lose, reorder, die and return, all at once too.
#[test]
fn trunks_survive_what_links_do() {
    run_seeds("trunks_survive", 500, |seed| {
        let random = &mut plan_random(12, seed);
        let mut plan = Plan::any(random);
        for _ in 0..random.range(1..=7) {
            plan.wire
                .more_links
                .push((random.choose(&[Medium::Ethernet, Medium::Udp]), any_link(random, plan.wire.claimed_bytes)));
        }
        plan.wire.attacks = random.choose(&[0, 0, 300]);
        let healed_us = plan.healed_after.as_micros() as u64;
        for _ in 0..random.range(0..=6) {
            let client = random.range(0..=plan.clients as u64 - 1) as usize;
            let link = random.range(0..=plan.wire.more_links.len() as u64) as usize;
            let at = random.micros(0..=healed_us * 9 / 10);
            plan.faults.push((at, Fault::Wire(LinkFault::CutLink { client, link })));
            plan.faults.push((at + random.micros(0..=2_000_000), Fault::Wire(LinkFault::MendLink { client, link })));
        }
        if random.chance(300_000) {
            let at = random.micros(0..=healed_us / 2);
            plan.faults.push((at, Fault::Wire(LinkFault::Cut { client: 0, there: true, back: true })));
            plan.faults.push((at + random.micros(0..=3_000_000), Fault::Wire(LinkFault::Mend(0))));
        }
        if random.chance(300_000) {
            let at = random.micros(0..=healed_us / 2);
            plan.faults.push((at, Fault::Kill));
            plan.faults.push((at + random.micros(0..=1_000_000), Fault::Start));
        }
        World::live(plan, seed).map(drop)
    });
}

fn any_link(random: &mut Random, claimed_bytes: u32) -> LinkPlan {
    let mut link = LinkPlan::clean(random.range(1500..=u64::from(claimed_bytes)) as usize);
    link.delay_us = random.choose(&[5, 50, 500, 5000]);
    link.jitter_us = random.choose(&[0, 10, 1_000]);
    link.bytes_per_us = random.choose(&[5, 100, 1250]);
    link.loss_per_million = random.choose(&[0, 0, 1_000, 20_000]);
    link.duplicate_per_million = random.choose(&[0, 10_000]);
    link
}
