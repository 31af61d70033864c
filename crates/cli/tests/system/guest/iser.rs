//! iSER with the initiator and the target of the Linux kernel, over its own iWARP, siw.

use std::fs;
use std::ops::Range;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::is_long;
use super::lio::{Cut, a_copy_to_it_outlives_a_cut};
use crate::harness::{GUEST_LINKS, Guest, Server, World, pattern, run_ok};

const LIMIT: Duration = Duration::from_secs(300);
/// How long the server is away: longer than a ping takes to notice, shorter than anybody gives up.
const OUTAGE: Duration = Duration::from_secs(3);

const DISK: &str = "iqn.2026-11.org.sanwire:disk";
const STRICT: &str = "iqn.2026-11.org.sanwire:strict";
const PART: &str = "iqn.2026-11.org.sanwire:part";

/// One target as it comes, one that insists on digests, which are not there over iSER, and one of a part of that one's volume.
const TARGETS: &str = r#"
[[volume]]
name = "part"
store = "dvd:other"
region = ["96M+96M", "0+64M"]
principal = ["any"]

[[target]]
name = "iqn.2026-11.org.sanwire:disk"
lun = { 0 = "disk" }
allow = ["any"]

[[target]]
name = "iqn.2026-11.org.sanwire:strict"
lun = { 0 = "other" }
allow = ["any"]
require-digests = true

[[target]]
name = "iqn.2026-11.org.sanwire:part"
lun = { 0 = "part" }
allow = ["any"]
"#;
const OTHER_MIB: usize = 256;
/// What of it is in the part, in MiB.
const REGIONS: [Range<usize>; 2] = [0..64, 96..192];

const LINUX_TARGET: &str = "iqn.2003-01.org.linux-iscsi.guest:disk";
const LINUX_MIB: usize = 64;
const CONTENT_BYTES: usize = 24 << 20;

#[test]
#[ignore = "boots a Linux guest"]
fn both_ends_of_linux_go_over_iser_while_the_server_restarts_and_links_are_cut() {
    let test = "both_ends_of_linux_go_over_iser_while_the_server_restarts_and_links_are_cut";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let Some(mut guest) = Guest::boot(&world, test) else { return };
    the_target_of_linux_is_found_and_copied_to(&world, &mut guest);
    the_initiator_of_linux_keeps_file_systems(&world, &mut guest);
}

fn the_initiator_of_linux_keeps_file_systems(world: &World, guest: &mut Guest) {
    let portals = GUEST_LINKS.map(|link| link.server);
    let portal = portals[0];
    let (store, config) = (world.scratch.path("disk.img"), world.scratch.text("sanwire.toml"));
    fs::write(&config, TARGETS).expect("a configuration");
    let other = world.scratch.path("other.img");
    let volumes = [
        &format!("disk=file:{},size=192M", store.display())[..],
        &format!("other=file:{},size={OTHER_MIB}M", other.display()),
    ];
    let wires = portals.map(|portal| format!("iser:{portal}"));
    let options = ["--wire", &wires[0], "--wire", &wires[1], "--config", &config];
    let mut server = Server::start_alone(world, &volumes, &options);
    guest.run("iser-discovery", &[portal, DISK, STRICT, PART], LIMIT);
    guest.run("iser-refused", &[portal, STRICT], LIMIT);
    guest.run("iser-login", &[portal, DISK], LIMIT);
    let device = format!("/dev/disk/by-path/ip-{portal}:3260-iscsi-{DISK}-lun-0");
    // The part below has an ext4.
    let kinds = if is_long() { &["ext4", "xfs"][..] } else { &["xfs"] };
    for kind in kinds {
        guest.run("filesystem", &[kind, &device], LIMIT);
    }
    guest.run("fio-verify", &[&device], LIMIT);
    guest.run("restart", &["start", &device, "24m"], LIMIT);
    server.kill();
    thread::sleep(OUTAGE);
    server.restart();
    guest.run("restart", &["finish"], LIMIT);
    let in_guest = guest.run("sum", &[&device], LIMIT);
    guest.run("logout", &[portal, DISK], LIMIT);
    let mut sum = Command::new("b2sum");
    sum.arg(&store);
    let stored = run_ok(sum, LIMIT);
    assert_eq!(stored.split_whitespace().next(), Some(in_guest.trim()), "what the guest reads is what is stored");
    use_part(guest, portal);
    let other = fs::read(&other).expect("the other volume");
    let is_blank = |mib: &usize| other[mib << 20..(mib + 1) << 20].iter().all(|byte| *byte == 0);
    let (inside, outside): (Vec<usize>, Vec<usize>) =
        (0..OTHER_MIB).partition(|mib| REGIONS.iter().any(|region| region.contains(mib)));
    assert!(outside.iter().all(is_blank) && !inside.iter().all(is_blank), "its regions are written, and nothing else");
    // Whether the kernel warned is not asked here: it does of its own initiator, whose end of a session waits for another queue of work
    // (check_flush_dependency in __iscsi_unbind_session).
    guest.run("iser-multipath", &[portals[0], portals[1], DISK], LIMIT);
    assert!(server.stop().success(), "{}", server.log());
}

/// The derived volume has a file system, and then blocks that are verified.
fn use_part(guest: &mut Guest, portal: &str) {
    guest.run("iser-login", &[portal, PART], LIMIT);
    let device = format!("/dev/disk/by-path/ip-{portal}:3260-iscsi-{PART}-lun-0");
    guest.run("filesystem", &["ext4", &device], LIMIT);
    guest.run("fio-verify", &[&device], LIMIT);
    guest.run("logout", &[portal, PART], LIMIT);
}

fn the_target_of_linux_is_found_and_copied_to(world: &World, guest: &mut Guest) {
    let link = GUEST_LINKS[0];
    guest.run("lio-iser", &[link.guest, LINUX_TARGET, &LINUX_MIB.to_string()], LIMIT);
    let sanwire = |arguments: &[&str]| {
        let mut command = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
        command.args(arguments);
        run_ok(command, LIMIT)
    };
    let (host, url) = (format!("iser://{}", link.guest), format!("iser://{}/{LINUX_TARGET}/0", link.guest));
    let found = sanwire(&["discover", &host, "--wide"]);
    assert!(found.contains(LINUX_TARGET) && found.contains("iSER"), "{found}");
    let told = sanwire(&["info", &url]);
    assert!(told.contains("64 MiB") && told.contains("iSER"), "{told}");
    // Who leaves without the answer to its logout would be seen here.
    guest.run("no-warnings", &[], LIMIT);
    let (image, back) = (world.scratch.text("image"), world.scratch.text("back"));
    let content = pattern(1, CONTENT_BYTES);
    fs::write(&image, &content).expect("an image");
    sanwire(&["cp", "--overwrite", "--verify", "--wait", "60", &image, &url]);
    sanwire(&["cp", "--wait", "60", &url, &back]);
    let read = fs::read(&back).expect("a copy");
    assert!(read.len() == LINUX_MIB << 20 && read[..CONTENT_BYTES] == content, "what was read is what was written");
    guest.run("no-warnings", &[], LIMIT);
    let cuts = if is_long() { &[Cut::Reset, Cut::Silence][..] } else { &[Cut::Reset] };
    for cut in cuts {
        a_copy_to_it_outlives_a_cut(world, [link.interface, link.guest, &url], *cut);
    }
}
