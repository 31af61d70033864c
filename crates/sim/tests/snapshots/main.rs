//! Volumes of layers through losses of power at any operation: whatever was flushed is there, snapshots stay what they were.

mod administrator;
mod checks;
mod device;
mod disk;
mod model;
mod world;

use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};

use self::disk::Faults;
use self::world::{Below, Plan, run};

fn plan(random: &mut Random) -> Plan {
    Plan {
        life_operations: random.choose(&[50, 300, 1500]),
        lives: 6,
        faults: Faults { is_tight: random.chance(700_000), ..Faults::default() },
        block_bytes: random.choose(&[512, 4096]),
        below: random.choose(&[Below::Nothing, Below::File, Below::File, Below::Device, Below::Device]),
    }
}

#[test]
fn snapshots_survive_a_loss_of_power_at_any_operation() {
    run_seeds("snapshots", 200, |seed| run(plan(&mut plan_random(1, seed)), seed));
}

#[test]
fn what_a_failed_flush_loses_is_what_was_not_flushed() {
    run_seeds("snapshots", 200, |seed| {
        let plan = plan(&mut plan_random(2, seed));
        run(Plan { faults: Faults { lost_flushes_per_million: 100_000, ..plan.faults }, ..plan }, seed)
    });
}

#[test]
fn layers_that_find_no_space_lose_nothing() {
    run_seeds("snapshots", 150, |seed| {
        let plan = plan(&mut plan_random(3, seed));
        run(Plan { faults: Faults { full_per_million: 50_000, ..plan.faults }, ..plan }, seed)
    });
}

#[test]
fn changes_that_may_have_been_kept_lose_nothing() {
    run_seeds("snapshots", 150, |seed| {
        let plan = plan(&mut plan_random(4, seed));
        run(Plan { faults: Faults { unkept_per_million: 50_000, ..plan.faults }, ..plan }, seed)
    });
}
