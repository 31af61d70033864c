//! How derived volumes come and go while they are used.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{TIMEOUT, dvd, dvd_ok, serve, urls};
use crate::harness::{AUTHORITY, Client, Process, Ran, Scratch, Server, World, port, run, wait_until};

fn ctl(scratch: &Scratch, arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    command.args(["ctl", "--socket", &scratch.text("c.sock")]).args(arguments).env_remove("SANWIRE_LOG");
    run(command, TIMEOUT)
}

/// A server on this host of a disk in a file.
pub(super) fn server(scratch: &Scratch, port: u16) -> Server {
    let disk = format!("disk=file:{},size=16M", scratch.text("disk.img"));
    let options = ["--control".to_owned(), scratch.text("c.sock")];
    Server::start_on(scratch, &[&format!("hs-ip:127.0.0.1:{port}")], &[&disk], &options)
}

/// A client that reads and writes a volume until it gets an error, and is known to have begun; `sanwire` makes its command.
fn load(scratch: &Scratch, sanwire: impl FnOnce(&[&str]) -> Command, url: &str, name: &str) -> Process {
    // Nobody waits for a server that says itself that it has the volume no more. By iSCSI, iSER and AoE nobody says it of a target that is
    // gone: its user waits for as long as the server may be away.
    let is_silent = ["iscsi:", "iser:", "aoe:"].iter().any(|scheme| url.starts_with(scheme));
    let wait = if is_silent { "5" } else { "3600" };
    let bench =
        sanwire(&["bench", url, "--overwrite", "--reads", "50", "--depth", "16", "--time", "3600", "--wait", wait]);
    let bench = Process::spawn("bench", bench, scratch.path(&format!("{name}.log")));
    wait_until("the volume is used", TIMEOUT, || {
        let told: Value = serde_json::from_str(&dvd_ok(scratch, &["show", "cam", "--json"])).expect("JSON");
        let used = told["dvd"]["used_by"].as_array().expect("principals");
        used.iter().filter_map(|used| used["written_bytes"].as_u64()).sum::<u64>() > 64 << 10
    });
    bench
}

/// The bytes around the region of `cam` are what they were: none of its writes has gone astray.
#[track_caller]
fn expect_untouched(scratch: &Scratch) {
    let disk = fs::read(scratch.path("disk.img")).expect("the disk");
    assert!(disk[..4 << 20].iter().chain(&disk[5 << 20..]).all(|byte| *byte == 0), "nothing else was written");
}

const CREATE: [&str; 7] = ["create", "disk", "cam", "--region", "4M+1M", "--principal", "any"];

