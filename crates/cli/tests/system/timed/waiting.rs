//! The processor time of who waits: for descriptors, or for a target that is away.

use std::thread;
use std::time::Duration;

use crate::foreign::copy_beyond_a_killed_target;
use crate::harness::cpu_time;
use crate::resources::run_out_of_descriptors;

const WATCH: Duration = Duration::from_secs(3);

/// Fails when this process uses so much processor time, or more, while it waits.
#[track_caller]
fn expect_calm(pid: u32, at_most: Duration) {
    let before = cpu_time(pid);
    thread::sleep(WATCH);
    let used = cpu_time(pid) - before;
    assert!(used < at_most, "it used {used:?} of {WATCH:?}");
}

#[test]
#[ignore = "judged by the clock"]
fn a_server_without_descriptors_waits_calmly() {
    // A loop that does not pause takes all of the time.
    run_out_of_descriptors(|server| expect_calm(server.pid(), Duration::from_millis(150)));
}

#[test]
#[ignore = "judged by the clock"]
fn a_copy_whose_target_was_killed_waits_calmly() {
    let test = "a_copy_whose_target_was_killed_waits_calmly";
    copy_beyond_a_killed_target(test, |copy| expect_calm(copy.pid(), Duration::from_millis(300)));
}
