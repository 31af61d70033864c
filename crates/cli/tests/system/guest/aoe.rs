//! ATA over Ethernet with the driver of the Linux kernel and aoetools. It is short, and shares the guest of another test.

use std::thread;
use std::time::Duration;

use crate::harness::{GUEST_LINKS, Guest, Server, World, run_ok};

const LIMIT: Duration = Duration::from_secs(300);
/// How long the server is away: the driver gives its commands again all the while, and for three minutes at the most.
const OUTAGE: Duration = Duration::from_secs(2);
/// How long a link is away.
const CUT: Duration = Duration::from_secs(5);
const TARGET: &str = "7.3";
const SECOND_TARGET: &str = "8.1";
const MIB: &str = "192";
/// In the guest.
const INTERFACES: &str = "eth0,eth1";

/// What a volume has to be for this.
pub const VOLUME: &str = "size=192M,shelf=7,slot=3";
/// What another one has to be.
pub const SECOND_VOLUME: &str = "size=64M,shelf=8,slot=1";

/// Frames of the usual size, then jumbo frames, on the second link, with one driver.
pub fn the_driver_of_linux_finds_a_target_and_writes_on_when_the_server_is_back(
    world: &World,
    guest: &mut Guest,
    server: &mut Server,
) {
    let [_, link] = GUEST_LINKS;
    let device = format!("/dev/etherd/e{TARGET}");
    guest.run("aoe", &["find", TARGET, "eth1", "1500", MIB, INTERFACES], LIMIT);
    guest.run("aoe", &["filesystem", "ext4", TARGET], LIMIT);
    guest.run("restart", &["start", &device, "20m"], LIMIT);
    server.kill();
    set_link(world, link.interface, &["mtu", "9000"]);
    thread::sleep(OUTAGE);
    server.restart();
    guest.run("restart", &["finish"], LIMIT);
    // The server has opened the link anew, and says by itself that frames may be larger.
    guest.run("aoe", &["find", TARGET, "eth1", "9000", MIB, INTERFACES], LIMIT);
    guest.run("aoe", &["filesystem", "xfs", TARGET], LIMIT);
    guest.run("aoe", &["leave"], LIMIT);
}

/// Each link is cut in turn while one of the targets is written to.
pub fn the_driver_has_two_shelves_over_two_links_and_writes_on_when_one_is_cut(world: &World, guest: &mut Guest) {
    let find = ["find-over", INTERFACES, TARGET, SECOND_TARGET];
    guest.run("aoe", &find, LIMIT);
    guest.run("aoe", &["filesystem", "ext4", SECOND_TARGET], LIMIT);
    for link in GUEST_LINKS {
        guest.run("restart", &["start", &format!("/dev/etherd/e{SECOND_TARGET}"), "32m"], LIMIT);
        guest.run("aoe", &["use", "eth0", "eth1"], LIMIT);
        set_link(world, link.interface, &["down"]);
        thread::sleep(CUT);
        set_link(world, link.interface, &["up"]);
        guest.run("restart", &["finish"], LIMIT);
        // The server has opened the link anew: both lead to both again.
        guest.run("aoe", &find, LIMIT);
    }
    guest.run("aoe", &["leave"], LIMIT);
}

/// Changes the server's end of a link.
pub fn set_link(world: &World, interface: &str, change: &[&str]) {
    let mut ip = world.on_server("ip");
    ip.args(["link", "set", interface]).args(change);
    run_ok(ip, LIMIT);
}
