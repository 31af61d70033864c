//! Small exchanges of iSCSI and iSER, with one thing that goes wrong.

use std::time::Duration;

use sanwire_iscsi::DesiredParameters;
use sanwire_sim::iscsi::plan::{Fault, Plan, StreamFault};
use sanwire_sim::iscsi::wire::World;
use sanwire_sim::model::Range;
use sanwire_sim::seeds::run_seeds;
use sanwire_sim::task::Kind;
use sanwire_sim::world::Outcome;

/// Operation codes of PDUs.
const TASK_MANAGEMENT: u8 = 0x02;
const LOGIN: u8 = 0x03;
const DATA_OUT: u8 = 0x05;
const SNACK: u8 = 0x10;
const DATA_IN: u8 = 0x25;
const R2T: u8 = 0x31;

const WRITE: Kind = Kind::Write { is_stable: false };
const NOWHERE: Range = Range { lba: 0, blocks: 0 };

/// More than goes unasked with a write.
const LARGE: Range = Range { lba: 0, blocks: 600 };
const LARGE_BYTES: u64 = 600 * 512;

fn wishes(error_recovery_level: u8, connections: u16, digests: bool) -> DesiredParameters {
    DesiredParameters { digests, error_recovery_level, connections }
}

fn plan(wishes: DesiredParameters) -> Plan {
    let mut plan = Plan::clean(wishes);
    plan.work.commands = 0;
    plan
}

/// The same by RDMA, which has no level of recovery and always has CRCs.
fn plan_by_rdma(connections: u16) -> Plan {
    let mut plan = plan(wishes(0, connections, true));
    plan.wire.is_iser = true;
    plan
}

fn sent(world: &World, to_server: bool, code: u8) -> u64 {
    world.wire.traffic.pdus.get(&(to_server, code)).copied().unwrap_or(0)
}

fn expect(holds: bool, what: &str, world: &World) -> Outcome<()> {
    if holds { Ok(()) } else { Err(format!("{what}: {}", world.describe())) }
}

/// A world whose connections are all there, and whose first unit attention is over.
fn connected(plan: Plan, seed: u64) -> Outcome<World> {
    let mut world = World::new(plan, seed);
    world.start()?;
    world.run_for(Duration::from_millis(500))?;
    run(&mut world, &[(Kind::Test, NOWHERE)])?;
    Ok(world)
}

/// Gives these commands at once and waits for all answers.
fn run(world: &mut World, commands: &[(Kind, Range)]) -> Outcome<()> {
    for (kind, range) in commands {
        if !world.give(0, *kind, *range)? {
            return Err("a command was not taken".to_owned());
        }
    }
    world.run_until(world.now + Duration::from_secs(60), |world| world.workers[0].in_flight() == 0)
}

/// Login with CHAP, a write of which the most is asked for, a flush, a read.
fn small_exchange(mut plan: Plan, seed: u64, cut_after: Option<(bool, u64)>) -> Outcome<World> {
    plan.wire.has_chap = true;
    let mut world = World::new(plan, seed);
    world.wire.traffic.cut_after = cut_after;
    world.start()?;
    run(&mut world, &[(Kind::Test, NOWHERE)])?;
    for command in [(WRITE, LARGE), (Kind::Flush, NOWHERE), (Kind::Read, LARGE)] {
        // A new session's first command is told that power came on.
        let good = world.workers[0].good;
        for _ in 0..3 {
            if world.workers[0].good == good {
                run(&mut world, &[command])?;
            }
        }
        expect(world.workers[0].good == good + 1, "a command succeeds", &world)?;
    }
    Ok(world)
}

/// All positions but those deep inside of bulk data: there one byte is like the other. What is sent at a time has all of its headers in
/// its first bytes.
fn positions(ends: &[u64], headers_bytes: u64) -> Vec<u64> {
    let begins = std::iter::once(&0).chain(ends);
    begins
        .zip(ends)
        .flat_map(|(begin, end)| (begin + 1..=*end).filter(move |at| at - begin < headers_bytes || end - at < 64))
        .collect()
}

fn survives_cuts(test: &str, plan: &Plan, headers_bytes: u64) {
    let baseline = small_exchange(plan.clone(), 0, None).expect("an exchange without a cut");
    let [there, back] = &baseline.wire.traffic.ends;
    assert!([there, back].iter().all(|ends| ends.last() > Some(&LARGE_BYTES)), "{}", baseline.describe());
    let cuts: Vec<(bool, u64)> = positions(there, headers_bytes)
        .into_iter()
        .map(|at| (true, at))
        .chain(positions(back, headers_bytes).into_iter().map(|at| (false, at)))
        .collect();
    run_seeds(test, cuts.len() as u64, |seed| {
        let Some(&cut) = cuts.get(seed as usize) else { return Ok(()) };
        let mut world = small_exchange(plan.clone(), seed, Some(cut)).map_err(|what| format!("cut {cut:?}: {what}"))?;
        world.farewell().map_err(|what| format!("cut {cut:?}: {what}"))
    });
}

