//! Disks whose flushes fail and lose what they were to make stable: each client that has written hears of it, or it is written again.

use super::*;

/// What is lost is not even shown any more from some moments on.
fn evictions(plan: &mut Plan, random: &mut Random) {
    let life_us = plan.healed_after.as_micros() as u64;
    for _ in 0..random.range(0..=6) {
        plan.faults.push((random.micros(0..=life_us), Fault::Evict));
    }
}

#[test]
fn what_a_failed_flush_has_lost_is_told_to_each_client_or_written_again() {
    let seen = Seen::default();
    run_seeds("-p sanwire-initiator what_a_failed_flush_has_lost", 100, |seed| {
        let random = &mut plan_random(93, seed);
        let (mut plan, habits) = any_plan(random);
        plan.disk.loss_per_million = random.choose(&[50_000, 200_000, 500_000]);
        plan.disk.flush_us = random.choose(&[0, 5_000, 100_000]);
        plan.disk.early_per_million = 500_000;
        if random.chance(500_000) {
            ends(&mut plan, random, &[Fault::LosePower, Fault::Kill, Fault::ShutDown]);
        }
        evictions(&mut plan, random);
        live(plan, &habits, &seen, seed)
    });
    let told = seen.told.into_inner();
    assert!(told > 0 || std::env::var_os("SANWIRE_SEED").is_some());
}
