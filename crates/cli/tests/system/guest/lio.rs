//! The target of the Linux kernel when the link to it is cut: over iSER it lets nobody in for more than a minute after that.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::aoe::set_link;
use crate::harness::{World, pattern, run, run_ok, wait_until};

const CUT: Duration = Duration::from_secs(5);
/// How long the client tries to come back.
const WAIT_S: &str = "240";
const LIMIT: Duration = Duration::from_secs(400);

const CONTENT_BYTES: usize = 32 << 20;
/// What has been sent when the link is cut.
const BEFORE_BYTES: u64 = 4 << 20;

/// The link to the guest, whose target has this URL, is down for a while under a copy: that goes on, and all of it is there.
pub fn a_copy_to_it_outlives_a_cut(world: &World, interface: &str, url: &str) {
    let sanwire = |arguments: &[&str]| {
        let mut command = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
        command.args(arguments);
        run(command, LIMIT)
    };
    let (image, back) = (world.scratch.text("cut-image"), world.scratch.text("cut-back"));
    let content = pattern(2, CONTENT_BYTES);
    fs::write(&image, &content).expect("an image");
    let before = sent_bytes(world, interface);
    let copied = thread::scope(|scope| {
        let copying = scope.spawn(|| sanwire(&["cp", "--overwrite", "--wait", WAIT_S, &image, url]));
        wait_until("the copy goes on", LIMIT, || sent_bytes(world, interface) > before + BEFORE_BYTES);
        set_link(world, interface, &["down"]);
        assert!(!copying.is_finished(), "the copy was over before the link was cut");
        thread::sleep(CUT);
        set_link(world, interface, &["up"]);
        copying.join().expect("a copy")
    });
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let read = sanwire(&["cp", "--wait", WAIT_S, url, &back]);
    assert_eq!(read.code, Some(0), "{read:?}");
    let read = fs::read(&back).expect("a copy");
    assert!(read[..CONTENT_BYTES] == content, "what was read is what was written");
}

/// What has gone to the guest.
fn sent_bytes(world: &World, interface: &str) -> u64 {
    let mut ip = world.on_server("ip");
    ip.args(["-json", "-statistics", "link", "show", "dev", interface]);
    let told: Value = serde_json::from_str(&run_ok(ip, LIMIT)).expect("JSON");
    told[0]["stats64"]["tx"]["bytes"].as_u64().expect("a counter")
}
