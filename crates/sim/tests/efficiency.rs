//! What commands cost: packets on clean links, time on lossy ones, and refusals that must be clear.

use std::time::Duration;

use sanwire_hyperscsi::{Failure, Recovery};
use sanwire_sim::hyperscsi::plan::{Fault, LinkFault, Medium, Plan};
use sanwire_sim::hyperscsi::stats::Stats;
use sanwire_sim::hyperscsi::wire::World;
use sanwire_sim::model::Range;
use sanwire_sim::seeds::run_seeds;
use sanwire_sim::task::Kind;
use sanwire_sim::world::Outcome;

/// A connected world without work, whose first unit attention is over and whose path is known.
fn quiet(mut plan: Plan, seed: u64) -> Outcome<World> {
    plan.work.commands = 0;
    let mut world = World::new(plan, seed);
    world.start()?;
    world.run_for(Duration::from_millis(500))?;
    world.give(0, Kind::Test, Range { lba: 0, blocks: 0 })?;
    world.run_for(Duration::from_millis(10))?;
    Ok(world)
}

/// What one command costs, until all is quiet again; and how long its answer took.
fn cost(world: &mut World, kind: Kind, range: Range) -> Outcome<(Stats, Duration)> {
    let (before, begun) = (world.wire.stats.clone(), world.now);
    if !world.give(0, kind, range)? {
        return Err("the command was not taken".to_owned());
    }
    world.run_until(begun + Duration::from_secs(20), World::is_worked_off)?;
    let took = world.workers[0].last_answer - begun;
    world.run_for(Duration::from_millis(5))?;
    Ok((world.wire.stats.since(&before), took))
}

fn expect(holds: bool, what: &str, stats: &Stats) -> Outcome<()> {
    if holds { Ok(()) } else { Err(format!("{what}: {stats:?}")) }
}

#[test]
fn a_small_read_takes_two_packets_and_a_late_acknowledgement() {
    run_seeds("a_small_read", 5, |seed| {
        let mut world = quiet(Plan::clean(Medium::Ethernet, 9000), seed)?;
        let (stats, _) = cost(&mut world, Kind::Read, Range { lba: 8, blocks: 8 })?;
        expect(stats.data_packets == 2, "one packet each way", &stats)?;
        expect(stats.packets <= 3, "at most one acknowledgement", &stats)?;
        let (stats, _) = cost(&mut world, Kind::Write { is_stable: false }, Range { lba: 8, blocks: 8 })?;
        expect(stats.data_packets == 2 && stats.packets <= 4, "a write, too", &stats)
    });
}

#[test]
fn a_large_transfer_on_a_clean_link_is_sent_once() {
    run_seeds("a_large_transfer", 20, |seed| {
        let medium = if seed % 2 == 0 { Medium::Ethernet } else { Medium::Udp };
        for recovery in [Recovery::Selective, Recovery::WholeWindow] {
            let mut plan = Plan::clean(medium, 1500);
            plan.wire.recovery = recovery;
            let mut world = quiet(plan, seed)?;
            for kind in [Kind::Write { is_stable: false }, Kind::Read] {
                let (stats, took) = cost(&mut world, kind, Range { lba: 0, blocks: 1024 })?;
                expect(stats.retransmissions == 0, "nothing is sent twice", &stats)?;
                expect(stats.data_packets <= 364, "packets are full", &stats)?;
                expect(stats.acknowledgements <= 24, "few acknowledgements", &stats)?;
                // 512 KiB take 0.43 ms at 10 Gbit/s.
                expect(took < Duration::from_micros(1500), &format!("fast, not {took:?}"), &stats)?;
            }
        }
        Ok(())
    });
}

#[test]
fn two_percent_of_loss_cost_little() {
    run_seeds("two_percent", 300, |seed| {
        let mut plan = Plan::clean(Medium::Ethernet, 1500);
        plan.wire.link.loss_per_million = 20_000;
        let mut world = quiet(plan, seed)?;
        let (mut total, mut longest) = (Stats::default(), Duration::ZERO);
        let begun = world.now;
        for round in 0..16 {
            let kind = if round % 2 == 0 { Kind::Write { is_stable: false } } else { Kind::Read };
            let (stats, took) = cost(&mut world, kind, Range { lba: 0, blocks: 512 })?;
            longest = longest.max(took);
            total.data_packets += stats.data_packets;
            total.retransmissions += stats.retransmissions;
        }
        let ratio = total.retransmissions as f64 / total.data_packets as f64;
        expect(ratio < 0.05, &format!("{ratio:.3} of the packets were retransmissions"), &total)?;
        expect(longest < Duration::from_millis(100), &format!("the longest command took {longest:?}"), &total)?;
        let took = world.now - begun;
        expect(took < Duration::from_millis(500), &format!("4 MiB took {took:?}"), &total)
    });
}

#[test]
fn whole_window_recovery_gets_through_loss() {
    run_seeds("whole_window", 100, |seed| {
        let mut plan = Plan::clean(Medium::Udp, 1500);
        plan.wire.recovery = Recovery::WholeWindow;
        plan.wire.link.loss_per_million = 20_000;
        plan.wire.capacity_packets = 64;
        let mut world = quiet(plan, seed)?;
        let (stats, took) = cost(&mut world, Kind::Read, Range { lba: 0, blocks: 1024 })?;
        expect(took < Duration::from_secs(2), &format!("512 KiB took {took:?}"), &stats)
    });
}

