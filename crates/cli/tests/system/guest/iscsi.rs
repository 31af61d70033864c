//! iSCSI with the initiator of the Linux kernel: open-iscsi, multipath, the sg tools.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::{is_long, optical};
use crate::harness::{GUEST_LINKS, Guest, Server, World, run_ok};

const LIMIT: Duration = Duration::from_secs(300);
const LONG_LIMIT: Duration = Duration::from_secs(600);
/// How long the server is away: longer than the initiator's ping takes to notice, shorter than it waits.
const OUTAGE: Duration = Duration::from_secs(3);
/// Where the server listens for `sanwire ctl`.
pub(super) const SOCKET: &str = "control.sock";

/// Each disk a logical unit of one target, and one of them that of another target which wants CHAP, and shows that it knows a
/// secret too.
const TARGETS: &str = r#"
[[target]]
name = "iqn.2026-11.org.sanwire:both"
lun = { 0 = "one", 1 = "two" }
allow = ["any"]

[[target]]
name = "iqn.2026-11.org.sanwire:secret"
lun = { 0 = "two" }
chap = [{ user = "host", secret = "a secret of hosts" }]
mutual-chap = { user = "disks", secret = "a secret of disks" }

[[target]]
name = "iqn.2026-11.org.sanwire:beside"
lun = { 0 = "two" }
allow = ["any"]

[[target]]
name = "iqn.2026-11.org.sanwire:far"
lun = { 0 = "one", 300 = "two", 16383 = "three" }
allow = ["any"]
"#;

/// The portal groups of the two portals.
const GROUPS: [&str; 2] = ["1", "2"];

/// A server with two portals, and a guest.
pub(super) struct Rig {
    pub(super) guest: Guest,
    pub(super) server: Server,
    // The last to go: the others use it.
    pub(super) world: World,
}

impl Rig {
    /// Serves volumes of so many MiB in files, with a configuration of targets or else to everybody; `None` when this machine
    /// cannot run the test.
    pub(super) fn new(test: &str, volumes: &[(&str, u32)], targets: Option<&str>) -> Option<Rig> {
        let world = World::new(test, 1500, &[])?;
        let guest = Guest::boot(&world, test)?;
        let server = serve(&world, volumes, targets);
        Some(Rig { guest, server, world })
    }

    /// Ends the server; the same guest has another one from now on, with volumes of other names.
    #[track_caller]
    fn begin_anew(&mut self, volumes: &[(&str, u32)], targets: Option<&str>) {
        assert!(self.server.stop().success(), "{}", self.server.log());
        forget_server(&self.world);
        self.server = serve(&self.world, volumes, targets);
    }

    /// `sanwire ctl` with the server.
    #[track_caller]
    fn ctl(&self, arguments: &[&str]) {
        let mut ctl = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        ctl.args(["ctl", "--socket"]).arg(self.world.scratch.path(SOCKET)).args(arguments);
        run_ok(ctl, LIMIT);
    }

    #[track_caller]
    fn run(&mut self, job: &str, arguments: &[&str]) {
        self.guest.run(job, arguments, LIMIT);
    }

    /// Logs in to a target by a portal.
    #[track_caller]
    fn log_in(&mut self, portal: &str, name: &str) {
        self.run("login", &[portal, &target(name)]);
    }

    #[track_caller]
    fn log_out(&mut self, portal: &str, name: &str) {
        self.run("logout", &[portal, &target(name)]);
    }

    #[track_caller]
    fn stop(mut self) {
        assert!(self.server.stop().success(), "{}", self.server.log());
    }
}

fn serve(world: &World, volumes: &[(&str, u32)], targets: Option<&str>) -> Server {
    let file =
        |(name, mib): &(&str, u32)| format!("{name}=file:{},size={mib}M", world.scratch.text(&format!("{name}.img")));
    let volumes: Vec<String> = volumes.iter().map(file).collect();
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let [first, second] = GUEST_LINKS.map(|link| format!("iscsi:{}", link.server));
    let wires = [first, format!("{second},{}", GROUPS[1])];
    let (config, socket) = (world.scratch.text("sanwire.toml"), world.scratch.text(SOCKET));
    let mut options = vec!["--wire", &wires[0], "--wire", &wires[1], "--control", &socket];
    if let Some(targets) = targets {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&config).expect("a file");
        file.write_all(targets.as_bytes()).expect("a configuration");
        options.extend(["--config", &config]);
    } else {
        options.extend(["--allow", "any"]);
    }
    Server::start_with(world, &volumes, &options)
}

