//! Servers that come back with a smaller largest transfer.

use sanwire_sim::hyperscsi::terms::Change;

use super::*;

/// With each end of the server, all at once or much less: the last is less than what is under way.
fn shrinks(plan: &mut Plan, random: &mut Random) {
    let ends: Vec<Duration> = plan
        .faults
        .iter()
        .filter(|(_, fault)| matches!(fault, Fault::Kill | Fault::LosePower))
        .map(|(at, _)| *at)
        .collect();
    for at in ends {
        let change = Change::TransferMax(random.choose(&[None, Some(4096), Some(4096), Some(12_288)]));
        let all = (0..plan.clients).map(|client| (at, Fault::Wire(LinkFault::Change { client, change })));
        plan.faults.extend(all);
    }
}

#[test]
fn what_was_cut_for_a_server_that_took_more_is_done_by_one_that_takes_less() {
    let seen = Seen::default();
    run_seeds("-p sanwire-initiator done_by_one_that_takes_less", 100, |seed| {
        let random = &mut plan_random(92, seed);
        let (mut plan, habits) = any_plan(random);
        plan.blocks = 64;
        ends(&mut plan, random, &[Fault::LosePower, Fault::Kill]);
        shrinks(&mut plan, random);
        live(plan, &Habits { blocks_max: 48, ..habits }, &seen, seed)
    });
    let cut = seen.cut.into_inner();
    assert!(cut > 0 || std::env::var_os("SANWIRE_SEED").is_some());
}
