//! Programs that are stopped by Ctrl-Z: their servers wait.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Process, Server, Wire, World, expect_pattern, pattern, run_ok, wait_until};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A server drops a client that is silent for 15 s and has not paused it.
const STOPPED: Duration = Duration::from_secs(20);

#[test]
fn a_copy_that_is_stopped_goes_on_over_the_same_connection() {
    let test = "a_copy_that_is_stopped_goes_on_over_the_same_connection";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let (image, back, socket) =
        (world.scratch.text("image.raw"), world.scratch.text("back.raw"), world.scratch.text("ctl.sock"));
    let mut server =
        Server::start_with(&world, &["disk=ram:32M,delay=read:1s"], &["--allow", "any", "--control", &socket]);
    let url = Wire::Ethernet.url("disk");
    fs::write(&image, pattern(11, 32 << 20)).expect("an image");
    run_ok(world.sanwire(&["cp", &image, &url]), TIMEOUT);
    let statistics = || {
        let said = run_ok(world.sanwire(&["ctl", "--socket", &socket, "statistics", "--json"]), TIMEOUT);
        let mut said: Value = serde_json::from_str(&said).expect("JSON");
        said["statistics"].take()
    };
    let read_bytes = || statistics()["volumes"][0]["read_bytes"].as_u64();
    let before = read_bytes();
    let log = world.scratch.path("cp.log");
    let mut copy = Process::spawn("cp", world.sanwire(&["cp", &url, &back]), log);
    wait_until("something was read", TIMEOUT, || read_bytes() > before);
    copy.signal(Signal::TSTP);
    wait_until("it is stopped", TIMEOUT, || {
        let status = fs::read_to_string(format!("/proc/{}/status", copy.pid())).expect("its status");
        status.lines().any(|line| line.starts_with("State:\tT"))
    });
    thread::sleep(STOPPED);
    assert_eq!(statistics()["connections"].as_array().map(Vec::len), Some(1), "{}", server.log());
    copy.signal(Signal::CONT);
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    assert!(!copy.log().contains("is back"), "{}", copy.log());
    expect_pattern("the copy", &fs::read(&back).expect("the copy"), 11);
    assert!(server.stop().success(), "{}", server.log());
}
