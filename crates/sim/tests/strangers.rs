//! Strangers who flood the door of a server with several shards, guess at the password, or know it and begin sessions without end, beside
//! clients that work and come again:
//! whatever they do, the clients are let in and go on within a bound, and nothing is done twice.

use std::time::Duration;

use sanwire_core::quota::{GUESSES_OF_NETWORK, HANDSHAKES_PROVEN, HANDSHAKES_UNPROVEN, Unit};
use sanwire_hyperscsi::Client;
use sanwire_sim::hyperscsi::link::LinkPlan;
use sanwire_sim::hyperscsi::plan::{Fault, LinkFault, Medium, Plan};
use sanwire_sim::hyperscsi::strangers::StrangersPlan;
use sanwire_sim::hyperscsi::wire::World;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};
use sanwire_sim::workload::Worker;
use sanwire_sim::world::Outcome;

/// So long a client seeks its server at the most, and waits for any of its answers.
const BOUND: Duration = Duration::from_secs(2);

/// A few clients that do a little all the time, at several shards.
fn clients(random: &mut Random) -> Plan {
    let mut plan = Plan::clean(random.choose(&[Medium::Ethernet, Medium::Udp]), 1500);
    plan.wire.link = LinkPlan { delay_us: random.choose(&[5, 500, 5000]), ..plan.wire.link };
    plan.wire.link.loss_per_million = random.choose(&[0, 0, 10_000]);
    plan.wire.shards = random.range(2..=3) as usize;
    plan.wire.misdirected_per_million = random.choose(&[0, 0, 20_000]);
    plan.clients = random.range(2..=4) as usize;
    plan.work.commands = 80;
    plan.work.depth = 4;
    plan.work.blocks_max = 8;
    plan.work.count_per_million = 200_000;
    plan.work.think_us = 50_000;
    plan.blocks = 256;
    plan.healed_after = BOUND * 2;
    plan
}

fn strangers(random: &mut Random) -> StrangersPlan {
    let hosts = random.choose(&[1, 4, 8]);
    StrangersPlan {
        forged_per_second: random.choose(&[0, 1_000, 12_000]),
        begun_per_second: random.choose(&[0, 300, 2_000]),
        hosts,
        guessers: random.choose(&[0, 1, 8]),
        keep_keys: false,
        greedy: random.choose(&[0, 0, 2]),
        are_next_door: random.chance(300_000),
        know_names: false,
        are_clients_listed: random.chance(500_000),
    }
}

/// Clients come again, or the server does.
fn comings(plan: &mut Plan, random: &mut Random) {
    for _ in 0..random.range(0..=3) {
        let at = random.micros(0..=1_900_000);
        let client = random.range(0..=plan.clients as u64 - 1) as usize;
        plan.faults.push((at, Fault::Wire(LinkFault::Replace(client))));
    }
    if random.chance(300_000) {
        let at = random.micros(0..=1_000_000);
        plan.faults.push((at, Fault::Kill));
        plan.faults.push((at + random.micros(1_000..=300_000), Fault::Start));
    }
}

fn answered(worker: &Worker<Client>) -> u64 {
    worker.good + worker.other
}

/// Wrong passwords that a server reads at the most in so long of these who guess: of one who keeps his key, it waits longer and longer,
/// and of others it reads no more than an address may give to each shard.
fn guesses_max(at_door: &StrangersPlan, shards: u64, length: Duration) -> u64 {
    let Unit::PerSecond { burst } = GUESSES_OF_NETWORK.unit else { return 0 };
    let of_one = match at_door.keep_keys {
        // After 50 ms, 100 ms and so on.
        true => u64::from((length.as_millis() / 50 + 1).ilog2()) + 2,
        false => shards * (u64::from(burst) + GUESSES_OF_NETWORK.limit * length.as_secs() + 1),
    };
    at_door.guessers * of_one
}