/// What is sent again tells no round trip: that must not make the timer wait longer for each further loss while the way works.
#[test]
fn whole_window_recovery_moves_half_a_megabyte_a_second_where_a_tenth_is_lost() {
    const WORLDS: u64 = 8;
    const LENGTH: Duration = Duration::from_secs(20);
    run_seeds("whole_window_recovery_moves", 1, |seed| {
        let worlds = seed * WORLDS..(seed + 1) * WORLDS;
        let written = worlds.map(|seed| written_where_a_tenth_is_lost(seed, LENGTH)).sum::<Outcome<u64>>()?;
        let each = written / WORLDS / LENGTH.as_secs();
        if each >= 560_000 { Ok(()) } else { Err(format!("{each} bytes in each second")) }
    });
}

/// Bytes of writes of 128 KiB, four at a time.
fn written_where_a_tenth_is_lost(seed: u64, length: Duration) -> Outcome<u64> {
    let mut plan = Plan::clean(Medium::Udp, 9000);
    plan.healed_after = length * 2;
    plan.wire.recovery = Recovery::WholeWindow;
    let link = &mut plan.wire.link;
    (link.delay_us, link.jitter_us, link.loss_per_million) = (5000, 20_000, 100_000);
    let mut world = quiet(plan, seed)?;
    let (mut given, end) = (0, world.now + length);
    while world.now < end {
        let (is_next, write) = (world.workers[0].in_flight() < 4, Kind::Write { is_stable: false });
        given += u64::from(is_next && world.give(0, write, Range { lba: 0, blocks: 256 })?);
        world.run_for(Duration::from_millis(1))?;
    }
    Ok((given - world.workers[0].in_flight() as u64) * 256 * 512)
}

#[test]
fn a_command_that_takes_long_lets_a_thousand_others_pass() {
    run_seeds("a_command_that_takes_long", 2, |seed| {
        let plan = Plan::clean(Medium::Ethernet, 9000);
        let mut world = quiet(plan.clone(), seed)?;
        let mut disk = plan.disk;
        disk.delay_us = (2_000_000, 2_000_000);
        world.disk().set_plan(disk);
        world.give(0, Kind::Read, Range { lba: 0, blocks: 1 })?;
        world.run_for(Duration::from_millis(1))?;
        disk.delay_us = (1, 1);
        world.disk().set_plan(disk);
        let mut refused = 0;
        for lba in 0..1500 {
            refused += u32::from(!world.give(0, Kind::Read, Range { lba, blocks: 1 })?);
            world.run_for(Duration::from_millis(1))?;
        }
        world.run_for(Duration::from_secs(1))?;
        let stats = world.wire.stats.clone();
        expect(world.workers[0].in_flight() == 0, "every command that was taken is answered", &stats)?;
        expect((400..500).contains(&refused), "those too far ahead are not taken", &stats)?;
        expect(world.give(0, Kind::Read, Range { lba: 0, blocks: 1 })?, "afterwards they are", &stats)
    });
}

#[test]
fn a_paused_client_waits_also_through_a_reconnection_and_loses_nothing() {
    run_seeds("a_paused_client", 20, |seed| {
        let mut world = quiet(Plan::clean(Medium::Ethernet, 1500), seed)?;
        world.plan.faults.clear();
        world.inflict(Fault::Wire(LinkFault::Pause(0)))?;
        world.run_for(Duration::from_millis(10))?;
        let before = world.wire.stats.clone();
        world.give(0, Kind::Write { is_stable: false }, Range { lba: 0, blocks: 256 })?;
        world.give(0, Kind::Read, Range { lba: 512, blocks: 256 })?;
        world.run_for(Duration::from_secs(5))?;
        let waited = world.wire.stats.since(&before);
        expect(waited.data_packets == 0 && world.workers[0].in_flight() == 2, "no data while paused", &waited)?;
        expect(world.workers[0].sessions == 1, "the connection stays", &waited)?;
        world.inflict(Fault::Wire(LinkFault::Cut { client: 0, there: true, back: true }))?;
        world.run_for(Duration::from_secs(6))?;
        world.inflict(Fault::Wire(LinkFault::Mend(0)))?;
        world.run_for(Duration::from_secs(3))?;
        let waited = world.wire.stats.since(&before);
        expect(world.workers[0].sessions == 2, "connected anew", &waited)?;
        expect(world.workers[0].in_flight() == 2, "still paused", &waited)?;
        world.inflict(Fault::Wire(LinkFault::Resume(0)))?;
        let begun = world.now;
        world.run_until(begun + Duration::from_millis(100), World::is_worked_off)
    });
}

#[test]
fn another_password_is_told_so() {
    run_seeds("another_password", 20, |seed| {
        let mut plan = Plan::clean(Medium::Ethernet, 1500);
        plan.clients = 2;
        plan.wire.link.loss_per_million = 50_000;
        let mut world = World::new(plan, seed);
        world.wire.passwords.insert(1, [6; 32]);
        world.start()?;
        world.run_for(Duration::from_secs(130))?;
        match (world.workers[0].given_up, world.workers[1].given_up) {
            (None, Some(Failure::WrongPassword)) if world.workers[0].is_done() => Ok(()),
            other => Err(format!("{other:?}: {}", world.describe())),
        }
    });
}

#[test]
fn a_stranger_is_ignored() {
    run_seeds("a_stranger", 20, |seed| {
        let mut plan = Plan::clean(Medium::Udp, 1500);
        plan.clients = 2;
        let mut world = World::new(plan, seed);
        world.wire.strangers.push(1);
        world.start()?;
        world.run_for(Duration::from_secs(130))?;
        match (world.workers[0].given_up, world.workers[1].given_up) {
            (None, Some(Failure::NoAnswer)) if world.workers[0].is_done() => Ok(()),
            other => Err(format!("{other:?}: {}", world.describe())),
        }
    });
}
