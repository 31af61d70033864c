//! `sanwire attach` by the entries of a file, names of block devices, and one attachment of a volume on a host.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Attached, Process, SERVER_NAME, Server, Wire, World, run, run_ok, wait_until};

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn an_entry_is_attached_once_and_its_device_has_a_name() {
    let test = "an_entry_is_attached_once_and_its_device_has_a_name";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    // Names of devices are the whole machine's.
    let volume = format!("disk-{}", world.scratch.label);
    let mut server = Server::start(&world, &[&format!("{volume}=ram:8M")]);
    let (url, file) = (Wire::Ip.url(&volume), world.scratch.text("attach.toml"));
    let saved = world.sanwire(&["attach", "--config", &file, "--save", "data", &url, "--security", "none"]);
    let saved = run_ok(saved, TIMEOUT);
    assert!(saved.contains("sanwire-attach@data.service") && saved.contains("_netdev,nofail"), "{saved}");
    let text = fs::read_to_string(&file).expect("the file");
    assert!(text.contains("wait = \"forever\"") && text.contains("security = \"none\""), "{text}");
    let checked = run_ok(world.sanwire(&["attach", "--config", &file, "--check"]), TIMEOUT);
    assert!(checked.contains(&format!("data: {url}")), "{checked}");
    let mixed = run(world.sanwire(&["attach", "--config", &file, "data", "--wait", "5"]), TIMEOUT);
    assert!(mixed.code == Some(2) && mixed.stderr.contains("--wait belongs into the entry data"), "{}", mixed.stderr);

    let attach = |log: &str, arguments: &[&str]| {
        let mut process = Process::spawn("attach", world.sanwire(arguments), world.scratch.path(log));
        process.wait_for("is attached as\n", TIMEOUT);
        process
    };
    let mut first = attach("first.log", &["attach", "--config", &file, "data"]);
    let device = first.log().lines().find(|line| line.starts_with("/dev/loop")).expect("a device").to_owned();
    let name = format!("/dev/sanwire/{SERVER_NAME}/{volume}");
    assert_eq!(Path::new(&name).canonicalize().expect("its name"), Path::new(&device), "{}", first.log());
    let shown = run_ok(world.sanwire(&["top", "--attachments", "--once", "--json"]), TIMEOUT);
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let all = shown["attachments"].as_array().expect("an array");
    let ours = all.iter().find(|attachment| attachment["place"] == name.as_str()).expect("the one by its name");
    assert!(ours["url"] == url.as_str() && ours["state"] == "live" && ours["p99_seconds"].is_null(), "{ours}");
    let refused = run(world.sanwire(&["attach", &Wire::Ethernet.url(&volume)]), TIMEOUT);
    let reason = format!("is attached on this host already as {device}");
    assert!(refused.code == Some(1) && refused.stderr.contains(&reason), "{}", refused.stderr);
    let second = attach("second.log", &["attach", &url, "--again"]);
    assert!(Path::new(&name).canonicalize().is_ok_and(|named| named == Path::new(&device)), "the first one keeps it");
    run_ok(world.sanwire(&["detach", &device]), TIMEOUT);
    assert!(first.wait(TIMEOUT).success(), "{}", first.log());
    let log = first.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "an ordinary end is no reason to warn: {log}");
    let refused = run(world.sanwire(&["attach", "--config", &file, "data"]), TIMEOUT);
    assert!(refused.code == Some(1) && refused.stderr.contains("attached on this host already"), "{}", refused.stderr);
    drop(second);

    let mut first = attach("third.log", &["attach", "--config", &file, "data"]);
    run_ok(world.sanwire(&["detach", &name]), TIMEOUT);
    assert!(first.wait(TIMEOUT).success(), "{}", first.log());
    assert!(!Path::new(&name).is_symlink());
    let mut killed = attach("killed.log", &["attach", "--config", &file, "data"]);
    killed.kill();
    wait_until("its remains are removed", TIMEOUT, || {
        run_ok(world.sanwire(&["ls"]), TIMEOUT);
        !Path::new(&name).is_symlink()
    });
    assert!(server.stop().success(), "{}", server.log());
}

