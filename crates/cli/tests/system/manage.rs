//! A running server is managed: volumes come, grow and go while others use theirs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Client, Process, Ran, Scratch, Server, port, run, wait_until};

const TIMEOUT: Duration = Duration::from_secs(60);

pub fn ctl(socket: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    command.args(["ctl", "--socket"]).arg(socket).args(arguments);
    run(command, TIMEOUT)
}

#[track_caller]
pub fn ctl_ok(socket: &Path, arguments: &[&str]) -> String {
    let ran = ctl(socket, arguments);
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
    ran.stdout
}

/// What the volumes of the server are, as an iSCSI client sees them.
fn listed(scratch: &Scratch, host: &str) -> String {
    let mut ls = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    ls.args(["ls", host]).env("XDG_STATE_HOME", scratch.path("client-state"));
    let ran = run(ls, TIMEOUT);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stdout
}

#[test]
fn volumes_change_under_a_client_that_goes_on() {
    let scratch = Scratch::new();
    let socket = scratch.path("control.sock");
    let port = port();
    let (wire, host) = (format!("iscsi:127.0.0.1:{port}"), format!("iscsi://127.0.0.1:{port}"));
    let options = ["--control".to_owned(), scratch.text("control.sock")];
    let mut server = Server::start_on(&scratch, &[&wire], &["disk0=ram:64M"], &options);

    let mut bench = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    let volume = format!("{host}/iqn.2026-11.org.sanwire:disk0/0");
    bench.args(["bench", &volume, "--time", "6"]).env("XDG_STATE_HOME", scratch.path("bench-state"));
    let mut bench = Process::spawn("bench", bench, scratch.path("bench.log"));
    wait_until("the client is there", TIMEOUT, || ctl_ok(&socket, &["sessions"]).contains("disk0"));

    assert!(
        ctl_ok(&socket, &["add-volume", "disk1=ram:8M"]).contains("logical unit 0 of iqn.2026-11.org.sanwire:disk1")
    );
    assert!(ctl_ok(&socket, &["resize-volume", "disk1", "16M"]).contains("16 MiB now, 8 MiB before"));
    assert!(listed(&scratch, &host).contains("16 MiB"));
    assert!(ctl(&socket, &["resize-volume", "disk1", "8M"]).stderr.contains("never made shorter"));
    assert!(ctl(&socket, &["add-volume", "disk1=ram:8M"]).stderr.contains("choose another name"));
    assert_eq!(ctl(&socket, &["add-volume", "disk2=nowhere"]).code, Some(2), "misuse");
    let state = ctl_ok(&socket, &["set-access-state", "1", "active-non-optimized"]);
    assert!(state.contains("iqn.2026-11.org.sanwire:disk0: group 1 has another state now"), "{state}");
    assert!(ctl(&socket, &["set-access-state", "9", "standby"]).stderr.contains("through portal group 9"));
    ctl_ok(&socket, &["remove-volume", "disk1"]);
    assert!(!listed(&scratch, &host).contains("disk1"));
    let status = ctl_ok(&socket, &["status", "--json"]);
    assert!(status.contains("\"disk0\"") && !status.contains("\"disk1\""), "{status}");

    assert!(bench.wait(TIMEOUT).success(), "{}", bench.log());
    assert!(server.stop().success());
    assert!(ctl(&socket, &["status"]).stderr.contains("no server can be reached"));
}

