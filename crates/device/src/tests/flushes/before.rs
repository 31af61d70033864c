//! Flushes that failed before this run.

use super::*;

/// The server was stopped, or killed, before all had heard of it; what is remembered says only that.
#[test]
fn the_first_flush_of_each_initiator_fails_after_a_run_in_which_one_has_failed() {
    let world = World::small();
    world.replace(Volatility { verifier: [9; 16], has_failed: true, tenure: None, keeper: None });
    let world = world.with(&[NEXUS, OTHER]);
    for nexus in [NEXUS, OTHER] {
        assert_eq!(world.flushes(nexus), [Some(LOST), None, None]);
    }
    world.come(THIRD);
    let page = world.run(THIRD, build::write_verifier(255), &[]).data_in.unwrap().to_vec();
    assert_eq!(WriteVerifier::parse(&page).unwrap().unwrap().verifier, [9; 16], "it says so already");
    assert_eq!(world.flushes(THIRD), [None; 3], "it heeds the page");
    world.units.nexus_lost(OTHER);
    let again = NexusId(4);
    for _ in 0..2 {
        world.units.nexus_established(again, ports(OTHER.0, 1));
        world.run(again, build::test_unit_ready(), &[]);
        assert_eq!(world.flushes(again), [None; 3], "it has heard of it");
        world.units.nexus_lost(again);
    }
}