/// The next server is another one: what the one before, which has ended, has kept and said is gone.
fn forget_server(world: &World) {
    fs::remove_dir_all(world.state("server")).expect("the state of a server");
    fs::remove_file(world.scratch.path("server.log")).expect("what it has said");
}

fn target(name: &str) -> String {
    format!("iqn.2026-11.org.sanwire:{name}")
}

/// The guest's device for a logical unit of a target by a portal.
///
/// Linux keeps the two bits of a LUN that tell how it is written: from 256 on, flat space (SAM-5 4.7.7.3).
fn device(portal: &str, name: &str, unit: u16) -> String {
    let lun = if unit < 256 { unit.to_string() } else { format!("0x{:04x}000000000000", 0x4000 | unit) };
    format!("/dev/disk/by-path/ip-{portal}:3260-iscsi-{}-lun-{lun}", target(name))
}

#[test]
#[ignore = "boots a Linux guest"]
fn linux_keeps_file_systems_on_disks_that_grow_and_writes_on_through_restarts_and_cuts() {
    let test = "linux_keeps_file_systems_on_disks_that_grow_and_writes_on_through_restarts_and_cuts";
    let Some(mut rig) = Rig::new(test, &[("one", 192), ("two", 64)], None) else { return };
    it_finds_targets_and_keeps_file_systems_on_disks_that_grow(&mut rig);
    rig.begin_anew(&[("disk", 64)], None);
    it_writes_on_while_the_server_restarts_and_links_are_cut(&mut rig);
    rig.stop();
}

fn it_finds_targets_and_keeps_file_systems_on_disks_that_grow(rig: &mut Rig) {
    let portal = GUEST_LINKS[0].server;
    rig.run("discovery", &[portal, &target("one"), &target("two")]);
    rig.run("digests", &[portal, &target("two")]);
    rig.log_in(portal, "one");
    let device = device(portal, "one", 0);
    for kind in ["ext4", "xfs", "btrfs"] {
        rig.run("filesystem", &[kind, &device]);
    }
    rig.run("fio-verify", &[&device]);
    rig.ctl(&["resize-volume", "one", "256M"]);
    rig.run("resize", &[&device, &(256 << 20).to_string()]);
    rig.log_out(portal, "one");
}

fn it_writes_on_while_the_server_restarts_and_links_are_cut(rig: &mut Rig) {
    let [first, second] = GUEST_LINKS.map(|link| link.server);
    rig.log_in(first, "disk");
    rig.run("restart", &["start", &device(first, "disk", 0)]);
    rig.server.kill();
    thread::sleep(OUTAGE);
    rig.server.restart();
    rig.guest.run("restart", &["finish"], LONG_LIMIT);
    rig.log_out(first, "disk");
    rig.guest.run("multipath", &[first, second, &target("disk")], LONG_LIMIT);
}

#[test]
#[ignore = "boots a Linux guest"]
fn linux_uses_the_commands_reservations_secrets_and_port_groups_of_targets() {
    let test = "linux_uses_the_commands_reservations_secrets_and_port_groups_of_targets";
    let volumes = [("one", 64), ("two", 64), ("three", 64)];
    let Some(mut rig) = Rig::new(test, &volumes, Some(TARGETS)) else { return };
    it_uses_the_commands_reservations_and_secrets_of_a_target(&mut rig);
    rig.begin_anew(&[("disk", 64)], None);
    it_writes_on_by_the_other_port_group_when_one_goes_to_standby_or_is_unavailable(&mut rig);
    rig.stop();
}

