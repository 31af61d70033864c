//! Arrays whose members fail, come back, lose power and are not found: what was acknowledged is read, from whichever of them.

mod disk;
mod flights;
mod growing;
mod hosts;
mod lagging;
mod lying;
mod model;
mod plan;
mod replacing;
mod world;

use sanwire_array::Arrangement;
use sanwire_sim::random::Random;
use sanwire_sim::seeds::{plan_random, run_seeds};
use sanwire_sim::world::Outcome;

use self::plan::Plan;
use self::world::run;

fn plan(random: &mut Random) -> Plan {
    let (copies, groups) = random.choose(&[(2, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (1, 3)]);
    let arrangement =
        if random.chance(500_000) { Arrangement::Concat } else { Arrangement::Stripe { chunk_bytes: 64 << 10 } };
    Plan { copies, groups, arrangement, lives: 4, turns: random.choose(&[60, 150, 500]), ..Plan::default() }
}

#[test]
fn what_was_acknowledged_is_there_when_the_host_is_back() {
    run_seeds("array", 1000, |seed| run(plan(&mut plan_random(1, seed)), seed));
}

#[test]
fn members_fail_and_come_back_and_nothing_is_lost() {
    run_seeds("array", 1500, |seed| {
        let plan = plan(&mut plan_random(2, seed));
        run(Plan { cut_per_million: 20_000, ..plan }, seed)
    });
}

#[test]
fn all_power_goes_and_what_was_flushed_is_there_once() {
    run_seeds("array", 1000, |seed| {
        let plan = plan(&mut plan_random(3, seed));
        run(Plan { power_per_million: 500_000, cut_per_million: 5_000, ..plan }, seed)
    });
}

fn hurt(seed: u64) -> Outcome<()> {
    let plan = plan(&mut plan_random(4, seed));
    run(Plan { hurt_per_million: 20_000, cut_per_million: 5_000, ..plan }, seed)
}

#[test]
fn what_one_member_cannot_read_or_write_the_others_have() {
    run_seeds("array", 1000, hurt);
}

#[test]
fn members_that_are_not_found_make_no_older_array() {
    run_seeds("array", 1500, |seed| {
        let plan = plan(&mut plan_random(5, seed));
        run(Plan { cut_per_million: 20_000, hidden_per_million: 400_000, ..plan }, seed)
    });
}

#[test]
fn who_has_lost_the_array_to_another_host_does_nothing_to_it_any_more() {
    run_seeds("array", 1000, |seed| {
        let plan = plan(&mut plan_random(6, seed));
        run(Plan { taken_per_million: 500_000, cut_per_million: 5_000, ..plan }, seed)
    });
}

fn ended(seed: u64) -> Outcome<()> {
    let plan = plan(&mut plan_random(7, seed));
    run(Plan { ended_per_million: 20_000, cut_per_million: 5_000, ..plan }, seed)
}

#[test]
fn a_member_is_opened_again_whose_connection_is_lost_for_good_and_what_it_may_have_lost_is_told() {
    run_seeds("array", 1000, ended);
}

#[test]
fn requests_of_several_shards_meet_in_one_array() {
    run_seeds("array", 1000, |seed| {
        let plan = plan(&mut plan_random(8, seed));
        run(Plan { shards: 4, cut_per_million: 10_000, taken_per_million: 200_000, ..plan }, seed)
    });
}

#[test]
fn another_disk_takes_the_place_of_a_member_and_the_former_one_is_no_member_any_more() {
    run_seeds("array", 1000, |seed| {
        let plan = plan(&mut plan_random(9, seed));
        let plan = Plan { spares: 2, replaced_per_million: 30_000, cut_per_million: 30_000, shards: 2, ..plan };
        run(Plan { hidden_per_million: 200_000, power_per_million: 200_000, ..plan }, seed)
    });
}

fn forced(seed: u64) -> Outcome<()> {
    let plan = plan(&mut plan_random(10, seed));
    let plan = Plan { forced_per_million: 500_000, hidden_per_million: 500_000, cut_per_million: 10_000, ..plan };
    run(Plan { spares: 1, replaced_per_million: 5_000, lives: 6, ..plan }, seed)
}

#[test]
fn what_was_taken_by_force_stays_what_it_was_whoever_comes_back() {
    run_seeds("array", 1000, forced);
}

#[test]
fn an_array_becomes_longer_in_use_and_whenever_its_host_ends_it_is_as_before_or_as_it_was_to_be() {
    run_seeds("array", 1000, |seed| {
        let plan = plan(&mut plan_random(11, seed));
        let plan = Plan { grown_per_million: 15_000, spares: plan.copies * 2, power_per_million: 300_000, ..plan };
        run(Plan { lives: 6, shards: 2, ..plan }, seed)
    });
}

fn grown(seed: u64) -> Outcome<()> {
    let plan = plan(&mut plan_random(12, seed));
    let plan = Plan { grown_per_million: 15_000, spares: plan.copies * 2, cut_per_million: 10_000, ..plan };
    let plan = Plan { hidden_per_million: 200_000, power_per_million: 200_000, lives: 6, ..plan };
    run(Plan { replaced_per_million: 10_000, shards: 2, ..plan }, seed)
}

#[test]
fn members_go_and_come_and_are_replaced_while_an_array_becomes_longer() {
    run_seeds("array", 1500, grown);
}

/// In some of these worlds members go and come besides, in others the array becomes longer.
#[test]
fn a_member_lags_behind_the_others_and_nobody_sees_that() {
    run_seeds("array", 1000, |seed| {
        let plan = plan(&mut plan_random(17, seed));
        let plan = Plan { lags_per_million: 5_000, power_per_million: 200_000, shards: 2, ..plan };
        let plan = match seed % 3 {
            0 => plan,
            1 => Plan { cut_per_million: 5_000, hidden_per_million: 100_000, ..plan },
            _ => Plan { grown_per_million: 15_000, spares: plan.copies * 2, ..plan },
        };
        run(plan, seed)
    });
}

#[test]
fn an_older_image_of_a_member_is_not_taken_for_it() {
    run_seeds("array", 1000, |seed| lying::show_older(plan(&mut plan_random(15, seed)), seed));
}

#[test]
fn copies_that_rot_are_counted_and_made_as_the_first_one_is() {
    run_seeds("array", 500, |seed| {
        let plan = plan(&mut plan_random(16, seed));
        lying::rot(Plan { copies: plan.copies.max(2), lives: 2, ..plan }, seed)
    });
}

fn cancelled(seed: u64) -> Outcome<()> {
    let plan = plan(&mut plan_random(13, seed));
    let plan = Plan { grown_per_million: 15_000, scrubbed_per_million: 15_000, cancelled_per_million: 600_000, ..plan };
    let plan = Plan { spares: plan.copies * 2, power_per_million: 200_000, lives: 6, shards: 2, ..plan };
    let cut_per_million = if seed.is_multiple_of(2) { 0 } else { 10_000 };
    run(Plan { cut_per_million, hidden_per_million: cut_per_million * 20, ..plan }, seed)
}

#[test]
fn what_is_cancelled_leaves_the_array_as_it_was_and_copies_that_are_compared_are_the_same() {
    run_seeds("array", 1000, cancelled);
}

fn taken_while_it_grows(seed: u64) -> Outcome<()> {
    let plan = plan(&mut plan_random(14, seed));
    let plan = Plan { grown_per_million: 15_000, taken_per_million: 500_000, spares: plan.copies * 2, ..plan };
    run(Plan { cancelled_per_million: 200_000, cut_per_million: 5_000, lives: 6, ..plan }, seed)
}

#[test]
fn another_host_takes_over_an_array_that_grows() {
    run_seeds("array", 1000, taken_while_it_grows);
}

/// Seeds that have failed once, most of them not among the first ones.
#[test]
fn what_has_failed_once_does_not_fail_again() {
    hurt(6563).unwrap();
    [13_482, 17_998].into_iter().for_each(|seed| ended(seed).unwrap());
    [5508, 11_818].into_iter().for_each(|seed| forced(seed).unwrap());
    [240, 374, 753].into_iter().for_each(|seed| grown(seed).unwrap());
}
