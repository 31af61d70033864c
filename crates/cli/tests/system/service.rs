//! As a service: what the service manager is told, where its directories are, and what the journal gets.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Scratch, port, wait_until};

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
