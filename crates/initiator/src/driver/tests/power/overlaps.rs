//! Power that goes right after a flush, beside which others were writing.

use super::*;

#[test]
fn what_was_written_while_a_flush_was_under_way_outlasts_the_power_that_goes_after_it() {
    let seen = Seen::default();
    run_seeds("-p sanwire-initiator what_was_written_while_a_flush", 60, |seed| {
        let random = &mut plan_random(94, seed);
        let (mut plan, habits) = any_plan(random);
        plan.clients = 1;
        plan.disk.flush_us = random.choose(&[20_000, 300_000]);
        plan.wire.link.delay_us = random.choose(&[5, 100]);
        let habits = Habits {
            keep_bytes: random.choose(&[60_000, 1 << 20, 1 << 20]),
            depth: 8,
            think_us: random.choose(&[2_000, 10_000]),
            operations: 300,
            power_per_million: 300_000,
            ..habits
        };
        live(plan, &habits, &seen, seed)
    });
    let survived = seen.survived.into_inner();
    assert!(survived > 0 || std::env::var_os("SANWIRE_SEED").is_some());
}
