//! A session of any wire can be followed by its number: in the log, the events, the list and the metrics.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{AUTHORITY, Process, SERVER_ADDRESS, SERVER_NAME, Scratch, Server, World, port, wait_until};
use crate::manage::ctl_ok;

const TIMEOUT: Duration = Duration::from_secs(60);

/// How long a load lasts, in seconds, but for that of AoE: its sessions end when they were not used for long, or are dropped.
const LOAD: &str = "5";

/// A wire by its name in all lists, and the load that comes over it.
fn expect_one_number(wire: &str, (server, scratch): (&Server, &Scratch), load: Command) {
    let socket = scratch.path("control");
    let ctl = |arguments: &[&str]| ctl_ok(&socket, arguments);
    let sessions = || {
        let told: Value = serde_json::from_str(&ctl(&["sessions", "--json"])).expect("JSON");
        told["sessions"].as_array().expect("a list").clone()
    };
    let mut load = Process::spawn("load", load, scratch.path(&format!("{wire}.log")));
    wait_until(
        "its session has done something",
        TIMEOUT,
        || matches!(&sessions()[..], [session] if session["commands"].as_u64() > Some(100)),
    );
    let session = sessions().remove(0);
    let number = session["id"].as_str().expect("a number").to_owned();
    assert_eq!((&session["wire"], &session["volume_names"][0]), (&wire.into(), &"a".into()), "{session:#}");
    for key in ["address", "client", "security", "since"] {
        assert!(session[key].as_str().is_some_and(|value| !value.is_empty()), "{key}: {session:#}");
    }
    let counted = format!("sanwire_session_commands_total{{session=\"{number}\",protocol=\"{wire}\",client=\"");
    let metrics = ctl(&["metrics"]);
    assert_eq!(metrics.lines().filter(|line| line.starts_with(&counted)).count(), 1, "{counted}: {metrics}");
    if wire == "aoe" {
        load.kill();
        ctl(&["drop-session", &number]);
    } else {
        assert!(load.wait(TIMEOUT).success(), "{}", load.log());
    }
    wait_until("it is over", TIMEOUT, || sessions().is_empty());
    let log = server.log();
    let is_of_it = |line: &&str| {
        let mut words = line.split([' ', ',', ':']).filter(|word| !word.is_empty());
        words.by_ref().any(|word| word == "session") && words.next() == Some(&*number)
    };
    let lines: Vec<&str> = log.lines().filter(is_of_it).collect();
    let (first, last) = (lines.first().expect("a line"), lines.last().expect("a line"));
    let begins = if wire == "aoe" { " uses the AoE target " } else { " connected " };
    assert!(first.contains(begins) && last.contains("disconnected after"), "{wire}: {lines:#?}");
    let events = ctl(&["events", "--topic", "sessions", "--json"]);
    let told = events.lines().filter(|line| line.contains(&format!("\"session\": \"{number}\""))).count();
    assert_eq!(told, 2, "{wire}: {events}");
}

#[test]
fn a_session_has_one_number_in_the_log_the_events_the_list_and_the_metrics() {
    let scratch = Scratch::new();
    let [hyperscsi, iscsi, visa] = [port(), port(), port()];
    let wires =
        [format!("hs-ip:127.0.0.1:{hyperscsi}"), format!("iscsi:127.0.0.1:{iscsi}"), format!("visa:127.0.0.1:{visa}")];
    let options = ["--control".into(), scratch.text("control"), "--key-file".into(), scratch.text("server.key")];
    let mut server = Server::start_on(&scratch, &wires.each_ref().map(String::as_str), &["a=ram:8M"], &options);
    for (wire, url) in [
        ("hyperscsi", format!("hs+ip://127.0.0.1:{hyperscsi}/a")),
        ("iscsi", format!("iscsi://127.0.0.1:{iscsi}/{AUTHORITY}:a/0")),
        ("visa", format!("visa://127.0.0.1:{visa}/a")),
        ("visa", format!("visa+tcp://127.0.0.1:{visa}/a")),
    ] {
        let mut load = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        load.args(["bench", &url, "--time", LOAD]).env("XDG_STATE_HOME", scratch.path("client-state"));
        expect_one_number(wire, (&server, &scratch), load);
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn so_it_has_over_raw_ethernet() {
    let Some(world) = World::new("so_it_has_over_raw_ethernet", 1500, &[]) else { return };
    let interface = world.interface();
    let wires = [format!("hdsp:{interface}"), format!("aoe:{interface}")];
    let control = world.scratch.text("control");
    let options = ["--allow", "any", "--wire", &wires[0], "--wire", &wires[1], "--control", &control];
    let mut server = Server::start_with(&world, &["a=ram:8M,shelf=7,slot=3"], &options);
    for (wire, url, time) in [
        ("hyperscsi", format!("hs+eth://{interface}/{SERVER_NAME}/a"), LOAD),
        ("hyperscsi", format!("hs+ip://{SERVER_ADDRESS}/a"), LOAD),
        ("hdsp", format!("hdsp://{interface}/{SERVER_NAME}/a"), LOAD),
        ("aoe", format!("aoe://{interface}/7.3"), "600"),
    ] {
        let load = world.sanwire(&["bench", &url, "--time", time]);
        expect_one_number(wire, (&server, &world.scratch), load);
    }
    assert!(server.stop().success(), "{}", server.log());
}