/// Over one wire against the other, and when the one that has it is killed.
#[test]
fn an_exclusive_attachment_is_refused_to_others_until_it_ends_or_is_preempted() {
    let test = "an_exclusive_attachment_is_refused_to_others_until_it_ends_or_is_preempted";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let mut server = Server::start_for(&world, Wire::Iscsi, &["disk=ram:8M"]);
    let (url, others) = (Wire::Ip.url("disk"), Wire::Iscsi.url("disk"));
    let place = world.scratch.text("others-volume");
    let other = |options: &[&str]| {
        let mut command = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
        command.args(["attach", &others, "--exclusive", "--no-device", "--mount-point", &place]).args(options);
        command.env("XDG_STATE_HOME", world.state("other"));
        command
    };
    let mut attached = Attached::fuse(&world, &url, &["--no-device", "--exclusive"]);
    let id = run_ok(world.sanwire(&["id"]), TIMEOUT);
    let refused = run(other(&[]), TIMEOUT);
    let reason = format!("is reserved by client {}, which alone may write to it", id.trim());
    assert!(refused.code == Some(1) && refused.stderr.contains(&reason), "{}", refused.stderr);
    let file = fs::OpenOptions::new().write(true).open(&attached.place).expect("the file");
    file.write_all_at(&[7; 4096], 0).and_then(|()| file.sync_all()).expect("a write");
    let mut looking = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
    looking.args(["attach", &others, "--read-only", "--no-device", "--mount-point", &place]);
    looking.env("XDG_STATE_HOME", world.state("other"));
    let mut looking = Process::spawn("attach", looking, world.scratch.path("looking.log"));
    looking.wait_for("is attached as\n", TIMEOUT);
    let warning = format!("client {} has volume disk of", id.trim());
    assert!(looking.log().contains(&warning), "{}", looking.log());
    looking.signal(Signal::TERM);
    assert!(looking.wait(TIMEOUT).success(), "{}", looking.log());
    drop(file);
    attached.kill();
    assert!(run(other(&[]), TIMEOUT).stderr.contains("take it over with --preempt"));
    let mut process = Process::spawn("attach", other(&["--preempt"]), world.scratch.path("other.log"));
    process.wait_for("is attached as\n", TIMEOUT);
    let refused = run(world.sanwire(&["attach", &url, "--exclusive"]), TIMEOUT);
    assert!(refused.stderr.contains("is reserved by initiator iqn.2026-11.org.sanwire:client-"), "{}", refused.stderr);
    process.signal(Signal::TERM);
    assert!(process.wait(TIMEOUT).success(), "{}", process.log());
    Attached::fuse(&world, &url, &["--no-device", "--exclusive"]).detach(&world);
    let pointless = run(world.sanwire(&["attach", &url, "--preempt"]), TIMEOUT);
    assert!(
        pointless.code == Some(2) && pointless.stderr.contains("--preempt is for --exclusive"),
        "{}",
        pointless.stderr
    );
    assert!(server.stop().success(), "{}", server.log());
}

/// An iSCSI volume is called by its own name, as over every other wire: its URL ends with a number.
#[test]
fn a_mount_point_has_one_attachment_which_is_detached_by_the_name_of_its_volume() {
    let test = "a_mount_point_has_one_attachment_which_is_detached_by_the_name_of_its_volume";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    // Names of attachments are the whole machine's.
    let volume = format!("vm-{}", world.scratch.label);
    let mut server = Server::start_for(&world, Wire::Iscsi, &[&format!("{volume}=ram:8M"), "other=ram:8M"]);
    let mut attached = Attached::file(&world, &Wire::Iscsi.url(&volume));
    let place = attached.place.parent().expect("a mount point").display().to_string();
    let second = ["attach", &Wire::Ip.url("other"), "--no-device", "--mount-point", &place];
    let refused = run(world.sanwire(&second), TIMEOUT);
    let reason = format!("{place} is the mount point of another attachment: choose another one");
    assert!(refused.code == Some(2) && refused.stderr.contains(&reason), "{refused:?}");
    assert_eq!(fs::read(&attached.place).expect("it is untouched").len(), 8 << 20);
    run_ok(world.sanwire(&["detach", &volume]), TIMEOUT);
    attached.expect_end();
    let free = Process::spawn("attach", world.sanwire(&second), world.scratch.path("free.log"));
    wait_until("the place is free", TIMEOUT, || free.log().contains("is attached as\n"));
    run_ok(world.sanwire(&["detach", &place]), TIMEOUT);
    assert!({ free }.wait(TIMEOUT).success());
    assert!(server.stop().success(), "{}", server.log());
}

