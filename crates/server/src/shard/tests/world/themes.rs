//! What goes wrong, by themes: many seeds of each.

use std::time::Duration;

use sanwire_sim::derived::DerivedPlan;
use sanwire_sim::hyperscsi::link::LinkPlan;
use sanwire_sim::iscsi::plan as iscsi;
use sanwire_sim::iscsi::plan::StreamFault;
use sanwire_sim::plan::Fault;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{self, plan_random};

use super::administrator::Deed;
use super::far::Mood;
use super::host::HostPlan;
use super::port::PACKET_MAX_BYTES;
use super::wire::{NetworkPlan, Plan, Trouble, World};
use super::{Outcome, air};

/// Runs many seeds of a theme; what to run again is in this crate.
fn run_seeds(theme: &str, count: u64, run: impl Fn(u64) -> Outcome<()> + Sync) {
    seeds::run_seeds(&format!("-p sanwire-server --lib {theme}"), count, run);
}

/// A world of any shape, without faults.
fn any(random: &mut Random) -> Plan {
    let iscsi::Plan { wire, clients, disk, write_cache, blocks, work, healed_after, .. } = iscsi::Plan::any(random);
    let host = HostPlan {
        shards: random.range(1..=3) as usize,
        memory_bytes: 4 << 20,
        mail_max: Duration::from_micros(random.choose(&[1, 50, 2_000])),
        misdirected_per_million: random.choose(&[0, 0, 10_000]),
    };
    let link = air::any_link(random);
    let by_packets = random.range(0..=clients as u64) as usize;
    let socket_bytes = random.choose(&[5_000, 40_000, 400_000]);
    let mut plan = Plan::with_wire(
        NetworkPlan {
            streams: wire,
            link,
            by_packets,
            copiers: 0,
            far_errors_per_million: 0,
            host,
            is_fast: false,
            answer_max: None,
            socket_bytes,
        },
        8 << 20,
        work.blocks_max,
    );
    (plan.clients, plan.disk, plan.write_cache, plan.blocks) = (clients, disk, write_cache, blocks);
    (plan.work, plan.healed_after) = (work, healed_after);
    // The disk of a real server counts nothing.
    plan.work.count_per_million = 0;
    plan.work.abort_per_million = random.choose(&[0, 0, 100_000]);
    plan.work.reset_per_million = random.choose(&[0, 0, 20_000]);
    plan
}

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

fn kills(plan: &mut Plan, random: &mut Random, fault: Fault<Trouble>) {
    for at in moments(plan, random, 3) {
        let down_us = random.choose(&[1, 10_000, 300_000, 2_000_000]);
        plan.faults.push((at, fault));
        plan.faults.push((at + random.micros(0..=down_us), Fault::Start));
    }
}

fn cuts(plan: &mut Plan, random: &mut Random) {
    for at in moments(plan, random, 6) {
        let choices = [
            StreamFault::Cut,
            StreamFault::Cut,
            StreamFault::CutUnnoticedByServer,
            StreamFault::CutUnnoticedByClient,
            StreamFault::Deafen(0, random.micros(0..=2_000_000)),
        ];
        plan.faults.push((at, Fault::Wire(Trouble::Stream(random.choose(&choices)))));
        if plan.wire.by_packets > 0 {
            let (client, after) = (random.range(0..=plan.wire.by_packets as u64 - 1), random.micros(0..=300_000));
            let length = random.micros(0..=random.clone().choose(&[1_000, 500_000, 30_000_000]));
            plan.faults.push((at + after, Fault::Wire(Trouble::Cut(client as usize, length))));
        }
    }
}

