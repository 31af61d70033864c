//! Volumes that grow while they are attached.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{Attached, SERVER_ADDRESS, Server, Wire, World, expect_pattern, pattern, run_ok, wait_until};

const TIMEOUT: Duration = Duration::from_secs(60);
const BEFORE_BYTES: u64 = 8 << 20;
const AFTER_BYTES: u64 = 16 << 20;

/// Nobody uses them meanwhile, so nothing but the attachment itself can hear of it.
#[test]
fn an_attached_volume_that_grows_at_its_server_grows_on_the_host() {
    let Some(world) = World::new("an_attached_volume_that_grows_at_its_server", 1500, &["dd"]) else { return };
    let socket = world.scratch.text("ctl.sock");
    let disks = [("one", Wire::Ethernet), ("two", Wire::Iscsi)];
    let volumes = disks.map(|(name, _)| format!("{name}=ram:{BEFORE_BYTES}"));
    let portal = format!("iscsi:{SERVER_ADDRESS}");
    let options = ["--allow", "any", "--wire", &portal, "--control", &socket];
    let mut server = Server::start_with(&world, &volumes.each_ref().map(String::as_str), &options);
    let attached = disks.map(|(name, wire)| Attached::device(&world, &wire.url(name)));
    for (name, _) in disks {
        let size = AFTER_BYTES.to_string();
        run_ok(world.sanwire(&["ctl", "--socket", &socket, "resize-volume", name, &size]), TIMEOUT);
    }
    for (mut attached, (name, _)) in attached.into_iter().zip(disks) {
        let device = attached.place.display().to_string();
        let size = || {
            let mut ask = Command::new("blockdev");
            ask.args(["--getsize64", &device]);
            run_ok(ask, TIMEOUT).trim().parse::<u64>().expect("a size")
        };
        wait_until("the block device has grown", TIMEOUT, || size() == AFTER_BYTES);
        let log = attached.log();
        assert!(log.contains(&format!("volume {name} of server")), "{log}");
        assert!(log.contains("has grown from 8 MiB to 16 MiB"), "{log}");
        let content = pattern(5, (AFTER_BYTES - BEFORE_BYTES) as usize);
        let mut dd = Command::new("dd");
        dd.args([&format!("of={device}"), "bs=1M", "seek=8", "iflag=fullblock", "oflag=direct", "status=none"]);
        let mut dd = dd.stdin(Stdio::piped()).spawn().expect("dd runs");
        dd.stdin.take().expect("a pipe").write_all(&content).expect("dd takes it");
        assert!(dd.wait().expect("dd ends").success());
        let mut back = vec![0; content.len()];
        fs::File::open(&device).expect("the device").read_exact_at(&mut back, BEFORE_BYTES).expect("what was written");
        expect_pattern("what lies behind the old end", &back, 5);
        // The URL of an iSCSI volume ends with its number.
        run_ok(world.sanwire(&["detach", name]), TIMEOUT);
        attached.expect_end();
    }
    assert!(server.stop().success(), "{}", server.log());
}