fn it_uses_the_commands_reservations_and_secrets_of_a_target(rig: &mut Rig) {
    let [first, second] = GUEST_LINKS.map(|link| link.server);
    let secrets = ["host", "a secret of hosts", "disks", "a secret of disks"];
    let algorithms = ["MD5", "SHA256", "SHA3-256,SHA256,SHA1,MD5", "SHA1", "SHA3-256", "MD5,SHA3-256"];
    let algorithms = if is_long() { &algorithms[..] } else { &algorithms[..3] };
    let secret = target("secret");
    let chap = [&[first, secret.as_str()], &secrets[..], algorithms].concat();
    rig.run("login-chap", &chap);
    rig.log_in(first, "both");
    rig.run("sg-tools", &[&device(first, "both", 0), &device(first, "both", 1)]);
    rig.run("tokens", &[&device(first, "both", 0), &device(first, "both", 1)]);
    rig.log_in(first, "beside");
    rig.run("copy", &[&device(first, "both", 0), &device(first, "beside", 0)]);
    rig.log_out(first, "beside");
    rig.log_in(first, "far");
    for unit in [300, 16_383] {
        rig.run("fio-verify", &[&device(first, "far", unit)]);
    }
    rig.log_out(first, "far");
    rig.log_in(second, "both");
    rig.run("persist", &[&device(first, "both", 0), &device(second, "both", 0)]);
    for portal in [second, first] {
        rig.log_out(portal, "both");
    }
}

fn it_writes_on_by_the_other_port_group_when_one_goes_to_standby_or_is_unavailable(rig: &mut Rig) {
    let [first, second] = GUEST_LINKS.map(|link| link.server);
    let name = target("disk");
    rig.guest.run("alua", &["start", first, second, &name], LONG_LIMIT);
    for (group, state, rest) in [(0, "standby", "1"), (1, "unavailable", "0")] {
        rig.ctl(&["set-access-state", GROUPS[group], state]);
        rig.guest.run("alua", &["only", rest], LONG_LIMIT);
        rig.ctl(&["set-access-state", GROUPS[group], "active-optimized"]);
        rig.guest.run("alua", &["both"], LONG_LIMIT);
    }
    rig.guest.run("alua", &["finish", first, second, &name], LONG_LIMIT);
}

/// Who has the file system need not run on the server's host, or attach the disk by a program of ours. Then a drive of discs.
#[test]
#[ignore = "boots a Linux guest"]
fn a_file_on_a_disk_of_linux_becomes_a_disk_by_its_owner_in_band_and_discs_are_changed() {
    let test = "a_file_on_a_disk_of_linux_becomes_a_disk_by_its_owner_in_band_and_discs_are_changed";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let Some(guest) = Guest::boot(&world, test) else { return };
    let portal = GUEST_LINKS[0].server;
    let disk = format!("disk=file:{},size=128M", world.scratch.text("disk.img"));
    let (iscsi, udp) = (format!("iscsi:{portal}"), format!("hs-ip:{portal}"));
    let socket = world.scratch.text(SOCKET);
    let options = ["--wire", &iscsi, "--wire", &udp, "--control", &socket, "--allow", "any"];
    let server = Server::start_alone(&world, &[&disk], &options);
    let mut rig = Rig { guest, server, world };
    let told = rig.guest.run("dvd-file", &["id"], LIMIT);
    let is_id = |line: &&str| line.len() == 32 && line.bytes().all(|digit| digit.is_ascii_hexdigit());
    let id = told.lines().find(is_id).expect("the id of the guest");
    rig.ctl(&["set-volume", "disk", "--owner", &format!("key:{id}")]);
    rig.log_in(portal, "disk");
    let url = format!("hs+ip://{portal}");
    rig.run("dvd-file", &["serve", &device(portal, "disk", 0), &url, portal, &target("movie")]);
    rig.log_out(portal, "disk");
    let mut list = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    list.args(["dvd", "ls", "--socket", &socket]);
    let left = run_ok(list, LIMIT);
    assert!(!left.contains("movie"), "{left}");
    assert!(rig.server.stop().success(), "{}", rig.server.log());
    forget_server(&rig.world);
    optical::linux_mounts_a_disc_ejects_it_and_finds_another_one(&rig.world, &mut rig.guest);
}