#[test]
fn a_reload_applies_what_the_file_says_now() {
    let scratch = Scratch::new();
    let file = scratch.path("sanwire.toml");
    let write = |volumes: &[(&str, &str)]| {
        let volumes =
            volumes.iter().map(|(name, store)| format!("[[volume]]\nname = \"{name}\"\nstore = \"{store}\"\n"));
        fs::write(&file, volumes.collect::<String>()).expect("the file is written");
    };
    write(&[("stays", "ram:8M"), ("goes", "ram:8M")]);
    let options = ["--config", &scratch.text("sanwire.toml"), "--control", &scratch.text("c.sock")].map(str::to_owned);
    let mut server = Server::start_on(&scratch, &[&format!("iscsi:127.0.0.1:{}", port())], &[], &options);
    let socket = scratch.path("c.sock");

    write(&[("stays", "ram:16M"), ("comes", "ram:8M")]);
    let changed = ctl_ok(&socket, &["reload"]);
    for line in ["volume comes is served", "volume goes is not served", "volume stays has 16 MiB now"] {
        assert!(changed.contains(line), "{changed}");
    }
    assert_eq!(ctl_ok(&socket, &["reload"]), "nothing differs\n");
    fs::write(&file, "nonsense = 1\n").expect("the file is written");
    let refused = ctl(&socket, &["reload"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("sanwire.toml:1: unknown field"), "{}", refused.stderr);

    write(&[("stays", "ram:16M")]);
    server.signal(Signal::HUP);
    wait_until("the hangup is heard", TIMEOUT, || !ctl_ok(&socket, &["status"]).contains("comes"));
    assert!(server.stop().success());
}

#[test]
fn a_volume_that_a_client_uses_is_taken_away_by_force_only() {
    let scratch = Scratch::new();
    let (port, socket) = (port(), scratch.path("u.sock"));
    let file = scratch.path("sanwire.toml");
    let write = |volumes: &[&str]| {
        let volumes = volumes.iter().map(|name| format!("[[volume]]\nname = \"{name}\"\nstore = \"ram:8M\"\n"));
        fs::write(&file, volumes.collect::<String>()).expect("the file is written");
    };
    write(&["used", "idle"]);
    let options = ["--config", &scratch.text("sanwire.toml"), "--control", &scratch.text("u.sock")].map(str::to_owned);
    let mut server = Server::start_on(&scratch, &[&format!("hs-ip:127.0.0.1:{port}")], &[], &options);
    let client = Client::new(&scratch, "alice");
    let bench = client.command(&["bench", &format!("hs+ip://127.0.0.1:{port}/used"), "--time", "3600"]);
    let mut bench = Process::spawn("bench", bench, scratch.path("bench.log"));
    let in_use = format!("volume used is in use by client {}", client.id());
    let read = || ctl_ok(&socket, &["statistics", "--json"]);
    wait_until("the client uses it", TIMEOUT, || {
        let statistics: Value = serde_json::from_str(&read()).expect("JSON");
        statistics["statistics"]["volumes"][0]["read_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20)
    });

    let id = client.id();
    for arguments in [
        &["remove-volume", "used"][..],
        &["map-volume", "used", "--lun", "8"],
        &["add-client", &id, "--volumes", "idle"],
        &["remove-client", &id],
    ] {
        let refused = ctl(&socket, arguments);
        assert!(refused.code == Some(1) && refused.stderr.contains(&in_use), "{arguments:?}: {}", refused.stderr);
    }
    ctl_ok(&socket, &["map-volume", "idle", "--lun", "7"]);
    write(&["idle"]);
    let would = ctl_ok(&socket, &["reload", "--dry-run"]);
    assert!(would.contains("volume used would not be served any more") && would.contains(&in_use), "{would}");
    server.signal(Signal::HUP);
    wait_until("the hangup is refused", TIMEOUT, || server.log().contains("nothing was reloaded"));
    assert!(ctl_ok(&socket, &["status"]).contains("used"));
    assert!(bench.is_alive(), "it has noticed nothing: {}", bench.log());
    assert!(ctl_ok(&socket, &["reload", "--force"]).contains("volume used is not served any more"));
    assert!(!bench.wait(TIMEOUT).success(), "that was meant");
    assert!(server.stop().success());
}

#[test]
fn a_volume_whose_file_is_missing_is_not_served_as_an_empty_one() {
    let scratch = Scratch::new();
    let (image, moved) = (scratch.path("disk0.img"), scratch.path("elsewhere.img"));
    let volume = format!("disk0=file:{},size=8M", image.display());
    let port = port();
    let (wire, url) = (format!("hs-ip:127.0.0.1:{port}"), format!("hs+ip://127.0.0.1:{port}"));
    let mut server = Server::start_on(&scratch, &[&wire], &[&volume], &[]);
    assert!(server.stop().success());
    fs::rename(&image, &moved).expect("its file system is not mounted");
    let serve = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        command.args(["serve", "--name", "box", "--wire", &wire, "--volume", &volume]).args(options);
        command.env("XDG_STATE_HOME", scratch.path("server-state")).env("XDG_RUNTIME_DIR", scratch.path("run"));
        command
    };
    let refused = run(serve(&[]), TIMEOUT);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("does not exist, though it held the volume disk0 before"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--renew disk0") && !image.exists(), "{}", refused.stderr);
    fs::rename(&moved, &image).expect("it is mounted");
    server.restart();
    let client = Client::new(&scratch, "alice");
    wait_until("it is served again", TIMEOUT, || client.run(&["ls", &url]).code == Some(0));
    assert!(server.stop().success());
}

#[test]
fn two_servers_of_one_name_are_not_managed_on_one_host() {
    let scratch = Scratch::new();
    let serve = |state: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        let wire = format!("hs-ip:127.0.0.1:{}", port());
        command.args(["serve", "--name", "box", "--allow", "any", "--volume", "disk=ram:1M", "--wire", &wire]);
        command.env("XDG_STATE_HOME", scratch.path(state)).env("RUNTIME_DIRECTORY", scratch.path("run"));
        command
    };
    let mut first = Process::spawn("server", serve("first"), scratch.path("first.log"));
    first.wait_for("\n  on ", TIMEOUT);
    let refused = run(serve("second"), TIMEOUT);
    let reason = "run/serve-box.sock already: give this one another --name or --control PATH";
    assert!(refused.code == Some(2) && refused.stderr.contains(reason), "{}", refused.stderr);
    first.kill();
    let mut second = Process::spawn("server", serve("second"), scratch.path("second.log"));
    second.wait_for("\n  on ", TIMEOUT);
}

#[test]
fn what_a_client_may_do_changes_while_others_go_on() {
    let scratch = Scratch::new();
    let port = port();
    let server_url = format!("hs+ip://127.0.0.1:{port}");
    let options = ["--control".to_owned(), scratch.text("clients.sock")];
    let wire = format!("hs-ip:127.0.0.1:{port}");
    let mut server = Server::start_on(&scratch, &[&wire], &["vm-1=ram:16M", "backup=ram:16M"], &options);
    let socket = scratch.path("clients.sock");
    let (alice, bob) = (Client::new(&scratch, "alice"), Client::new(&scratch, "bob"));
    let (backup, image) = (format!("{server_url}/backup"), scratch.text("image"));
    // Longer than the rest takes, on whatever machine.
    let bench = bob.command(&["bench", &backup, "--time", "3600"]);
    let mut bench = Process::spawn("bench", bench, scratch.path("bench.log"));
    wait_until("the other client is there", TIMEOUT, || ctl_ok(&socket, &["statistics", "--json"]).contains(&bob.id()));

    ctl_ok(&socket, &["add-client", &alice.id(), "--name", "alice", "--volumes", "vm-*", "--read-only"]);
    let listed = alice.run(&["ls", &server_url]).stdout;
    assert!(listed.contains("vm-1") && !listed.contains("backup"), "{listed}");
    fs::write(&image, vec![1; 1 << 20]).expect("an image");
    let volume = format!("{server_url}/vm-1");
    assert_ne!(alice.run(&["cp", "--overwrite", &image, &volume]).code, Some(0), "it may read only");
    ctl_ok(&socket, &["set-client", "alice", "--volumes", "*", "--read-only=false"]);
    let written = alice.run(&["cp", "--overwrite", &image, &volume]);
    assert_eq!(written.code, Some(0), "{}", written.stderr);

    let secret = scratch.secret("secret", "a password of its own\n");
    ctl_ok(&socket, &["set-client", "alice", "--own-password-file", &secret]);
    assert!(alice.run(&["ls", &server_url]).stderr.contains("the server requires a password"));
    assert!(alice.run(&["ls", &server_url, "--password-file", &secret]).stdout.contains("backup"));

    let mut victim = alice.command(&["bench", &volume, "--time", "60", "--wait", "1", "--password-file", &secret]);
    victim.env_remove("SANWIRE_LOG");
    let mut victim = Process::spawn("victim", victim, scratch.path("victim.log"));
    wait_until("the client is connected", TIMEOUT, || ctl_ok(&socket, &["statistics", "--json"]).contains(&alice.id()));
    ctl_ok(&socket, &["remove-client", "alice", "--force"]);
    assert!(!victim.wait(TIMEOUT).success(), "it is dropped");
    let statistics = ctl_ok(&socket, &["statistics", "--json"]);
    assert!(!statistics.contains(&alice.id()) && statistics.contains(&bob.id()), "{statistics}");
    // It ends at the first operation that fails.
    assert!(bench.is_alive(), "the other one has noticed nothing: {}", bench.log());
    bench.kill();

    assert!(server.stop().success());
    server.restart();
    wait_until("the server is back", TIMEOUT, || ctl(&socket, &["status"]).code == Some(0));
    assert!(alice.run(&["ls", &server_url, "--password-file", &secret]).stderr.contains("no server answered"));
    ctl_ok(&socket, &["reset-client", &alice.id()]);
    assert!(alice.run(&["ls", &server_url]).stdout.contains("backup"), "this host is served without rules");

    let audit = fs::read_to_string(scratch.audit_log()).expect("the audit log");
    let uid = format!("\"uid\":{}", rustix::process::getuid().as_raw());
    let changes: Vec<&str> = audit.lines().filter(|line| line.contains(&uid)).collect();
    assert!(changes.len() >= 5, "{audit}");
    for (line, part) in
        changes.into_iter().zip(["add-client", "set-client", "set-client", "remove-client", "reset-client"])
    {
        assert!(line.contains(part) && line.contains("\"result\":\"done\""), "{line}");
    }
    assert!(audit.contains("(secret)"));
    assert!(server.stop().success());
}

#[test]
fn a_client_with_the_permission_manages_in_band_and_others_are_refused() {
    let scratch = Scratch::new();
    let port = port();
    let url = format!("hs+ip://127.0.0.1:{port}");
    let options = ["--control".to_owned(), scratch.text("band.sock")];
    let mut server = Server::start_on(&scratch, &[&format!("hs-ip:127.0.0.1:{port}")], &["disk0=ram:16M"], &options);
    let socket = scratch.path("band.sock");
    let (alice, mallory) = (Client::new(&scratch, "alice"), Client::new(&scratch, "mallory"));
    let disk = format!("{url}/disk0");
    let bench = alice.command(&["bench", &disk, "--time", "10"]);
    let mut bench = Process::spawn("bench", bench, scratch.path("bench.log"));

    for _ in 0..3 {
        let refused = mallory.run(&["manage", &url, "add-volume", "disk1=ram:8M"]);
        assert_eq!(refused.code, Some(1));
        assert!(
            refused.stderr.contains(&format!("`sanwire ctl add-client {} --manage`", mallory.id())),
            "{}",
            refused.stderr
        );
    }
    assert!(mallory.run(&["manage", &url, "status"]).stderr.contains("may not manage"), "not even look");
    ctl_ok(&socket, &["add-client", &alice.id(), "--name", "alice", "--manage"]);
    let added = alice.run(&["manage", &url, "add-volume", "disk1=ram:8M"]);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    assert_eq!(added.stdout, "volume disk1 is served\n");
    assert!(alice.run(&["manage", &url, "resize-volume", "disk1", "1M"]).stderr.contains("never made shorter"));
    let inband = alice.run(&["manage", &url, "status", "--json"]).stdout;
    // Who asks in band has a session for it; and time passes between the two.
    let sessions = |line: &&str| line.contains("\"sessions\":");
    let lasts = |line: &&str| sessions(line) || line.contains("\"uptime_seconds\":");
    let [inband, outside] = [inband, ctl_ok(&socket, &["status", "--json"])].map(|text| {
        assert_eq!(text.lines().filter(sessions).count(), 1, "{text}");
        text.lines().filter(|line| !lasts(line)).collect::<Vec<_>>().join("\n")
    });
    assert_eq!(inband, outside, "one implementation behind both");
    let top = alice.run(&["top", &url, "--once", "--json"]).stdout;
    let top: Value = serde_json::from_str(&top).expect("JSON");
    assert!(top["volumes"].as_array().is_some_and(|volumes| volumes.len() > 1), "{top:#}");
    assert!(mallory.run(&["top", &url, "--once"]).stderr.contains("may not manage"));
    let statistics = ctl_ok(&socket, &["statistics", "--json"]);
    assert!(statistics.contains("\"management_without_permission\": 5"), "{statistics}");
    alice.run(&["manage", &url, "set-client", "alice", "--manage=false"]);
    assert!(alice.run(&["manage", &url, "status"]).stderr.contains("may not manage"), "at once");
    assert!(bench.wait(TIMEOUT).success(), "{}", bench.log());

    let audit = fs::read_to_string(scratch.audit_log()).expect("the audit log");
    let of = |id: &str, result: &str| {
        let is_meant = |line: &&str| {
            line.contains(&format!("\"client\":\"{id}\",\"address\":\"127.0.0.1:")) && line.contains(result)
        };
        audit.lines().filter(is_meant).count()
    };
    assert_eq!((of(&mallory.id(), "refused"), of(&alice.id(), "\"done\"")), (5, 2), "{audit}");
    assert!(server.stop().success());
}

#[test]
fn a_client_that_is_paused_waits_even_when_it_is_dropped_and_comes_again_until_it_is_resumed() {
    let scratch = Scratch::new();
    let port = port();
    let options = ["--control".to_owned(), scratch.text("pause.sock")];
    let mut server = Server::start_on(&scratch, &[&format!("hs-ip:127.0.0.1:{port}")], &["disk0=ram:16M"], &options);
    let socket = scratch.path("pause.sock");
    let alice = Client::new(&scratch, "alice");
    let bench = alice.command(&["bench", &format!("hs+ip://127.0.0.1:{port}/disk0"), "--time", "3600"]);
    let mut bench = Process::spawn("bench", bench, scratch.path("bench.log"));
    let statistics = || -> Value {
        let answer: Value = serde_json::from_str(&ctl_ok(&socket, &["statistics", "--json"])).expect("JSON");
        answer["statistics"].clone()
    };
    let commands = || statistics()["volumes"][0]["commands"].as_u64().expect("a count");
    let received = || statistics()["connections"][0]["received_packets"].as_u64();
    let waits = || {
        let before = commands();
        thread::sleep(Duration::from_millis(500));
        commands() == before
    };
    wait_until("the client works", TIMEOUT, || commands() > 1000);

    ctl_ok(&socket, &["pause-client", &alice.id()]);
    wait_until("the client waits", TIMEOUT, waits);
    let (done, came) = (commands(), received().expect("it stays connected"));
    assert!(came > 1000, "{came} packets");
    ctl_ok(&socket, &["drop-client", &alice.id()]);
    wait_until("it is connected again", TIMEOUT, || received().is_some_and(|packets| packets < came / 2));
    wait_until("it waits again", TIMEOUT, waits);
    assert!(commands() < done + 200, "its commands were not done: {} and {done}", commands());

    ctl_ok(&socket, &["resume-client", &alice.id()]);
    wait_until("it goes on", TIMEOUT, || commands() > done + 1000);
    assert!(bench.is_alive(), "it has noticed nothing: {}", bench.log());
    bench.kill();
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn an_iscsi_initiator_that_is_paused_waits_even_when_it_is_dropped_and_logs_in_again_until_it_is_resumed() {
    let scratch = Scratch::new();
    let port = port();
    let options = ["--control".to_owned(), scratch.text("pause.sock")];
    let mut server = Server::start_on(&scratch, &[&format!("iscsi:127.0.0.1:{port}")], &["disk0=ram:16M"], &options);
    let socket = scratch.path("pause.sock");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    let volume = format!("iscsi://127.0.0.1:{port}/iqn.2026-11.org.sanwire:disk0/0");
    bench.args(["bench", &volume, "--time", "3600", "--wait", "forever"]);
    bench.env("XDG_STATE_HOME", scratch.path("bench-state"));
    let mut bench = Process::spawn("bench", bench, scratch.path("bench.log"));
    let answer =
        |command: &str| -> Value { serde_json::from_str(&ctl_ok(&socket, &[command, "--json"])).expect("JSON") };
    let sessions = || answer("sessions")["sessions"].as_array().expect("a list").clone();
    // What is aborted counts as a command, too.
    let moved = || {
        let volume = answer("statistics")["statistics"]["volumes"][0].clone();
        volume["read_bytes"].as_u64().expect("a count") + volume["written_bytes"].as_u64().expect("a count")
    };
    wait_until("the initiator works", TIMEOUT, || moved() > 1 << 20);
    let first = sessions()[0].clone();
    let initiator = first["client"].as_str().expect("its name").to_owned();
    assert_eq!((&first["wire"], &first["volume_names"][0]), (&"iscsi".into(), &"disk0".into()), "{first}");
    assert!(first["connections"] == 1 && first["paused"] == false && initiator.starts_with("iqn."), "{first}");

    let nobody = ctl(&socket, &["drop-client", "iqn.2026-11.org.example:nobody"]);
    assert!(nobody.code == Some(1) && nobody.stderr.contains("has no session"), "{}", nobody.stderr);
    ctl_ok(&socket, &["pause-client", &initiator]);
    let waits = || {
        let before = moved();
        thread::sleep(Duration::from_millis(500));
        moved() == before
    };
    wait_until("the initiator waits", TIMEOUT, waits);
    let done = moved();
    assert!(ctl_ok(&socket, &["sessions"]).contains("paused"));
    ctl_ok(&socket, &["drop-client", &initiator]);
    wait_until("it is there again", TIMEOUT, || sessions().iter().any(|session| session["id"] != first["id"]));
    wait_until("it waits again", TIMEOUT, waits);
    assert_eq!(moved(), done, "none of its commands was done");

    ctl_ok(&socket, &["resume-client", &initiator]);
    wait_until("it goes on", TIMEOUT, || moved() > done + (1 << 20));
    assert!(bench.is_alive(), "it has noticed nothing: {}", bench.log());
    bench.kill();
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn what_happens_is_told_to_those_who_follow_and_counted_for_monitoring() {
    let scratch = Scratch::new();
    let options = ["--control".to_owned(), scratch.text("events.sock")];
    let wires = [format!("hs-ip:127.0.0.1:{}", port()), format!("iscsi:127.0.0.1:{}", port())];
    let mut server = Server::start_on(&scratch, &wires.each_ref().map(String::as_str), &["disk0=ram:16M"], &options);
    let socket = scratch.path("events.sock");
    let before: Value = serde_json::from_str(&ctl_ok(&socket, &["events", "--json"])).expect("JSON");
    let cursor = before["events"]["cursor"].as_str().expect("a cursor").to_owned();
    let mut follow = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    follow.args(["ctl", "--socket"]).arg(&socket).args(["events", "--follow"]);
    let mut follower = Process::spawn("follower", follow, scratch.path("follower.log"));
    ctl_ok(&socket, &["add-volume", "disk1=ram:8M"]);
    ctl_ok(&socket, &["resize-volume", "disk1", "16M"]);
    ctl_ok(&socket, &["remove-volume", "disk1"]);
    let told = ["volume disk1 is served", "volume disk1 has 16 MiB now", "volume disk1 is not served any more"];
    wait_until("who follows is told", TIMEOUT, || told.iter().all(|line| follower.log().contains(line)));
    follower.kill();
    let since = ctl_ok(&socket, &["events", "--since", &cursor]);
    assert!(told.iter().all(|line| since.contains(line)) && !since.contains("restarted"), "{since}");

    let metrics = ctl_ok(&socket, &["metrics"]);
    assert!(
        metrics.ends_with("# EOF\n") && metrics.contains("sanwire_volume_size_bytes{volume=\"disk0\"}"),
        "{metrics}"
    );
    assert!(server.stop().success());
    server.restart();
    wait_until("the server is back", TIMEOUT, || ctl(&socket, &["status"]).code == Some(0));
    let since: Value = serde_json::from_str(&ctl_ok(&socket, &["events", "--since", &cursor, "--json"])).expect("JSON");
    assert_eq!(since["events"]["restarted"], true, "{since}");
    assert!(server.stop().success());
}

#[test]
fn of_two_administrators_who_have_seen_the_same_only_one_changes_it() {
    let scratch = Scratch::new();
    let options = ["--control".to_owned(), scratch.text("revision.sock")];
    let mut server =
        Server::start_on(&scratch, &[&format!("hs-ip:127.0.0.1:{}", port())], &["disk0=ram:16M"], &options);
    let socket = scratch.path("revision.sock");
    let status = || -> Value { serde_json::from_str(&ctl_ok(&socket, &["status", "--json"])).expect("JSON") };
    let seen = status()["status"]["volumes"][0]["revision"].to_string();
    let one = ctl_ok(&socket, &["resize-volume", "disk0", "32M", "--if-revision", &seen]);
    assert!(one.contains("32 MiB now"), "{one}");
    let other = ctl(&socket, &["resize-volume", "disk0", "64M", "--if-revision", &seen, "--no-wait"]);
    let present = status()["status"]["volumes"][0]["revision"].to_string();
    let reason = format!("volume disk0 has revision {present} now, not {seen}");
    assert!(other.code == Some(1) && other.stderr.contains(&reason), "{}", other.stderr);
    assert_eq!(status()["status"]["volumes"][0]["size_bytes"], 32 << 20);
    let looked = ctl(&socket, &["status", "--if-revision", &seen]);
    assert!(looked.code == Some(2) && looked.stderr.contains("what changes something"), "{}", looked.stderr);
    assert!(server.stop().success(), "{}", server.log());
}
