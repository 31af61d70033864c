//! Who uses a volume, and which of its commands take longest now.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{AUTHORITY, Client, Process, Scratch, Server, exchange, port, wait_until};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_command_that_takes_long_is_told_with_its_session_and_an_age_that_grows() {
    let scratch = Scratch::new();
    let (port, iser_port) = (port(), port());
    let options = ["--control", &scratch.text("c.sock"), "--http", &format!("unix:{}", scratch.text("http.sock"))];
    let volumes = ["slow=ram:8M,delay=read:5s", "other=ram:8M"];
    let (wire, iser) = (format!("hs-ip:127.0.0.1:{port}"), format!("127.0.0.1:{iser_port}"));
    let mut server =
        Server::start_on(&scratch, &[&wire, &format!("iser:{iser}")], &volumes, &options.map(str::to_owned));
    let socket = scratch.path("c.sock");
    let ask = |path: &str| {
        let stream = UnixStream::connect(scratch.path("http.sock")).expect("the socket");
        exchange(stream, "GET", &format!("/api/v1/volumes/{path}"), "", "").json()
    };
    assert_eq!(ask("slow/commands")["items"], Value::Array(Vec::new()));
    assert_eq!(ask("gone/commands")["code"], "volume-unknown");
    let (alice, bob) = (Client::new(&scratch, "alice"), Client::new(&scratch, "bob"));
    let image = scratch.path("image");
    File::create(&image).expect("an image").set_len(8 << 20).expect("its length");
    let copy =
        bob.run(&["cp", "--overwrite", &image.display().to_string(), &format!("hs+ip://127.0.0.1:{port}/other")]);
    assert_eq!(copy.code, Some(0), "{}", copy.stderr);
    let read = alice.command(&["bench", &format!("hs+ip://127.0.0.1:{port}/slow"), "--time", "3600"]);
    let mut read = Process::spawn("bench", read, scratch.path("bench.log"));

    // The oldest one: others come meanwhile.
    let oldest = || ask("slow/commands")["items"][0].clone();
    wait_until("a command is under way for a second", TIMEOUT, || oldest()["age_ms"].as_u64() > Some(1000));
    let first = oldest();
    assert_eq!((&first["operation"], &first["waits_for"]), (&"read".into(), &"store".into()), "{first}");
    assert_eq!(first["client"], alice.id().as_str());
    assert!(first["blocks"].as_u64() > Some(0) && first["lba"].is_u64(), "{first}");
    let clients = ask("slow/clients");
    assert_eq!((&clients["total"], &clients["items"][0]["id"]), (&1.into(), &first["session"]), "{clients}");
    let later = oldest();
    assert!(later["lba"] != first["lba"] || later["age_ms"].as_u64() > first["age_ms"].as_u64(), "{first} {later}");
    let shown = ctl_ok(&socket, &["commands", "slow"]);
    assert!(shown.contains("WAITS FOR") && shown.contains(&alice.id()) && shown.contains("read"), "{shown}");
    let read_by_iser = alice.command(&["bench", &format!("iser://{iser}/{AUTHORITY}:slow/0"), "--time", "3600"]);
    let mut read_by_iser = Process::spawn("bench-iser", read_by_iser, scratch.path("bench-iser.log"));
    wait_until("one by iSER is told by that name", TIMEOUT, || {
        ctl_ok(&socket, &["commands", "slow"]).contains(" iser 127.0.0.1")
    });
    let all = ask("slow/commands");
    let paths: Vec<&Value> = all["items"].as_array().expect("commands").iter().map(|one| &one["iser_path"]).collect();
    assert!(paths.contains(&&"tcp".into()) && paths.contains(&&Value::Null), "{all}");
    read_by_iser.kill();
    let sessions = ctl_ok(&socket, &["sessions", "--volume", "slow"]);
    assert!(sessions.contains(&alice.id()) && !sessions.contains(&bob.id()), "{sessions}");
    assert!(!ctl_ok(&socket, &["sessions", "--volume", "other"]).contains(&alice.id()));
    assert!(ctl(&socket, &["commands", "gone"]).stderr.contains("no volume called gone"));
    read.kill();
    assert!(server.stop().success());
}
