//! iSER with the initiator of the Linux kernel, over its own iWARP, siw.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::harness::{GUEST_LINKS, Guest, Server, World, run_ok};

const LIMIT: Duration = Duration::from_secs(120);
/// How long the server is away: longer than a ping takes to notice, shorter than anybody gives up.
const OUTAGE: Duration = Duration::from_secs(3);

const DISK: &str = "iqn.2026-11.org.sanwire:disk";
const STRICT: &str = "iqn.2026-11.org.sanwire:strict";

/// One target as it comes, and one that insists on digests, which are not there over iSER.
const TARGETS: &str = r#"
[[target]]
name = "iqn.2026-11.org.sanwire:disk"
lun = { 0 = "disk" }
allow = ["any"]

[[target]]
name = "iqn.2026-11.org.sanwire:strict"
lun = { 0 = "other" }
allow = ["any"]
require-digests = true
"#;

#[test]
#[ignore = "boots a Linux guest"]
fn the_initiator_of_linux_keeps_a_file_system_over_iser_while_the_server_restarts() {
    let test = "the_initiator_of_linux_keeps_a_file_system_over_iser_while_the_server_restarts";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let Some(mut guest) = Guest::boot(&world, test) else { return };
    let portal = GUEST_LINKS[0].server;
    let (store, config) = (world.scratch.path("disk.img"), world.scratch.text("sanwire.toml"));
    fs::write(&config, TARGETS).expect("a configuration");
    let volumes = [&format!("disk=file:{},size=96M", store.display())[..], "other=ram:8M"];
    let wire = format!("iser:{portal}");
    let mut server = Server::start_alone(&world, &volumes, &["--wire", &wire, "--config", &config]);
    guest.run("iser-discovery", &[portal, DISK, STRICT], LIMIT);
    guest.run("iser-refused", &[portal, STRICT], LIMIT);
    guest.run("iser-login", &[portal, DISK], LIMIT);
    let device = format!("/dev/disk/by-path/ip-{portal}:3260-iscsi-{DISK}-lun-0");
    guest.run("filesystem", &["ext4", &device], LIMIT);
    guest.run("fio-verify", &[&device], LIMIT);
    guest.run("restart", &["start", &device, "24m"], LIMIT);
    server.kill();
    thread::sleep(OUTAGE);
    server.restart();
    guest.run("restart", &["finish"], LIMIT);
    let in_guest = guest.run("sum", &[&device], LIMIT);
    guest.run("logout", &[portal, DISK], LIMIT);
    let mut sum = Command::new("sha256sum");
    sum.arg(&store);
    let stored = run_ok(sum, LIMIT);
    assert_eq!(stored.split_whitespace().next(), Some(in_guest.trim()), "what the guest reads is what is stored");
    assert!(server.stop().success(), "{}", server.log());
}
