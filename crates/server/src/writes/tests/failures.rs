//! Flushes that have failed, as the next run hears of them.

use super::*;

/// Clients that do not hear of it in this run must hear of it in the next one.
#[test]
fn a_flush_that_has_failed_outlasts_the_run() {
    let state = State::new("flush");
    let keeper = state.open("a", UUID, 1).keeper.unwrap();
    let tenure = Tenure { id: [5; 16], writer: [6; 16] };
    wait_for(&*keeper, keeper.want(Some(tenure)));
    for number in 2..6 {
        keeper.renew([number; 16]);
    }
    wait_until("it is kept", || state.kept_verifier() == Some([5; 16]));
    assert_eq!(state.tenure(), Some(tenure));
    assert_eq!(state.start("a", 9), [5; 16]);
    stopped(Some(&state.0), UUID, [6; 16], true);
    assert_eq!(state.start("a", 9), [6; 16], "also when the server stops before that");
    stopped(Some(&state.0), UUID, [7; 16], false);
    assert_eq!(state.start("b", 9), [7; 16], "its last flush has failed");
}

/// Initiators that do not go by the verifier hear of it with their next flush.
#[test]
fn a_flush_that_has_failed_is_remembered_until_a_run_without_one_stops_cleanly() {
    let state = State::new("unheard");
    let opened = state.open("a", UUID, 1);
    assert!(!opened.has_failed, "it has no past");
    assert!(!state.open("a", UUID, 1).has_failed, "it was killed");
    let keeper = state.open("a", UUID, 1).keeper.unwrap();
    keeper.renew([2; 16]);
    wait_until("it is kept", || state.kept_verifier() == Some([2; 16]));
    for boot in ["a", "a", "b"] {
        assert!(state.open(boot, UUID, 3).has_failed, "nobody is known to have heard");
    }
    let stop = Stop { verifier: [4; 16], is_flushed: true, has_failed: true };
    super::super::stopped(Some(&state.0), UUID, stop);
    assert!(state.open("b", UUID, 5).has_failed, "the flush at the stop does not know of what others have lost");
    stopped(Some(&state.0), UUID, [4; 16], true);
    assert!(!state.open("b", UUID, 5).has_failed);
    stopped(Some(&state.0), UUID, [6; 16], false);
    assert!(state.open("b", UUID, 7).has_failed, "its last flush has failed");
    stopped(Some(&state.0), UUID, [6; 16], true);
    fs::write(state.verifier_path(), b"damaged").unwrap();
    assert!(state.open("b", UUID, 8).has_failed, "that is not known");
}