/// Over TCP, with data that is asked for.
fn iscsi_survives_cuts(test: &str, wishes: DesiredParameters) {
    let plan = plan(wishes);
    let baseline = small_exchange(plan.clone(), 0, None).expect("an exchange without a cut");
    assert!(sent(&baseline, false, R2T) > 0 && sent(&baseline, true, DATA_OUT) > 0, "{}", baseline.describe());
    survives_cuts(test, &plan, 512);
}

#[test]
fn iscsi_survives_a_cut_at_every_byte() {
    iscsi_survives_cuts("iscsi_survives_a_cut_at_every_byte", wishes(0, 1, false));
}

#[test]
fn iscsi_survives_a_cut_at_every_byte_at_level_2() {
    iscsi_survives_cuts("iscsi_survives_a_cut_at_every_byte_at_level_2", wishes(2, 1, true));
}

/// MPA's setup, the login in Sends, an RDMA Read and an RDMA Write: the headers of MPA, DDP, iSER and iSCSI are 96 bytes.
#[test]
fn iser_survives_a_cut_at_every_byte() {
    survives_cuts("iser_survives_a_cut_at_every_byte", &plan_by_rdma(1), 128);
}

/// However the connections overtake each other: commands begin in the order in which they were given.
#[test]
fn connections_of_a_session_may_overtake_each_other() {
    overtake("connections_of_a_session_may_overtake_each_other", |seed| {
        plan(wishes((seed % 3) as u8, 4, seed % 2 == 0))
    });
}

#[test]
fn connections_of_an_iser_session_may_overtake_each_other() {
    overtake("connections_of_an_iser_session_may_overtake_each_other", |_| plan_by_rdma(4));
}

fn overtake(test: &str, plan: impl Fn(u64) -> Plan + Sync) {
    run_seeds(test, 200, |seed| {
        let mut plan = plan(seed);
        plan.wire.pieces.delay_us = (10, 5_000);
        plan.wire.pieces.piece_max_bytes = 1460;
        let mut world = connected(plan, seed)?;
        let connections = world.workers[0].client.server().map(|info| info.connections);
        expect(connections == Some(4), "four connections", &world)?;
        for lba in 0..4 {
            let range = Range { lba: lba * 8, blocks: 8 };
            let commands = [(Kind::Count, NOWHERE), (WRITE, range), (Kind::Count, NOWHERE), (Kind::Read, range)];
            run(&mut world, &commands)?;
        }
        let counted = world.host.as_ref().map_or(&[][..], |host| &host.counted);
        expect(counted.len() == 8 && counted.is_sorted(), &format!("in order: {counted:?}"), &world)?;
        expect(world.workers[0].sessions == 1, "one session", &world)?;
        world.farewell()
    });
}

#[test]
fn a_lost_data_pdu_is_sent_again_at_level_1() {
    run_seeds("a_lost_data_pdu_is_sent_again_at_level_1", 20, |seed| {
        let mut world = connected(plan(wishes(1, 1, true)), seed)?;
        let logins = sent(&world, true, LOGIN);
        world.wire.traffic.damage_next = Some((true, DATA_OUT));
        run(&mut world, &[(WRITE, LARGE)])?;
        expect(world.wire.traffic.damage_next.is_none() && sent(&world, false, R2T) > 1, "asked for again", &world)?;
        world.wire.traffic.damage_next = Some((false, DATA_IN));
        run(&mut world, &[(Kind::Read, LARGE)])?;
        expect(world.wire.traffic.damage_next.is_none() && sent(&world, true, SNACK) > 0, "asked for again", &world)?;
        expect(world.workers[0].other <= 1 && sent(&world, true, LOGIN) == logins, "nothing else happens", &world)?;
        world.farewell()
    });
}

#[test]
fn tasks_move_to_another_connection_at_level_2() {
    run_seeds("tasks_move_to_another_connection_at_level_2", 100, |seed| {
        let mut plan = plan(wishes(2, 2, seed % 2 == 0));
        let slow = (20_000, 20_000);
        plan.faults = vec![(Duration::from_millis(610), Fault::Wire(StreamFault::Cut))];
        let mut world = connected(plan.clone(), seed)?;
        plan.disk.delay_us = slow;
        world.disk().set_plan(plan.disk);
        world.run_for(Duration::from_millis(600).saturating_sub(world.now - sanwire_core::Instant::ZERO))?;
        let reads: Vec<(Kind, Range)> = (0..6).map(|lba| (Kind::Read, Range { lba: lba * 8, blocks: 8 })).collect();
        run(&mut world, &reads)?;
        expect(sent(&world, true, TASK_MANAGEMENT) > 0, "tasks are reassigned", &world)?;
        expect(world.workers[0].sessions == 1 && world.workers[0].other <= 1, "one session, no errors", &world)?;
        world.farewell()
    });
}