#[test]
fn what_is_revoked_or_over_ends_under_those_who_use_it() {
    let scratch = Scratch::new();
    let port = port();
    let mut server = server(&scratch, port);

    dvd_ok(&scratch, &CREATE);
    let (client, url) = (Client::new(&scratch, "client"), format!("hs+ip://127.0.0.1:{port}/cam"));
    let sanwire = |arguments: &[&str]| client.command(arguments);
    let mut bench = load(&scratch, sanwire, &url, "revoked");
    let refused = ctl(&scratch, &["remove-volume", "disk"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("cam is derived"), "{}", refused.stderr);
    let begun = Instant::now();
    let told = dvd_ok(&scratch, &["revoke", "cam"]);
    assert!(told.contains("volume cam, which was derived from disk, is revoked"), "{told}");
    assert!(!bench.wait(TIMEOUT).success(), "its user gets an error");
    assert!(begun.elapsed() < TIMEOUT, "and soon: {:?}", begun.elapsed());
    expect_untouched(&scratch);

    dvd_ok(&scratch, &CREATE);
    let mut bench = load(&scratch, sanwire, &url, "over");
    dvd_ok(&scratch, &["set", "cam", "--until", "1s"]);
    assert!(!bench.wait(TIMEOUT).success(), "its user gets an error");
    expect_untouched(&scratch);
    wait_until("it is out of the list", TIMEOUT, || !dvd_ok(&scratch, &["ls"]).contains("cam"));
    let events = ctl(&scratch, &["events", "--json"]).stdout;
    for event in ["dvd-created", "dvd-revoked", "dvd-expired"] {
        assert!(events.contains(event), "{event}: {events}");
    }
    assert!(server.stop().success(), "{}", server.log());
}

/// A volume is revoked, and comes to its end, under somebody who uses it by this wire; `url`: where it is, once it is there.
#[track_caller]
fn expect_ends(scratch: &Scratch, sanwire: impl Fn(&[&str]) -> Command, wire: &str, url: impl Fn() -> String) {
    dvd_ok(scratch, &CREATE);
    let mut bench = load(scratch, &sanwire, &url(), &format!("revoked-{wire}"));
    dvd_ok(scratch, &["revoke", "cam"]);
    assert!(!bench.wait(TIMEOUT).success(), "{wire}: its user gets an error");
    expect_untouched(scratch);
    dvd_ok(scratch, &CREATE);
    let mut bench = load(scratch, &sanwire, &url(), &format!("over-{wire}"));
    dvd_ok(scratch, &["set", "cam", "--until", "1s"]);
    assert!(!bench.wait(TIMEOUT).success(), "{wire}: its user gets an error");
    expect_untouched(scratch);
    wait_until("it is out of the list", TIMEOUT, || !dvd_ok(scratch, &["ls"]).contains("cam"));
}

#[test]
fn what_is_revoked_or_over_ends_by_visa_iscsi_and_iser() {
    let scratch = Scratch::new();
    let disk = format!("disk=file:{},size=16M", scratch.text("disk.img"));
    let (visa, iscsi) = (port(), port());
    let [of_visa, of_iscsi, of_iser] =
        [("visa", visa), ("iscsi", iscsi), ("iser", iscsi)].map(|(wire, port)| format!("{wire}:127.0.0.1:{port}"));
    let options = ["--control".to_owned(), scratch.text("c.sock")];
    let mut server = Server::start_on(&scratch, &[&of_visa, &of_iscsi, &of_iser], &[&disk], &options);
    let client = Client::new(&scratch, "client");
    for (wire, url) in [
        ("visa", format!("visa://127.0.0.1:{visa}/cam")),
        ("visa+tcp", format!("visa+tcp://127.0.0.1:{visa}/cam")),
        ("iscsi", format!("iscsi://127.0.0.1:{iscsi}/{AUTHORITY}:cam/0")),
        ("iser", format!("iser://127.0.0.1:{iscsi}/{AUTHORITY}:cam/0")),
    ] {
        expect_ends(&scratch, |arguments| client.command(arguments), wire, || url.clone());
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn what_is_revoked_or_over_ends_by_raw_ethernet() {
    let Some(world) = World::new("what_is_revoked_or_over_ends_by_raw_ethernet", 1500, &[]) else { return };
    let disk = format!("disk=file:{},size=16M", world.scratch.text("disk.img"));
    let mut server = serve(&world, &[&disk], &["--control", &world.scratch.text("c.sock")]);
    for (wire, url) in urls(&world, "cam").iter().filter(|(wire, _)| matches!(*wire, "hs+eth" | "hdsp")) {
        expect_ends(&world.scratch, |arguments| world.sanwire(arguments), wire, || url.clone());
    }
    assert!(server.stop().success(), "{}", server.log());
}

/// There it has an address that the server chooses.
#[test]
fn what_is_revoked_or_over_ends_by_aoe() {
    let Some(world) = World::new("what_is_revoked_or_over_ends_by_aoe", 1500, &[]) else { return };
    let disk = format!("disk=file:{},size=16M", world.scratch.text("disk.img"));
    let (wire, control) = (format!("aoe:{}", world.interface()), world.scratch.text("c.sock"));
    let options = ["--wire", &wire, "--allow", "any", "--control", &control];
    let mut server = Server::start_alone(&world, &[&disk], &options);
    let address = || {
        let log = server.log();
        let (_, told) = log.rsplit_once("volume cam is the AoE target ")?;
        told.split_once('\n').map(|(address, _)| address.trim().to_owned())
    };
    let url = || {
        wait_until("its address is told", TIMEOUT, || address().is_some());
        format!("aoe://{}/{}", world.interface(), address().expect("it was told"))
    };
    expect_ends(&world.scratch, |arguments| world.sanwire(arguments), "aoe", url);
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_restart_keeps_derived_volumes_and_not_those_whose_time_is_over() {
    let scratch = Scratch::new();
    let mut server = server(&scratch, port());
    dvd_ok(&scratch, &CREATE);
    dvd_ok(&scratch, &["create", "cam", "part", "--region", "0+64K", "--principal", "10.0.0.7", "--until", "1h"]);
    dvd_ok(&scratch, &["create", "disk", "short", "--principal", "any", "--until", "15s"]);
    let begun = Instant::now();
    let before: Value = serde_json::from_str(&dvd_ok(&scratch, &["ls", "--json"])).expect("JSON");
    server.kill();
    // It was there when the server was killed, whoever was held up before.
    std::thread::sleep(Duration::from_secs(15).saturating_sub(begun.elapsed()));
    server.restart();
    wait_until("it is there again", TIMEOUT, || dvd(&scratch, &["ls"]).code == Some(0));
    let after: Value = serde_json::from_str(&dvd_ok(&scratch, &["ls", "--json"])).expect("JSON");
    let kept = |list: &Value| -> Vec<Value> {
        let volumes = list["dvds"].as_array().expect("volumes").iter().filter(|volume| volume["name"] != "short");
        volumes
            .map(|it| serde_json::json!([it["name"], it["id"], it["derived"]["regions"], it["derived"]["until"]]))
            .collect()
    };
    assert_eq!(kept(&after), kept(&before));
    assert_eq!(after["dvds"].as_array().map(Vec::len), Some(3), "{after}");
    let short = after["dvds"].as_array().expect("volumes").iter().find(|volume| volume["name"] == "short");
    let missing = short.and_then(|short| short["missing"].as_str()).expect("the clock may be set yet");
    assert!(missing.contains("its time was over"), "{missing}");
    assert!(server.log().contains("volume short is not served"), "{}", server.log());
    let removed = ctl(&scratch, &["remove-volume", "disk", "--force"]);
    assert!(removed.stdout.contains("volume part, which was derived from cam, is revoked"), "{}", removed.stderr);
    assert_eq!(dvd_ok(&scratch, &["ls"]).lines().count(), 1, "no volume is left");
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_list_is_derived_at_once_and_is_there_after_a_kill_and_for_earlier_programs_after_a_stop() {
    let scratch = Scratch::new();
    let disk = format!("disk=file:{},size=16M", scratch.text("disk.img"));
    let options = ["--control", &scratch.text("c.sock"), "--state-directory", &scratch.text("state")];
    let options = options.map(str::to_owned);
    let mut server = Server::start_on(&scratch, &[&format!("hs-ip:127.0.0.1:{}", port())], &[&disk], &options);
    let volume = |number: usize| format!("[[dvd]]\nparent = \"disk\"\nname = \"d{number}\"\nprincipals = [\"any\"]\n");
    let list = scratch.text("list.toml");
    fs::write(&list, (0..200).map(volume).collect::<String>()).expect("a list");
    let told = dvd_ok(&scratch, &["create-list", &list]);
    assert!(told.contains("200 volumes (d0, d1, ") && told.contains("are derived, and served"), "{told}");
    fs::write(
        &list,
        r#"[{"parent":"disk","name":"more","principals":["any"]},{"parent":"disk","name":"d7","principals":["any"]}]"#,
    )
    .expect("a list");
    let refused = dvd(&scratch, &["create-list", &list]);
    assert!(refused.code == Some(1) && refused.stderr.contains("d7 is served already"), "{}", refused.stderr);
    fs::write(&list, "[[volume]]").expect("no list");
    let refused = dvd(&scratch, &["create-list", &list]);
    assert!(refused.stderr.contains("is no list of volumes to derive"), "{}", refused.stderr);
    dvd_ok(&scratch, &["create", "disk", "last", "--principal", "any"]);
    let names = || {
        let told: Value = serde_json::from_str(&dvd_ok(&scratch, &["ls", "--json"])).expect("JSON");
        let dvds = told["dvds"].as_array().expect("volumes").iter();
        dvds.map(|dvd| dvd["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let before = names();
    assert_eq!((before.len(), before.last().map(String::as_str)), (201, Some("last")));
    let form = || fs::read_to_string(scratch.path("state/changes-box.json")).expect("it is kept")[..12].to_owned();
    server.kill();
    assert_eq!(form(), "{\"sanwire\":3", "changes are added to it");
    server.restart();
    wait_until("it serves again", TIMEOUT, || dvd(&scratch, &["ls"]).code == Some(0));
    assert_eq!(names(), before);
    assert!(server.stop().success(), "{}", server.log());
    assert_eq!(form(), "{\"sanwire\":1");
}
