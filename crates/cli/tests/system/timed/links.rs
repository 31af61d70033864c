//! The longest operation while a link dies, and what unequal links carry together.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::try_until;
use crate::harness::{Wire, World, hurry, run_ok};
use crate::links::{CALM, ENOUGH_BYTES, serve, two_links};

const TIMEOUT: Duration = Duration::from_secs(60);

/// What a client does for so long while something happens after it has begun.
fn measure(world: &World, reads: &str, seconds: u64, happens: impl FnOnce()) -> Value {
    let (url, time) = (Wire::Ethernet.url("disk"), seconds.to_string());
    let arguments = ["bench", &url, "--json", "--overwrite", "--reads", reads, "--pattern", "sequential"];
    let bench = world.sanwire(&[&arguments[..], &["--block", "64K", "--depth", "8", "--time", &time]].concat());
    thread::scope(|scope| {
        let report = scope.spawn(|| run_ok(bench, TIMEOUT));
        thread::sleep(Duration::from_secs(seconds) / 2);
        happens();
        serde_json::from_str(&report.join().expect("a report")).expect("JSON")
    })
}

/// The cut is one that nobody is told of: both interfaces stay up and have a carrier.
#[test]
#[ignore = "judged by the clock"]
fn no_operation_waits_longer_than_a_fifth_of_a_second_when_a_link_dies_under_load() {
    let Some(world) = two_links("no_operation_waits_longer_than_a_fifth_of_a_second") else { return };
    hurry();
    let mut server = serve(&world, "disk=ram:64M");
    for reads in ["100", "0", "50"] {
        try_until(&format!("{reads} % reads"), || {
            let before = [0, 1].map(|number| world.carried_bytes(number));
            let report = measure(&world, reads, 4, || {
                [0, 1].iter().for_each(|number| {
                    assert!(world.carried_bytes(*number) > before[usize::from(*number)] + ENOUGH_BYTES, "lan{number}");
                });
                world.lose(100);
            });
            let [at_server, at_client] = world.lose_nothing();
            let states: Vec<&Value> =
                report["links"].as_array().expect("links").iter().map(|link| &link["state"]).collect();
            assert!(at_server > 0 && at_client > 0 && states == ["silent", "live"], "it was cut under load: {report}");
            let longest_ms = report["latency_us"]["max"].as_f64().expect("a time") / 1e3;
            (format!("the longest took {longest_ms:.0} ms"), longest_ms <= 200.0)
        });
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
#[ignore = "judged by the clock"]
fn a_wide_link_with_jumbo_frames_and_a_narrow_one_without_carry_what_both_have() {
    let test = "a_wide_link_with_jumbo_frames_and_a_narrow_one";
    let Some(world) = World::new(test, 9000, &["tc"]) else { return };
    hurry();
    let (wide, narrow) = (CALM, CALM / 4);
    world.add_path(1, 1500);
    world.shape(0, wide);
    world.shape(1, narrow);
    let mut server = serve(&world, "disk=ram:64M");
    for reads in ["100", "0"] {
        try_until(&format!("{reads} % reads"), || {
            let before = world.carried_bytes(1);
            let report = measure(&world, reads, 6, || {});
            assert!(world.carried_bytes(1) > before + ENOUGH_BYTES, "both carry data: {report}");
            let rate = report["bytes_per_second"].as_f64().expect("a rate") * 8.0 / 1e6;
            let share = rate / f64::from(wide + narrow);
            (format!("{rate:.1} Mbit/s, {share:.3} of both"), share >= 0.9)
        });
    }
    assert!(server.stop().success(), "{}", server.log());
}