#[test]
fn shards_serve_clean_networks() {
    run_seeds("shards_serve_clean_networks", 60, |seed| {
        let random = &mut plan_random(61, seed);
        let mut plan = any(random);
        bad_disk(&mut plan, random);
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn shards_lose_connections() {
    run_seeds("shards_lose_connections", 80, |seed| {
        let random = &mut plan_random(62, seed);
        let mut plan = any(random);
        bad_disk(&mut plan, random);
        cuts(&mut plan, random);
        World::live(plan, seed).map(drop)
    });
}

#[test]
fn shards_die_and_start_again() {
    run_seeds("shards_die_and_start_again", 80, |seed| {
        let random = &mut plan_random(63, seed);
        let mut plan = any(random);
        bad_disk(&mut plan, random);
        let fault = random.choose(&[Fault::Kill, Fault::Kill, Fault::ShutDown, Fault::LosePower]);
        kills(&mut plan, random, fault);
        if random.chance(300_000) {
            cuts(&mut plan, random);
        }
        World::live(plan, seed).map(drop)
    });
}

/// Memory of a shard for two or three of the largest commands.
fn little_memory(plan: &mut Plan, random: &mut Random) {
    plan.work.depth = random.range(4..=16) as usize;
    let largest = plan.work.blocks_max as usize * 512;
    plan.wire.host.memory_bytes = largest.max(8 * 512).next_multiple_of(4096) * random.range(2..=4) as usize;
    plan.client_memory_bytes = largest.next_multiple_of(4096).max(128 * 512) * 2;
}

#[test]
fn shards_with_tiny_memory() {
    run_seeds("shards_with_tiny_memory", 100, |seed| {
        let random = &mut plan_random(64, seed);
        let mut plan = any(random);
        bad_disk(&mut plan, random);
        little_memory(&mut plan, random);
        if random.chance(500_000) {
            cuts(&mut plan, random);
        }
        World::live(plan, seed).map(drop)
    });
}

/// Nothing takes long.
fn all_fast(plan: &mut Plan) {
    plan.disk.delay_us = (1, 200);
    plan.wire.streams.pieces.delay_us = (10, 200);
    plan.wire.link = LinkPlan::clean(PACKET_MAX_BYTES);
    plan.work.think_us = 500;
    plan.wire.is_fast = true;
}

/// Nothing goes wrong and everything is fast: then nobody waits, though memory is little.
#[test]
fn shards_give_memory_that_comes_free_at_once() {
    run_seeds("shards_give_memory_that_comes_free_at_once", 100, |seed| {
        let random = &mut plan_random(65, seed);
        let mut plan = any(random);
        little_memory(&mut plan, random);
        plan.clients = random.range(2..=4) as usize;
        if plan.wire.by_packets > 0 {
            // Requests of which some packets are there must not wait for each other until somebody gives up.
            plan.wire.host.memory_bytes *= plan.clients;
            plan.wire.host.misdirected_per_million = 0;
        }
        all_fast(&mut plan);
        plan.wire.answer_max = Some(Duration::from_millis(100));
        World::live(plan, seed).map(drop)
    });
}

/// What the administrator does, besides all else.
fn deeds(plan: &mut Plan, random: &mut Random) {
    for at in moments(plan, random, 12) {
        let client = random.range(0..=plan.clients as u64 - 1) as usize;
        let deed = random.choose(&[
            Deed::Pause(client),
            Deed::Pause(client),
            Deed::Drop(client),
            Deed::Volume,
            Deed::Volume,
            Deed::Standby,
            Deed::Terms,
            Deed::Count,
        ]);
        plan.faults.push((at, Fault::Wire(Trouble::Deed(deed))));
        let undo = match deed {
            Deed::Pause(client) => Deed::Resume(client),
            Deed::Standby => Deed::Active,
            _ => continue,
        };
        let until = at + random.micros(0..=random.clone().choose(&[1_000, 200_000, 3_000_000]));
        // Some are left for the end.
        if random.chance(700_000) {
            plan.faults.push((until, Fault::Wire(Trouble::Deed(undo))));
        }
    }
}

#[test]
fn shards_are_administered() {
    run_seeds("shards_are_administered", 100, |seed| {
        let random = &mut plan_random(67, seed);
        let mut plan = any(random);
        bad_disk(&mut plan, random);
        deeds(&mut plan, random);
        match random.range(0..=3) {
            0 => cuts(&mut plan, random),
            1 => little_memory(&mut plan, random),
            2 => kills(&mut plan, random, Fault::Kill),
            _ => {}
        }
        World::live(plan, seed).map(drop)
    });
}

/// Some clients are jobs that copy to another server.
fn copies(plan: &mut Plan, random: &mut Random) {
    plan.wire.copiers = random.range(1..=plan.clients as u64) as usize;
    plan.wire.by_packets = plan.wire.by_packets.min(plan.clients - plan.wire.copiers);
}

/// The other server is slow, does nothing for a while, is away.
fn moods(plan: &mut Plan, random: &mut Random) {
    plan.wire.far_errors_per_million = random.choose(&[0, 0, 50_000]);
    for at in moments(plan, random, 6) {
        let [quick, slow] = [100, 20_000].map(|longest_us| Mood::Well(Duration::from_micros(longest_us)));
        let mood = random.choose(&[quick, slow, Mood::Hangs, Mood::Away]);
        plan.faults.push((at, Fault::Wire(Trouble::Far(mood))));
    }
}

/// What a copy has brought to another server is what the volume had there, and what it is told of each command is told once: whatever
/// the moods of that server, and whoever dies, is dropped or has no memory.
#[test]
fn shards_copy_to_another_server() {
    run_seeds("shards_copy_to_another_server", 300, |seed| {
        let random = &mut plan_random(72, seed);
        let mut plan = any(random);
        bad_disk(&mut plan, random);
        copies(&mut plan, random);
        moods(&mut plan, random);
        match random.range(0..=4) {
            0 => cuts(&mut plan, random),
            1 => little_memory(&mut plan, random),
            2 => {
                let fault = random.choose(&[Fault::Kill, Fault::ShutDown, Fault::LosePower]);
                kills(&mut plan, random, fault);
            }
            3 => deeds(&mut plan, random),
            _ => {}
        }
        World::live(plan, seed).map(drop)
    });
}

/// A world whose volume is derived, and derived anew now and then, while this and that goes wrong.
fn renewals(seed: u64, theme: u64, derive: impl FnOnce(&mut Plan, &mut Random)) -> Outcome<()> {
    let random = &mut plan_random(theme, seed);
    let mut plan = any(random);
    bad_disk(&mut plan, random);
    derive(&mut plan, random);
    // It is not there to be reset while it is revoked.
    plan.work.reset_per_million = 0;
    for at in moments(&plan, random, 12) {
        plan.faults.push((at, Fault::Wire(Trouble::Deed(Deed::Renew))));
    }
    match random.range(0..=4) {
        0 => cuts(&mut plan, random),
        1 => little_memory(&mut plan, random),
        2 => {
            let fault = random.choose(&[Fault::Kill, Fault::Kill, Fault::ShutDown, Fault::LosePower]);
            kills(&mut plan, random, fault);
        }
        3 => deeds(&mut plan, random),
        _ => {}
    }
    World::live(plan, seed).map(drop)
}

fn for_all(plan: &mut Plan, random: &mut Random) {
    let hesitates = random.chance(700_000);
    plan.derived = Some(DerivedPlan { hesitates, ..DerivedPlan::of(random.range(1..=5)) });
}

/// A write that was answered, well or not, lands no more after that, whenever its volume is revoked and whoever dies. Commands that a
/// program has wait meanwhile end as well.
#[test]
fn shards_serve_a_derived_volume_that_is_revoked_and_made_again() {
    run_seeds("shards_serve_a_derived_volume_that_is_revoked_and_made_again", 300, |seed| renewals(seed, 70, for_all));
}

/// Some may not use it, and some may only read there: nothing comes of what they write.
#[test]
fn shards_serve_a_derived_volume_to_some() {
    run_seeds("shards_serve_a_derived_volume_to_some", 300, |seed| {
        renewals(seed, 71, |plan, random| {
            plan.derive_for_some(random);
            // Who may not use an iSCSI target does not find it again when it is made anew, and goes on looking for it: here without an end.
            let has_outsiders = plan.derived.is_some_and(|derived| derived.outsiders > 0);
            let by_packets = random.range(0..=plan.clients as u64) as usize;
            plan.wire.by_packets = if has_outsiders { plan.clients } else { by_packets };
            if random.chance(300_000) {
                copies(plan, random);
            }
        })
    });
}

/// The same where all wait for the memory that one of them has, and soon nobody has anything more to say that would stir the server.
#[test]
fn shards_give_memory_to_the_last_who_waits() {
    run_seeds("shards_give_memory_to_the_last_who_waits", 150, |seed| {
        let random = &mut plan_random(69, seed);
        let mut plan = any(random);
        all_fast(&mut plan);
        plan.disk.delay_us = (1_000, 3_000);
        plan.clients = random.range(2..=4) as usize;
        (plan.wire.by_packets, plan.wire.host.shards) = (0, 1);
        plan.wire.streams.wishes.connections = 1;
        plan.wire.streams.pieces.piece_max_bytes = 20_000;
        (plan.blocks, plan.work.blocks_max, plan.work.budget_bytes) = (600, 64, u64::MAX);
        plan.wire.host.memory_bytes = (32 << 10) * random.range(1..=2) as usize;
        (plan.work.commands, plan.work.depth, plan.work.think_us) = (random.range(2..=8), 2, 100);
        plan.wire.answer_max = Some(Duration::from_millis(100));
        World::live(plan, seed).map(drop)
    });
}

/// Also when they lose their sessions, and have others, perhaps in other shards.
#[test]
fn shards_hold_clients_that_are_paused() {
    run_seeds("shards_hold_clients_that_are_paused", 60, |seed| paused(seed, 68, |_, _| {}));
}

/// The same with jobs among them that copy to another server.
#[test]
fn shards_hold_copies_that_are_paused() {
    run_seeds("shards_hold_copies_that_are_paused", 60, |seed| paused(seed, 73, copies));
}

fn paused(seed: u64, theme: u64, change: impl FnOnce(&mut Plan, &mut Random)) -> Outcome<()> {
    let random = &mut plan_random(theme, seed);
    let mut plan = any(random);
    change(&mut plan, random);
    all_fast(&mut plan);
    (plan.work.abort_per_million, plan.work.reset_per_million) = (0, 0);
    for client in 0..plan.clients {
        let at = random.micros(0..=20_000);
        let lost = at + random.micros(0..=200_000);
        let resumed = at + random.micros(200_000..=800_000);
        let deeds = [(at, Deed::Pause(client)), (lost, Deed::Drop(client)), (resumed, Deed::Resume(client))];
        plan.faults.extend(deeds.map(|(at, deed)| (at, Fault::Wire(Trouble::Deed(deed)))));
    }
    World::live(plan, seed).map(drop)
}

#[test]
fn the_same_seed_is_the_same_world_of_shards() {
    run_seeds("the_same_seed_is_the_same_world_of_shards", 10, |seed| {
        let run = || {
            let random = &mut plan_random(66, seed);
            let mut plan = any(random);
            bad_disk(&mut plan, random);
            cuts(&mut plan, random);
            kills(&mut plan, random, Fault::Kill);
            deeds(&mut plan, random);
            World::live(plan, seed).map(|world| world.trace())
        };
        let (first, second) = (run()?, run()?);
        if first == second { Ok(()) } else { Err("two runs differ".to_owned()) }
    });
}
