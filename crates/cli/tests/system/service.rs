//! As a service: what the service manager is told, where its directories are, and what the journal gets.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Process, Scratch, port, run, run_ok, wait_until};

const TIMEOUT: Duration = Duration::from_secs(60);

/// What is told until `wanted` has been.
#[track_caller]
fn heard(manager: &UnixDatagram, wanted: &str) -> Vec<String> {
    let (mut told, mut message, end) = (Vec::new(), [0; 4096], Instant::now() + TIMEOUT);
    while !told.iter().any(|line| line == wanted) {
        manager.set_read_timeout(Some(end.saturating_duration_since(Instant::now()))).expect("time is left");
        let length = manager.recv(&mut message).unwrap_or_else(|error| panic!("no {wanted}: {error}; {told:?}"));
        told.extend(String::from_utf8_lossy(&message[..length]).lines().map(str::to_owned));
    }
    told
}

#[test]
fn a_service_manager_is_told_and_its_directories_are_used() {
    let scratch = Scratch::new();
    let manager = UnixDatagram::bind(scratch.path("notify")).expect("a socket");
    let secrets = scratch.path("credentials");
    fs::create_dir(&secrets).expect("a directory");
    let secret = secrets.join("password");
    fs::write(&secret, "correct horse\n").expect("a password");
    // As systemd from version 254 on: the group is the mask of a list of who may read.
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o440)).expect("its mode");
    let log = File::create(scratch.path("journal")).expect("a file");
    let metadata = log.metadata().expect("its number");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    command.args(["serve", "--name", "box", "--volume", "disk=ram:1M", "--allow", "any"]);
    command.args(["--wire", &format!("hs-ip:127.0.0.1:{}", port()), "--password-file"]).arg(&secret);
    command.env_clear().env("NOTIFY_SOCKET", scratch.path("notify")).env("WATCHDOG_USEC", "400000");
    command.env("STATE_DIRECTORY", scratch.path("state")).env("RUNTIME_DIRECTORY", scratch.path("run"));
    command.env("CREDENTIALS_DIRECTORY", &secrets);
    command.env("JOURNAL_STREAM", format!("{}:{}", metadata.dev(), metadata.ino()));
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a second handle")).stderr(log);
    let mut server = command.spawn().expect("the server starts");

    let told = heard(&manager, "READY=1");
    assert!(told.iter().any(|line| line.starts_with("STATUS=box serves on hs-ip:127.0.0.1:")), "{told:?}");
    assert!(scratch.path("state/server.key").is_file() && scratch.path("run/serve-box.sock").exists());
    heard(&manager, "WATCHDOG=1");
    heard(&manager, "WATCHDOG=1");
    let pid = Pid::from_child(&server);
    fs::remove_file(&secret).expect("the password is gone");
    kill_process(pid, Signal::HUP).expect("a signal");
    let said = || fs::read_to_string(scratch.path("journal")).expect("what it said");
    wait_until("the refusal is logged", TIMEOUT, || said().contains("was not reloaded"));
    kill_process(pid, Signal::TERM).expect("a signal");
    heard(&manager, "STOPPING=1");
    assert!(server.wait().expect("it ends").success());

    let journal = said();
    assert!(journal.contains("\n<3>the configuration was not reloaded: "), "neither time nor level\n{journal}");
    assert!(!journal.contains("In another terminal") && journal.contains("box serves disk\n  on hs-ip:"), "{journal}");
}

#[test]
fn without_a_home_root_has_the_places_of_the_system_and_others_are_asked() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    command.args(["key", "show"]).env_clear().env("CREDENTIALS_DIRECTORY", "/nonexistent");
    command.env("STATE_DIRECTORY", "/proc/nowhere");
    let ran = command.output().expect("it runs");
    let message = String::from_utf8_lossy(&ran.stderr);
    assert!(message.contains("/proc/nowhere/"), "{message}");
}

