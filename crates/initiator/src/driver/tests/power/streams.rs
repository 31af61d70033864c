//! The same over iSCSI: connections that are cut, seen by one end or both, or stand still; sessions that are lost; servers that end.

use sanwire_sim::iscsi::plan::{Fault, Plan, StreamFault};
use sanwire_sim::iscsi::wire::Streams;

use super::*;

fn any_streams(random: &mut Random) -> (Plan, Habits) {
    let mut plan = Plan::any(random);
    (plan.is_verified, plan.is_driven, plan.write_cache) = (true, true, true);
    plan.blocks = random.choose(&[16, 64]);
    plan.wire.pieces.piece_max_bytes = random.choose(&[1460, 20_000, 1 << 20]);
    plan.disk.slow_per_million = random.choose(&[0, 20_000]);
    plan.healed_after = Duration::from_secs(random.range(4..=12));
    let life_us = plan.healed_after.as_micros() as u64;
    // The clients of both wires have the same habits.
    let (_, mut habits) = any_plan(random);
    habits.writes_per_million.resize(plan.clients, 300_000);
    habits.begins_after = (0..plan.clients).map(|_| random.micros(0..=life_us / 4)).collect();
    habits.operations = (life_us / habits.think_us).min(300);
    (plan, habits)
}

/// The server ends in one of these ways, and comes back.
fn ends(plan: &mut Plan, random: &mut Random, ways: &[Fault]) {
    let life_us = plan.healed_after.as_micros() as u64;
    for _ in 0..random.range(1..=4) {
        let at = random.micros(100_000..=life_us);
        plan.faults.push((at, random.choose(ways)));
        plan.faults.push((at + random.micros(150_000..=2_000_000), Fault::Start));
    }
    // A server that is healed stays: one that stops takes a while until it has ended.
    plan.faults.retain(|(at, _)| *at + Duration::from_millis(150) < plan.healed_after);
}

/// Connections are cut, or nothing passes on them for a while.
fn cuts(plan: &mut Plan, random: &mut Random) {
    let life_us = plan.healed_after.as_micros() as u64;
    for _ in 0..random.range(0..=6) {
        let fault = match random.range(0..=4) {
            0 | 1 => StreamFault::Cut,
            2 => StreamFault::CutUnnoticedByServer,
            3 => StreamFault::CutUnnoticedByClient,
            _ => StreamFault::Stall(random.micros(0..=3_000_000)),
        };
        plan.faults.push((random.micros(0..=life_us), Fault::Wire(fault)));
    }
}

#[test]
fn what_a_flush_says_is_true_over_iscsi_whatever_becomes_of_connections_and_power() {
    let seen = Seen::default();
    run_seeds("-p sanwire-initiator over_iscsi_whatever_becomes_of_connections_and_power", 150, |seed| {
        let random = &mut plan_random(99, seed);
        let (mut plan, habits) = any_streams(random);
        ends(&mut plan, random, &[Fault::LosePower, Fault::LosePower, Fault::Kill, Fault::ShutDown]);
        cuts(&mut plan, random);
        live_over::<Streams>(plan, &habits, &seen, seed)
    });
    let [survived, told] = [seen.survived, seen.told].map(AtomicU64::into_inner);
    assert!(survived > 0 && told > 0 || std::env::var_os("SANWIRE_SEED").is_some(), "{survived} survived, {told} told");
}

#[test]
fn a_server_that_is_killed_or_stopped_cleanly_loses_nothing_over_iscsi_either() {
    run_seeds("-p sanwire-initiator loses_nothing_over_iscsi_either", 60, |seed| {
        let random = &mut plan_random(100, seed);
        let (mut plan, habits) = any_streams(random);
        ends(&mut plan, random, &[Fault::Kill, Fault::ShutDown]);
        cuts(&mut plan, random);
        live_over::<Streams>(plan, &Habits { is_lossless: true, ..habits }, &Seen::default(), seed)
    });
}

#[test]
fn what_a_failed_flush_has_lost_is_told_over_iscsi_or_written_again() {
    let seen = Seen::default();
    run_seeds("-p sanwire-initiator is_told_over_iscsi_or_written_again", 60, |seed| {
        let random = &mut plan_random(101, seed);
        let (mut plan, habits) = any_streams(random);
        plan.disk.loss_per_million = random.choose(&[50_000, 200_000, 500_000]);
        plan.disk.flush_us = random.choose(&[0, 5_000, 100_000]);
        plan.disk.early_per_million = 500_000;
        ends(&mut plan, random, &[Fault::LosePower, Fault::Kill, Fault::ShutDown]);
        live_over::<Streams>(plan, &habits, &seen, seed)
    });
    let told = seen.told.into_inner();
    assert!(told > 0 || std::env::var_os("SANWIRE_SEED").is_some());
}
