//! Clients that die while they read, freeze, take no answers, or do not say what has come, beside others that do nothing wrong:
//! these go on, within a bound, however little memory there is.

use std::time::Duration;

use sanwire_hyperscsi::Recovery;
use sanwire_sim::hyperscsi::link::LinkPlan;
use sanwire_sim::hyperscsi::plan::{Fault, LinkFault, Medium, Plan};
use sanwire_sim::hyperscsi::wire::World;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};
use sanwire_sim::world::Outcome;

/// So long nobody waits for all of its answers because of what another one does: memory is taken back after two seconds.
const BOUND: Duration = Duration::from_secs(4);

/// Clients that do much with large blocks, in so little memory that it does not reach for one of them.
fn crowd(random: &mut Random) -> Plan {
    let mut plan = Plan::clean(random.choose(&[Medium::Ethernet, Medium::Udp]), 9000);
    plan.wire.link = LinkPlan { delay_us: random.choose(&[5, 500, 5000]), ..plan.wire.link };
    plan.wire.recovery = random.choose(&[Recovery::Selective, Recovery::Selective, Recovery::WholeWindow]);
    plan.clients = random.range(2..=4) as usize;
    plan.work.blocks_max = random.choose(&[64, 256]);
    plan.work.depth = 16;
    plan.work.commands = 800;
    plan.work.budget_bytes = 1 << 30;
    plan.work.think_us = 15_000;
    plan.server_memory_bytes = random.choose(&[256 << 10, 1 << 20, 3 << 20]);
    plan.client_memory_bytes = 4 << 20;
    plan.healed_after = Duration::from_secs(16);
    plan
}

/// What the first client does from some moment on; sometimes again and again.
fn freezes(plan: &mut Plan, random: &mut Random) {
    let cut = |there, back| LinkFault::Cut { client: 0, there, back };
    let freeze = random.choose(&[cut(true, true), cut(true, false), cut(false, true), LinkFault::PauseServer(0)]);
    let mut at = random.micros(300_000..=3_000_000);
    plan.faults.push((at, Fault::Wire(freeze)));
    while random.chance(500_000) {
        at += random.micros(1_000_000..=6_000_000);
        let thaw = if freeze == LinkFault::PauseServer(0) { LinkFault::ResumeServer(0) } else { LinkFault::Mend(0) };
        plan.faults.push((at, Fault::Wire(thaw)));
        at += random.micros(100_000..=1_000_000);
        plan.faults.push((at, Fault::Wire(freeze)));
    }
    plan.faults.retain(|(at, _)| *at < plan.healed_after);
}

fn live(plan: Plan, seed: u64) -> Outcome<()> {
    World::live_beside_the_first(plan, seed, BOUND, Duration::from_secs(90))
}

#[test]
fn nobody_stands_still_because_another_client_does() {
    run_seeds("nobody_stands_still", 150, |seed| {
        let random = &mut plan_random(70, seed);
        let mut plan = crowd(random);
        freezes(&mut plan, random);
        live(plan, seed)
    });
}

#[test]
fn a_client_on_a_slow_link_or_a_bad_one_keeps_nobody_waiting() {
    run_seeds("a_client_on_a_slow_link", 50, on_a_bad_link);
}

/// Links on which a tenth is lost, to servers whose memory holds two commands, with whole windows sent again.
#[test]
fn nor_does_one_whose_way_loses_a_tenth_and_sends_whole_windows_again() {
    run_seeds("nor_does_one_whose_way", 3, |seed| {
        on_a_bad_link([355, 732, 996].get(seed as usize).copied().unwrap_or(seed))
    });
}

fn on_a_bad_link(seed: u64) -> Outcome<()> {
    let random = &mut plan_random(71, seed);
    let mut plan = crowd(random);
    plan.wire.link.loss_per_million = random.choose(&[0, 20_000, 100_000]);
    plan.wire.link.jitter_us = random.choose(&[0, 1_000, 20_000]);
    freezes(&mut plan, random);
    live(plan, seed)
}
