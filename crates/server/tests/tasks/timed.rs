//! What other programs and tests beside them would spoil: `make test-long` runs these, one at a time.

use std::time::Duration;

use super::frozen::{beside_a_frozen_client, beside_a_frozen_initiator, initiator_beside_a_frozen_client};

/// Memory is taken back from who keeps it from others for 2 s; an answer takes no more than that and a little.
const ANSWER_MAX: Duration = Duration::from_secs(3);

#[track_caller]
fn expect_soon(waited: Duration) {
    assert!(waited <= ANSWER_MAX, "the slowest answer took {waited:?}");
}

#[test]
#[ignore = "judged by the clock"]
fn answers_beside_a_client_that_takes_none_come_soon() {
    expect_soon(beside_a_frozen_client());
}

#[test]
#[ignore = "judged by the clock"]
fn an_initiator_beside_a_client_that_takes_no_answers_gets_its_own_soon() {
    expect_soon(initiator_beside_a_frozen_client());
}

#[test]
#[ignore = "judged by the clock"]
fn answers_beside_an_initiator_that_reads_none_come_soon() {
    expect_soon(beside_a_frozen_initiator());
}
