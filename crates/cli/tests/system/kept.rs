//! What is changed while a server runs is there when it starts again, also after it was killed.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Process, Scratch, Server, port, run, wait_until};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn what_ctl_changes_survives_a_kill_and_a_damaged_state_directory_is_refused() {
    let scratch = Scratch::new();
    let (port, socket) = (port(), scratch.path("c.sock"));
    let state = scratch.text("state");
    let options = ["--control", &scratch.text("c.sock"), "--state-directory", &state].map(str::to_owned);
    let wires = [format!("hs-ip:127.0.0.1:{port}"), format!("iscsi:127.0.0.1:{port}")];
    let wires: Vec<&str> = wires.iter().map(String::as_str).collect();
    let mut server = Server::start_on(&scratch, &wires, &["disk0=ram:8M", "disk1=ram:8M"], &options);
    let added = format!("disk2=file:{},size=8M", scratch.text("disk2.img"));
    ctl_ok(&socket, &["add-volume", &added]);
    ctl_ok(&socket, &["resize-volume", "disk2", "16M"]);
    ctl_ok(&socket, &["remove-volume", "disk0"]);
    ctl_ok(&socket, &["map-volume", "disk2", "--target", "iqn.2026-11.org.example:both", "--lun", "3"]);
    // All but its first line, which says since when.
    let status = || ctl_ok(&socket, &["status"]).lines().skip(1).collect::<Vec<_>>().join("\n");
    let before = status();
    let words: Vec<&str> = before.split_whitespace().collect();
    for part in ["disk2 16 MiB", "iqn.2026-11.org.example:both 3 disk2"] {
        assert!(words.join(" ").contains(part), "{before}");
    }
    server.kill();
    server.restart();
    wait_until("it serves again", TIMEOUT, || ctl(&socket, &["status"]).code == Some(0));
    assert_eq!(status(), before);
    let told: serde_json::Value = serde_json::from_str(&ctl_ok(&socket, &["status", "--json"])).expect("JSON");
    let count = told["status"]["deviations"].as_array().map_or(0, Vec::len);
    let line = format!(" {count} things are not as configured, since ctl has changed them");
    let log = server.log();
    assert!(count > 2 && log.matches(&line).count() == 1, "at the second start, and not at the first: {log}");
    let serve = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        command.args(["serve", "--name", name, "--wire", &format!("hs-ip:127.0.0.1:{}", crate::harness::port())]);
        command.args([
            "--volume",
            "disk0=ram:8M",
            "--state-directory",
            &state,
            "--control",
            &scratch.text("other.sock"),
        ]);
        run(command, TIMEOUT)
    };
    let beside = serve("box");
    assert!(beside.code == Some(1) && beside.stderr.contains("another server called box"), "{}", beside.stderr);
    let beside = serve("box2");
    let who = format!("a server called box (process {}) uses the state directory {state}", server.pid());
    assert!(beside.code == Some(1) && beside.stderr.contains(&who), "{}", beside.stderr);
    assert!(server.stop().success());

    let kept = scratch.path("state/changes-box.json");
    let damaged = fs::read_to_string(&kept).expect("it is kept").replace("disk2", "disk3");
    fs::write(&kept, &damaged).expect("it is damaged");
    let refused = serve("box");
    assert!(refused.code == Some(1) && refused.stderr.contains("is damaged"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&kept).expect("it is still there"), damaged, "nothing is overwritten");
}

#[test]
fn a_reset_by_ctl_tells_what_it_would_do_takes_nothing_from_clients_and_then_does_it() {
    let scratch = Scratch::new();
    let (port, socket) = (port(), scratch.path("c.sock"));
    let options = ["--control", &scratch.text("c.sock"), "--state-directory", &scratch.text("state")];
    let options = options.map(str::to_owned);
    let wire = format!("iscsi:127.0.0.1:{port}");
    let mut server = Server::start_on(&scratch, &[&wire], &["disk0=ram:8M", "disk1=ram:8M"], &options);
    let status = || {
        let status = ctl_ok(&socket, &["status"]);
        let (_time, served) = status.split_once('\n').expect("what it serves");
        served.to_owned()
    };
    let (before, [dry, reset]) = (status(), [&["reload", "--reset", "--dry-run"][..], &["reload", "--reset"]]);
    assert_eq!(ctl_ok(&socket, dry), "nothing differs\n");
    ctl_ok(&socket, &["add-volume", "disk2=ram:8M"]);
    ctl_ok(&socket, &["remove-volume", "disk1"]);
    ctl_ok(&socket, &["map-volume", "disk0", "--target", "iqn.2026-11.org.sanwire:disk2"]);
    let changed = status();
    assert!(changed.contains("CHANGED BY CTL"), "{changed}");

    let mut bench = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    let volume = format!("iscsi://127.0.0.1:{port}/iqn.2026-11.org.sanwire:disk2/0");
    bench.args(["bench", &volume, "--time", "600"]).env("XDG_STATE_HOME", scratch.path("bench-state"));
    let mut bench = Process::spawn("bench", bench, scratch.path("bench.log"));
    wait_until("a client uses disk2", TIMEOUT, || ctl_ok(&socket, &["sessions"]).contains("disk2"));
    let would = ctl_ok(&socket, dry);
    for part in [
        "volume disk1 would be served",
        "volume disk2 would not be served any more",
        "volume disk2, which ctl has changed",
        "mapping disk0 in iqn.2026-11.org.sanwire:disk2, which ctl has changed",
        "a reload is refused without --force",
    ] {
        assert!(would.contains(part), "{part}: {would}");
    }
    let refused = ctl(&socket, reset);
    assert!(refused.code == Some(1) && refused.stderr.contains("--force"), "{refused:?}");
    assert_eq!(status(), changed, "nothing was done");
    bench.kill();
    wait_until("nobody uses it", TIMEOUT, || !ctl_ok(&socket, &["sessions"]).contains("disk2"));

    let done = ctl_ok(&socket, reset);
    for part in ["volume disk1 is served", "volume disk2 is not served any more"] {
        assert!(done.contains(part), "{part}: {done}");
    }
    assert_eq!(status(), before);
    assert_eq!(ctl_ok(&socket, dry), "nothing differs\n");
    let aside = fs::read_to_string(scratch.path("state/changes-box.json.old")).expect("it was put aside");
    assert!(aside.contains("disk2"), "{aside}");
    server.kill();
    server.restart();
    wait_until("it serves again", TIMEOUT, || ctl(&socket, &["status"]).code == Some(0));
    assert_eq!(status(), before, "nor does a restart know more");
    assert!(server.stop().success(), "{}", server.log());
}