/// A volume that was made anew has its name, and not its content.
#[test]
fn only_the_volume_that_is_meant_is_attached() {
    let test = "only_the_volume_that_is_meant_is_attached";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let mut server = Server::start(&world, &["disk=ram:8M"]);
    let url = Wire::Ip.url("disk");
    let told: serde_json::Value =
        serde_json::from_str(&run_ok(world.sanwire(&["info", &url, "--json"]), TIMEOUT)).expect("JSON");
    let identity = told["identity"].as_str().expect("an identity");
    Attached::fuse(&world, &url, &["--no-device", "--identity", identity]).detach(&world);
    assert!(server.stop().success(), "{}", server.log());
    server.restart();
    let refused = run(world.sanwire(&["attach", &url, "--identity", identity]), TIMEOUT);
    assert!(refused.code == Some(1) && refused.stderr.contains("is another volume than it was"), "{}", refused.stderr);

    // One that is attached when that happens.
    let attached = Attached::file(&world, &url);
    assert!(server.stop().success(), "{}", server.log());
    server.restart();
    let told =
        "ERROR volume disk of server box was removed, or made anew: what was written to it is not there any more";
    wait_until("it is told", TIMEOUT, || attached.log().contains(told));
    assert!(fs::read(&attached.place).is_err(), "it is not the one that was attached");
    attached.detach_failed(&world);
    assert!(server.stop().success(), "{}", server.log());
}

/// As a block device that is in use does.
#[test]
fn an_nbd_server_that_is_asked_to_end_waits_for_its_clients() {
    let test = "an_nbd_server_that_is_asked_to_end_waits_for_its_clients";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let mut server = Server::start(&world, &["disk=ram:8M"]);
    let mut attached = Attached::nbd(&world, &Wire::Ip.url("disk"));
    let client = std::os::unix::net::UnixStream::connect(world.scratch.path("nbd.sock")).expect("a client");
    wait_until("it is counted", TIMEOUT, || {
        run_ok(world.sanwire(&["status", "--json"]), TIMEOUT).contains("\"nbd_clients\": 1")
    });
    attached.ask_to_end();
    wait_until("it says so", TIMEOUT, || attached.log().contains("has 1 NBD clients; it is detached as soon as"));
    drop(client);
    attached.expect_end();
    assert!(server.stop().success(), "{}", server.log());
}

/// A service manager, or `detach` after another one that has given up, asks for the same again: that is no reason to lose anything.
#[test]
fn who_asks_for_the_end_again_does_not_take_a_volume_away_that_is_in_use() {
    let test = "who_asks_for_the_end_again_does_not_take_a_volume_away_that_is_in_use";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let mut server = Server::start(&world, &["disk=ram:8M"]);
    let mut attached = Attached::file(&world, &Wire::Ip.url("disk"));
    let file = fs::OpenOptions::new().read(true).write(true).open(&attached.place).expect("the file");
    for _ in 0..2 {
        let place = attached.place.display().to_string();
        let refused = run(world.sanwire(&["detach", &place, "--wait", "0.2"]), TIMEOUT);
        assert!(refused.code == Some(1) && refused.stderr.contains("may be in use"), "{}", refused.stderr);
    }
    file.write_all_at(&[7; 4096], 0).expect("it works on");
    drop(file);
    attached.expect_end();
    assert!(server.stop().success(), "{}", server.log());
}
