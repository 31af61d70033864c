//! The target of the Linux kernel when the way to it is cut.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::aoe::set_link;
use crate::harness::{World, pattern, run, run_ok, wait_until};

/// How a way is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Its TCP connection is reset, which both ends learn at once.
    Reset,
    /// Nothing passes for longer than the client waits for an answer, and nobody says so. Over iSER that target lets nobody in for more than
    /// a minute after that.
    Silence,
}

const SILENCE: Duration = Duration::from_secs(12);
/// How long the client tries to come back.
const WAIT_S: &str = "240";
const LIMIT: Duration = Duration::from_secs(400);

const CONTENT_BYTES: usize = 32 << 20;
/// What has been sent when the link is cut.
const BEFORE_BYTES: u64 = 1 << 20;

/// The way by this interface to the guest at this address, whose target has this URL, is cut under a copy: that goes on, and all of it is there.
pub fn a_copy_to_it_outlives_a_cut(world: &World, [interface, guest, url]: [&str; 3], cut: Cut) {
    let sanwire = |arguments: &[&str]| {
        let mut command = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
        command.args(arguments);
        run(command, LIMIT)
    };
    let (image, back) = (world.scratch.text("cut-image"), world.scratch.text("cut-back"));
    let content = pattern(2 + u64::from(cut == Cut::Silence), CONTENT_BYTES);
    fs::write(&image, &content).expect("an image");
    slow(world, &["replace", "dev", interface, "root", "tbf", "rate", "15mbit", "burst", "16384", "limit", "65536"]);
    let before = sent_bytes(world, interface);
    let begin = Instant::now();
    let copied = thread::scope(|scope| {
        let patience = ["--command-timeout", WAIT_S, "--wait", WAIT_S];
        let copy = [&["cp", "--overwrite"], &patience[..], &[&image, url]].concat();
        let copying = scope.spawn(move || sanwire(&copy));
        wait_until("the copy goes on", LIMIT, || {
            sent_bytes(world, interface) > before + BEFORE_BYTES || copying.is_finished()
        });
        match cut {
            Cut::Reset => reset(world, guest),
            Cut::Silence => {
                set_link(world, interface, &["down"]);
                thread::sleep(SILENCE);
                set_link(world, interface, &["up"]);
            }
        }
        copying.join().expect("a copy")
    });
    slow(world, &["del", "dev", interface, "root"]);
    println!("a copy over a cut ({cut:?}): {} s; {}", begin.elapsed().as_secs(), copied.stderr);
    assert_eq!(copied.code, Some(0), "{copied:?}");
    assert!(copied.stderr.contains("seeking it"), "the way was cut before it was over: {copied:?}");
    let read = sanwire(&["cp", "--wait", WAIT_S, url, &back]);
    assert_eq!(read.code, Some(0), "{read:?}");
    let read = fs::read(&back).expect("a copy");
    assert!(read[..CONTENT_BYTES] == content, "what was read is what was written");
}

/// Lets the copy take so long, where there is tc, that it is not over before it is cut; or ends that.
fn slow(world: &World, change: &[&str]) {
    let mut tc = world.on_server("tc");
    tc.arg("qdisc").args(change);
    run(tc, LIMIT);
}

/// Resets the connections to the target at this address.
fn reset(world: &World, guest: &str) {
    let mut ss = world.on_server("ss");
    ss.args(["-K", "dst", guest, "dport", "=", "3260"]);
    let killed = run_ok(ss, LIMIT);
    assert!(killed.contains("ESTAB"), "{killed}");
}

/// What has gone to the guest.
fn sent_bytes(world: &World, interface: &str) -> u64 {
    let mut ip = world.on_server("ip");
    ip.args(["-json", "-statistics", "link", "show", "dev", interface]);
    let told: Value = serde_json::from_str(&run_ok(ip, LIMIT)).expect("JSON");
    told[0]["stats64"]["tx"]["bytes"].as_u64().expect("a counter")
}
