//! Volumes whose blocks are on another server: an NBD export, a volume of another Sanwire.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sanwire_testing::ceph::Ceph;

use crate::harness::{Client, Process, Scratch, Server, can_run, pattern, port, run_ok, wait_until};
use crate::manage::ctl_ok;

const TIMEOUT: Duration = Duration::from_secs(120);
const SIZE_BYTES: usize = 48 << 20;

/// qemu-nbd over an image in the scratch directory.
fn qemu_nbd(scratch: &Scratch, format: &str) -> Process {
    let socket = scratch.path("nbd.sock");
    let _ = fs::remove_file(&socket);
    let mut command = Command::new("qemu-nbd");
    command.args(["-t", "-f", format, "--shared=8", "--discard=unmap", "-x", "disk", "-k"]).arg(&socket);
    let process = Process::spawn("qemu-nbd", command_with(command, &scratch.path("image")), scratch.path("nbd.log"));
    wait_until("qemu-nbd listens", TIMEOUT, || UnixStream::connect(&socket).is_ok());
    process
}

fn command_with(mut command: Command, argument: &Path) -> Command {
    command.arg(argument);
    command
}

/// Copies a file to the volume and back, while `disturb` is at work.
fn copy_both_ways(scratch: &Scratch, url: &str, seed: u64, disturb: impl FnOnce()) {
    let client = Client::new(scratch, "client");
    let (image, back) = (scratch.path("image.raw"), scratch.path("back.raw"));
    let content = pattern(seed, SIZE_BYTES);
    fs::write(&image, &content).expect("an image");
    let _ = fs::remove_file(&back);
    let command = client.command(&["cp", "--overwrite", &image.display().to_string(), url]);
    let mut copy = Process::spawn("cp", command, scratch.path("cp.log"));
    std::thread::sleep(Duration::from_millis(150));
    disturb();
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    let told = client.run(&["cp", url, &back.display().to_string()]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(fs::read(&back).expect("the copy") == content, "the copy over {url} differs");
}

/// What the server behind this socket tells of a volume whose store was gone, and is there again.
fn expect_reconnects(socket: &Path, volume: &str) {
    let metrics = ctl_ok(socket, &["metrics"]);
    let value = |name: &str| {
        let series = format!("sanwire_volume_store_{name}{{volume=\"{volume}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
        line.unwrap_or_else(|| panic!("{name} of {volume}: {metrics}")).parse::<u64>().expect("a number")
    };
    assert_eq!((value("up"), value("requests")), (1, 0), "{metrics}");
    let (outages, reconnects) = (value("outages_total"), value("reconnects_total"));
    assert!(outages > 0 && outages == reconnects, "{outages} outages, and {reconnects} times back");
    let statistics = ctl_ok(socket, &["statistics"]);
    let row = format!("{volume} there {outages} {reconnects} 0 -");
    let rows: Vec<String> =
        statistics.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert!(rows.contains(&row), "{row}: {statistics}");
}

#[test]
fn an_nbd_export_is_served_over_every_wire_and_its_server_may_be_killed() {
    let name = "an_nbd_export_is_served_over_every_wire_and_its_server_may_be_killed";
    if !can_run(name, &["qemu-nbd", "qemu-img"]) {
        return;
    }
    for format in ["raw", "qcow2"] {
        let scratch = Scratch::new();
        let mut command = Command::new("qemu-img");
        command.args(["create", "-q", "-f", format]).arg(scratch.path("image")).arg(SIZE_BYTES.to_string());
        run_ok(command, TIMEOUT);
        let mut nbd = qemu_nbd(&scratch, format);
        let volume = format!("disk=nbd:{},export=disk", scratch.text("nbd.sock"));
        let (hs, iscsi) = (port(), port());
        let wires = [format!("hs-ip:127.0.0.1:{hs}"), format!("iscsi:127.0.0.1:{iscsi}")];
        let wires: Vec<&str> = wires.iter().map(String::as_str).collect();
        let control = ["--control".to_owned(), scratch.text("c.sock")];
        let mut server = Server::start_on(&scratch, &wires, &[&volume], &control);
        let urls = [
            format!("hs+ip://127.0.0.1:{hs}/disk"),
            format!("iscsi://127.0.0.1:{iscsi}/iqn.2026-11.org.sanwire:disk/0"),
        ];
        for (url, seed) in urls.iter().zip(1..) {
            copy_both_ways(&scratch, url, seed, || {
                nbd.kill();
                nbd = qemu_nbd(&scratch, format);
            });
        }
        expect_reconnects(&scratch.path("c.sock"), "disk");
        assert!(server.stop().success(), "{}", server.log());
        assert!(server.log().contains("reconnected"), "{}", server.log());
    }
}

#[test]
fn an_export_that_is_not_there_stops_the_start_with_the_reason() {
    let scratch = Scratch::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    command.env("XDG_STATE_HOME", scratch.path("state"));
    command.args(["serve", "--wire", &format!("hs-ip:127.0.0.1:{}", port()), "--volume"]);
    command.arg(format!("disk=nbd:{}", scratch.text("nowhere.sock")));
    let told = crate::harness::run(command, TIMEOUT);
    assert_ne!(told.code, Some(0));
    assert!(told.stderr.contains("nowhere.sock") && told.stderr.contains("No such file"), "{told:?}");
}

#[test]
fn a_volume_of_another_server_is_served_again_and_that_server_may_be_killed() {
    let (first, second) = (Scratch::new(), Scratch::new());
    let (hs, iscsi, visa) = (port(), port(), port());
    let wires = ["hs-ip", "iscsi", "visa"].into_iter().zip([hs, iscsi, visa]);
    let wires: Vec<String> = wires.map(|(wire, port)| format!("{wire}:127.0.0.1:{port}")).collect();
    let wires: Vec<&str> = wires.iter().map(String::as_str).collect();
    let volume = format!("disk=file:{},size=48M", first.text("disk.img"));
    let mut behind = Server::start_on(&first, &wires, &[&volume], &[]);
    let (a, b) = (port(), port());
    let wires = [format!("hs-ip:127.0.0.1:{a}"), format!("iscsi:127.0.0.1:{b}")];
    let wires: Vec<&str> = wires.iter().map(String::as_str).collect();
    // Each of its volumes is the same one behind it, over another wire; they are used one after the other.
    let volumes = [
        format!("one=hs+ip://127.0.0.1:{hs}/disk"),
        format!("two=iscsi://127.0.0.1:{iscsi}/iqn.2026-11.org.sanwire:disk/0"),
        format!("three=visa://127.0.0.1:{visa}/disk"),
        format!("four=visa+tcp://127.0.0.1:{visa}/disk"),
    ];
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let control = ["--control".to_owned(), second.text("c.sock")];
    let mut front = Server::start_on(&second, &wires, &volumes, &control);
    let urls = [
        format!("iscsi://127.0.0.1:{b}/iqn.2026-11.org.sanwire:one/0"),
        format!("hs+ip://127.0.0.1:{a}/two"),
        format!("hs+ip://127.0.0.1:{a}/three"),
        format!("hs+ip://127.0.0.1:{a}/four"),
    ];
    for (url, seed) in urls.iter().zip(5..) {
        copy_both_ways(&second, url, seed, || {
            behind.kill();
            behind.restart();
        });
    }
    ["one", "two", "three", "four"].iter().for_each(|volume| expect_reconnects(&second.path("c.sock"), volume));
    assert!(front.stop().success(), "{}", front.log());
    assert!(behind.stop().success(), "{}", behind.log());
    let content = pattern(8, SIZE_BYTES);
    assert!(fs::read(first.path("disk.img")).expect("the image") == content, "it is not in the file behind it");
}

#[test]
fn an_rbd_image_fails_over_to_another_server_when_the_first_is_killed_under_load() {
    let name = "an_rbd_image_fails_over_to_another_server_when_the_first_is_killed_under_load";
    if !Ceph::can_run() {
        return sanwire_testing::skip(name, "it takes Ceph's daemons (packages ceph-mon, ceph-osd and ceph-common)");
    }
    let ceph = Ceph::start();
    ceph.create("disk", "48M");
    let (first, second, iscsi) = (Scratch::new(), Scratch::new(), port());
    let wire = format!("iscsi:127.0.0.1:{iscsi}");
    let volume = format!("disk=rbd:rbd/disk,ceph-config={}", ceph.config().display());
    let mut server = Server::start_on(&first, &[&wire], &[&volume], &[]);
    let refused = {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        command.env("XDG_STATE_HOME", second.path("state"));
        command.args(["serve", "--wire", &format!("iscsi:127.0.0.1:{}", port()), "--volume", &volume]);
        crate::harness::run(command, TIMEOUT)
    };
    assert!(refused.code != Some(0) && refused.stderr.contains("takeover"), "{refused:?}");
    let url = format!("iscsi://127.0.0.1:{iscsi}/iqn.2026-11.org.sanwire:disk/0");
    let mut other = None;
    copy_both_ways(&first, &url, 9, || {
        server.kill();
        // The same address: what moves it with the volume is not the server's affair.
        other = Some(Server::start_on(&second, &[&wire], &[&format!("{volume},takeover")], &[]));
    });
    let mut other = other.expect("the other server");
    assert!(other.log().contains("taken over from"), "{}", other.log());
    assert!(other.stop().success(), "{}", other.log());
}
