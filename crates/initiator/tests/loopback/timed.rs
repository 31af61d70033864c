//! What other programs and tests beside them would spoil: `make test-long` runs these, one at a time.

use std::time::Duration;

#[test]
#[ignore = "judged by the clock"]
fn a_deep_queue_does_not_spin_while_its_server_is_away() {
    let used = super::write_deep_beyond_a_restart();
    assert!(used < Duration::from_millis(500), "{used:?} of processor time in an outage of seconds");
}

#[test]
#[ignore = "memory of the whole process"]
fn a_storm_of_management_does_not_grow_memory() {
    let grown_bytes = super::manage_in_a_storm();
    assert!(grown_bytes < 64 << 20, "{grown_bytes} bytes");
}
