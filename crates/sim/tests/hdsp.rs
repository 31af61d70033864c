//! Thousands of seeds of HDSP, by what goes wrong.

use std::time::Duration;

use sanwire_core::Protection;
use sanwire_sim::hdsp::plan::{Fault, LinkPlan, Plan};
use sanwire_sim::hdsp::world::{Seen, World};
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};
use sanwire_sim::world::Outcome;

fn bad_link(random: &mut Random) -> LinkPlan {
    LinkPlan {
        loss_per_million: random.choose(&[0, 1_000, 20_000, 100_000, 300_000]),
        duplicate_per_million: random.choose(&[0, 10_000, 200_000]),
        damage_per_million: random.choose(&[0, 10_000]),
        jitter_us: random.choose(&[0, 10, 1_000, 20_000]),
    }
}

/// Moments at which something happens.
fn faults(random: &mut Random, draw: impl Fn(&mut Random) -> Fault) -> Vec<(Duration, Fault)> {
    (0..random.range(1..=4)).map(|_| (random.micros(0..=2_500_000), draw(random))).collect()
}

fn lives(plan: Plan) -> Outcome<()> {
    seen(plan).map(drop)
}

fn seen(plan: Plan) -> Outcome<Seen> {
    let (commands, clients) = (u64::from(plan.commands), plan.clients as u64);
    let seen = World::new(plan).live()?;
    match seen.ended == commands * clients {
        true => Ok(seen),
        false => Err(format!("{} of {} commands ended", seen.ended, commands * clients)),
    }
}

#[test]
fn calm() {
    run_seeds("calm", 300, |seed| lives(Plan::calm(seed, &mut plan_random(100, seed))));
}

#[test]
fn loss() {
    run_seeds("loss", 1000, |seed| {
        let mut random = plan_random(101, seed);
        lives(Plan { link: bad_link(&mut random), ..Plan::calm(seed, &mut random) })
    });
}

#[test]
fn cuts() {
    run_seeds("cuts", 700, |seed| {
        let mut random = plan_random(102, seed);
        let faults = faults(&mut random, |random| Fault::Cut { micros: random.range(1_000..=4_000_000) });
        lives(Plan { link: bad_link(&mut random), faults, ..Plan::calm(seed, &mut random) })
    });
}

#[test]
fn restarts() {
    run_seeds("restarts", 700, |seed| {
        let mut random = plan_random(103, seed);
        let faults = faults(&mut random, |random| Fault::Restart { loses_power: random.chance(500_000) });
        let error_per_million = random.choose(&[0, 50_000]);
        lives(Plan { link: bad_link(&mut random), faults, error_per_million, ..Plan::calm(seed, &mut random) })
    });
}

#[test]
fn attacks() {
    run_seeds("attacks", 700, |seed| {
        let mut random = plan_random(104, seed);
        // Without authentication of data, an attacker on the link can change data.
        let protection = random.choose(&Protection::ALL[1..]);
        let link = if random.chance(500_000) { bad_link(&mut random) } else { LinkPlan::default() };
        lives(Plan { link, protection, is_attacked: true, ..Plan::calm(seed, &mut random) })
    });
}

/// The server has memory for one of the longest writes, or a few, and all clients give many.
#[test]
fn scarcity() {
    run_seeds("scarcity", 200, |seed| lives(plan_of_scarcity(seed)));
}

fn plan_of_scarcity(seed: u64) -> Plan {
    let mut random = plan_random(107, seed);
    let link = if random.chance(500_000) { bad_link(&mut random) } else { LinkPlan::default() };
    let memory_bytes = random.choose(&[24 << 10, 32 << 10, 64 << 10]);
    let plan = Plan::calm(seed, &mut random);
    Plan { link, memory_bytes, clients: 3, depth: 12, blocks_max: 40, ..plan }
}

/// Memory goes to others for a while, and comes back: all is answered all the same, everybody may send again as much as before, and
/// nobody's window swings: after it was as small as can be, it is made smaller no more than 15 times in a second.
#[test]
fn overload() {
    run_seeds("overload", 300, |seed| {
        let mut random = plan_random(108, seed);
        let link = if random.chance(300_000) { bad_link(&mut random) } else { LinkPlan::default() };
        let faults = faults(&mut random, |random| Fault::Shortage {
            micros: random.range(50_000..=1_500_000),
            left_bytes: random.choose(&[0, 8 << 10, 24 << 10]),
        });
        let memory_bytes = random.choose(&[64 << 10, 256 << 10, 16 << 20]);
        let (clients, commands) = (random.range(1..=3) as usize, random.range(60..=120) as u32);
        let plan = Plan::calm(seed, &mut random);
        let plan = Plan { link, faults, memory_bytes, clients, commands, depth: 12, blocks_max: 40, ..plan };
        let seen = seen(Plan { changes_flow: false, ..plan })?;
        let seconds = seen.at.as_nanos() / 1_000_000_000 + 1;
        let most = 8 * seen.accepted + 15 * clients as u64 * seconds;
        if seen.shrunk <= most { Ok(()) } else { Err(format!("{seen:?}: more than {most}")) }
    });
}

/// Clients that lose patience: what they gave may be done or not, and what is said afterwards is true.
#[test]
fn impatience() {
    run_seeds("impatience", 600, |seed| lives(plan_of_impatience(seed)));
}

fn plan_of_impatience(seed: u64) -> Plan {
    let mut random = plan_random(105, seed);
    let draw = |random: &mut Random| match random.chance(500_000) {
        true => Fault::Cut { micros: random.range(1_000..=4_000_000) },
        false => Fault::Restart { loses_power: random.chance(300_000) },
    };
    let faults = faults(&mut random, draw);
    let patience = random.micros(300_000..=3_000_000);
    // The disk has something to do still when its client has lost patience.
    let hang_per_million = random.choose(&[0, 100_000]);
    Plan { link: bad_link(&mut random), faults, patience, hang_per_million, ..Plan::calm(seed, &mut random) }
}

/// Everything at once.
#[test]
fn storms() {
    run_seeds("storms", 1000, |seed| lives(plan_of_storms(seed)));
}

fn plan_of_storms(seed: u64) -> Plan {
    let mut random = plan_random(106, seed);
    let draw = |random: &mut Random| match random.chance(500_000) {
        true => Fault::Cut { micros: random.range(1_000..=2_000_000) },
        false => Fault::Restart { loses_power: random.chance(300_000) },
    };
    let faults = faults(&mut random, draw);
    let protection = random.choose(&Protection::ALL[1..]);
    let (link, error_per_million) = (bad_link(&mut random), random.choose(&[0, 50_000]));
    Plan { link, faults, protection, error_per_million, is_attacked: true, ..Plan::calm(seed, &mut random) }
}

/// Worlds that have stood still: what changes the flow was lost, and not told again; the command that came first lacked memory, and that
/// was forgotten on account of what its client sent besides.
#[test]
fn stood_still() {
    for plan in [plan_of_impatience(138), plan_of_storms(1363), plan_of_scarcity(20)] {
        lives(plan).unwrap();
    }
}