/// Everybody is connected when the last one has come for so long, goes on while he has something to do, and no more handshakes are
/// begun for strangers than there may be.
fn live(plan: Plan, seed: u64) -> Outcome<()> {
    let (shards, length) = (plan.wire.shards as u64, plan.healed_after);
    let guesses_max = plan.wire.strangers.as_ref().map_or(0, |at_door| guesses_max(at_door, shards, length));
    let mut world = World::new(plan, seed);
    world.start()?;
    for _ in 0..2 {
        let before: Vec<u64> = world.workers.iter().map(answered).collect();
        world.run_for(BOUND)?;
        for (worker, before) in world.workers.iter().zip(before) {
            // One that is new has nothing from before.
            let stands = answered(worker) == before && !worker.is_done();
            if worker.client.server().is_none() || worker.given_up.is_some() || stands {
                return Err(format!("kept out or standing still at {:?}: {}", world.now, world.describe()));
            }
        }
    }
    // With its bursts, and those of the server that may have been started again.
    let per_second: u64 = [HANDSHAKES_UNPROVEN, HANDSHAKES_PROVEN].iter().map(|quota| quota.limit).sum();
    let most = shards * (per_second * length.as_secs() + 2 * (64 + 128));
    if world.begun_by_strangers() > most {
        return Err(format!("{} handshakes for strangers, {most} may be", world.begun_by_strangers()));
    }
    if world.guesses_read() > guesses_max {
        return Err(format!("{} wrong passwords were read, {guesses_max} may be", world.guesses_read()));
    }
    world.run_for(Duration::from_secs(1))?;
    world.run_until(world.now + Duration::from_secs(60), World::is_worked_off)?;
    world.farewell()
}

#[test]
fn floods_and_guesses_of_strangers_keep_no_client_out() {
    run_seeds("floods_and_guesses_of_strangers", 12, |seed| {
        let random = &mut plan_random(80, seed);
        let mut plan = clients(random);
        let mut at_door = strangers(random);
        at_door.keep_keys = random.chance(500_000);
        // Unlisted clients share the limits of their address with who has the same.
        at_door.are_next_door &= at_door.are_clients_listed;
        plan.wire.strangers = Some(at_door);
        comings(&mut plan, random);
        live(plan, seed)
    });
}

#[test]
fn who_names_listed_clients_from_elsewhere_keeps_none_of_them_out() {
    run_seeds("who_names_listed_clients_from_elsewhere", 12, |seed| {
        let random = &mut plan_random(81, seed);
        let mut plan = clients(random);
        let at_door =
            StrangersPlan { know_names: true, are_clients_listed: true, are_next_door: false, ..strangers(random) };
        plan.wire.strangers = Some(at_door);
        comings(&mut plan, random);
        live(plan, seed)
    });
}

/// How long a new client takes whose round trip is so long, beside a flood or not.
fn newcomer(round_trip: Duration, at_door: Option<StrangersPlan>, seed: u64) -> Outcome<Duration> {
    let mut plan = Plan::clean(Medium::Udp, 1500);
    (plan.clients, plan.wire.shards, plan.work.commands) = (2, 2, 0);
    let delay_us = round_trip.as_micros() as u64 / 2;
    plan.wire.links = vec![plan.wire.link, LinkPlan { delay_us, ..plan.wire.link }];
    plan.wire.strangers = at_door;
    plan.healed_after = Duration::from_secs(60);
    let mut world = World::new(plan, seed);
    world.start()?;
    let begun = world.now;
    world.run_until(begun + Duration::from_secs(20), |world| world.workers[1].client.server().is_some())?;
    Ok(world.now.saturating_since(begun))
}

/// A cookie costs it one more, and no fresh attempt is begun meanwhile.
#[test]
fn a_newcomer_far_away_is_let_in_after_three_round_trips_beside_a_flood_and_after_two_without() {
    let flood = StrangersPlan {
        forged_per_second: 1_000,
        begun_per_second: 0,
        hosts: 1,
        guessers: 0,
        keep_keys: false,
        greedy: 0,
        are_next_door: false,
        know_names: false,
        are_clients_listed: false,
    };
    for round_trip in [20, 200, 400, 700].map(Duration::from_millis) {
        run_seeds("a_newcomer_far_away", 2, |seed| {
            // Something was lost, or waited behind the flood.
            let slack = Duration::from_millis(50);
            let alone = newcomer(round_trip, None, seed)?;
            let flooded = newcomer(round_trip, Some(flood.clone()), seed)?;
            match (alone <= round_trip * 2 + slack, flooded <= round_trip * 3 + slack) {
                (true, true) => Ok(()),
                _ => Err(format!("{round_trip:?} there and back: {alone:?} alone, {flooded:?} in a flood")),
            }
        });
    }
}