#[test]
fn of_two_servers_on_a_host_each_is_managed_by_its_name() {
    let scratch = Scratch::new();
    let sanwire = |arguments: &[&str], state: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        command
            .args(arguments)
            .env("RUNTIME_DIRECTORY", scratch.path("run"))
            .env("STATE_DIRECTORY", scratch.path(state));
        command.env_remove("SANWIRE_LOG");
        command
    };
    let serve = |name: &str| {
        let (wire, volume) = (format!("hs-ip:127.0.0.1:{}", port()), format!("of-{name}=ram:1M"));
        let command = sanwire(&["serve", "--name", name, "--wire", &wire, "--volume", &volume], name);
        let mut server = Process::spawn(name, command, scratch.path(&format!("{name}.log")));
        server.wait_for("\n  on ", TIMEOUT);
        server
    };
    let mut servers = ["storage", "backup"].map(serve);
    let refused = run(sanwire(&["ctl", "status"], "client"), TIMEOUT);
    let several = "several servers run here: choose one with --server NAME: backup, storage";
    assert!(refused.code == Some(2) && refused.stderr.contains(several), "{refused:?}");
    for name in ["storage", "backup"] {
        let status = run_ok(sanwire(&["ctl", "--server", name, "status"], "client"), TIMEOUT);
        assert!(status.starts_with(&format!("{name}, version ")) && status.contains(&format!("of-{name}")), "{status}");
    }
    let unknown = run(sanwire(&["ctl", "status", "--server", "box"], "client"), TIMEOUT);
    let there = "no server called box runs here; there are: backup, storage;";
    assert!(unknown.code == Some(2) && unknown.stderr.contains(there), "{unknown:?}");
    for server in &mut servers {
        server.signal(Signal::TERM);
        assert!(server.wait(TIMEOUT).success(), "{}", server.log());
    }
    let none = run(sanwire(&["ctl", "status", "--server", "box"], "client"), TIMEOUT);
    assert!(none.code == Some(2) && none.stderr.contains("no server runs here"), "{none:?}");
}

#[test]
fn each_line_of_the_log_is_an_object_where_that_is_wanted() {
    let scratch = Scratch::new();
    let log = File::create(scratch.path("log")).expect("a file");
    fs::write(scratch.path("sanwire.toml"), "log-format = 'json'\n").expect("a configuration");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    command.args(["serve", "--name", "box", "--volume", "disk=ram:1M", "--allow", "any", "--config"]);
    command.arg(scratch.path("sanwire.toml")).args(["--wire", &format!("hs-ip:127.0.0.1:{}", port())]);
    command.env("RUNTIME_DIRECTORY", scratch.path("run")).env("STATE_DIRECTORY", scratch.path("state"));
    command.env_remove("SANWIRE_LOG").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut server = command.spawn().expect("the server starts");
    let lines = || -> Vec<serde_json::Value> {
        let text = fs::read_to_string(scratch.path("log")).expect("the log");
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    };
    let socket = scratch.path("run/serve-box.sock");
    wait_until("it serves", TIMEOUT, || socket.exists());
    let mut change = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    change.args(["ctl", "--socket"]).arg(&socket).args(["resize-volume", "disk", "2M"]);
    run_ok(change, TIMEOUT);
    wait_until("the change is logged", TIMEOUT, || {
        let is_told =
            |line: &serde_json::Value| line["message"].as_str().is_some_and(|it| it.contains("resize-volume disk"));
        lines().iter().any(|line| line["level"] == "info" && is_told(line))
    });
    kill_process(Pid::from_child(&server), Signal::TERM).expect("a signal");
    assert!(server.wait().expect("its end").success());
    for line in lines() {
        let time = line["time"].as_str().expect("a time");
        assert!(humantime::parse_rfc3339(time).is_ok() && line.as_object().is_some_and(|it| it.len() == 3), "{line}");
    }
}
