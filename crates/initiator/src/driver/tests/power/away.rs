//! A client that keeps writes is cut off while another one writes, and finds its server again after that has lost its power.

use super::*;

#[test]
fn nothing_old_of_a_client_that_was_away_comes_over_what_others_have_written_meanwhile() {
    let seen = Seen::default();
    run_seeds("-p sanwire-initiator nothing_old_of_a_client_that_was_away", 100, |seed| {
        let random = &mut plan_random(95, seed);
        let (mut plan, habits) = any_plan(random);
        (plan.clients, plan.blocks, plan.healed_after) = (2, 16, Duration::from_secs(8));
        plan.wire.session_idle_max = Duration::from_secs(random.choose(&[1, 30]));
        plan.wire.link.loss_per_million = 0;
        let cut_at = random.micros(500_000..=2_000_000);
        let cut = LinkFault::Cut { client: 0, there: true, back: true };
        plan.faults.push((cut_at, Fault::Wire(cut)));
        let lost_at = cut_at + random.micros(50_000..=2_500_000);
        plan.faults.push((lost_at, Fault::LosePower));
        let mended_at = lost_at + random.micros(0..=1_000_000);
        plan.faults.push((mended_at, Fault::Wire(LinkFault::Mend(0))));
        // Both seek their server then: either of them may find it first.
        plan.faults.push((mended_at + random.micros(0..=1_500_000), Fault::Start));
        let habits = Habits {
            keep_bytes: 1 << 20,
            handles: 1,
            depth: random.choose(&[1, 4]),
            writes_per_million: vec![900_000; 2],
            begins_after: vec![Duration::ZERO, cut_at + random.micros(0..=50_000)],
            operations: 400,
            think_us: random.choose(&[5_000, 20_000]),
            ..habits
        };
        live(plan, &habits, &seen, seed)
    });
}
