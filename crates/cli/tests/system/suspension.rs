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
/// How often a copy is stopped until its server has heard of it.
const ATTEMPTS: u32 = 3;

/// Stops a program as Ctrl-Z does, and waits until it is stopped.
#[track_caller]
fn stop(program: &Process) {
    program.signal(Signal::TSTP);
    wait_until("it is stopped", TIMEOUT, || {
        let status = fs::read_to_string(format!("/proc/{}/status", program.pid())).expect("its status");
        status.lines().any(|line| line.starts_with("State:\tT"))
    });
}

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
    // Slow enough to be stopped in the middle, also by who is held up for some seconds.
    let mut copy = Process::spawn("cp", world.sanwire(&["cp", "--depth", "2", &url, &back]), log);
    wait_until("something was read", TIMEOUT, || read_bytes() > before);
    let times_back = |copy: &Process| copy.log().matches("is back").count();
    for attempt in 1.. {
        stop(&copy);
        thread::sleep(STOPPED);
        if statistics()["connections"].as_array().map(Vec::len) == Some(1) {
            break;
        }
        // A program tells its server within half a second, or not at all: one that is held up does not hear it.
        assert!(attempt < ATTEMPTS, "{}", server.log());
        let before = times_back(&copy);
        copy.signal(Signal::CONT);
        wait_until("it is connected again", TIMEOUT, || times_back(&copy) > before);
    }
    let before = times_back(&copy);
    copy.signal(Signal::CONT);
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    assert_eq!(times_back(&copy), before, "{}", copy.log());
    expect_pattern("the copy", &fs::read(&back).expect("the copy"), 11);
    assert!(server.stop().success(), "{}", server.log());
}
