//! What ctl has changed can be put into the configuration file.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Scratch, Server, port, wait_until};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(60);
const CLIENT: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn what_is_served_is_served_alike_by_the_file_that_is_made_of_it() {
    let scratch = Scratch::new();
    let (port, socket) = (port(), scratch.path("c.sock"));
    let wires = [format!("hs-ip:127.0.0.1:{port}"), format!("iscsi:127.0.0.1:{port}")];
    let wires = wires.each_ref().map(String::as_str);
    let options = |state: &str| {
        ["--control", &scratch.text("c.sock"), "--state-directory", &scratch.text(state)].map(str::to_owned).to_vec()
    };
    let file = |name: &str| format!("{name}=file:{},size=8M", scratch.text(&format!("{name}, \"its\" file.img")));
    let escaped = |name: &str| file(name).replace(", ", "\\, ");
    let mut server = Server::start_on(&scratch, &wires, &["disk0=ram:8M", "gone=ram:1M"], &options("first"));
    let none = ctl_ok(&socket, &["configuration", "--toml"]);
    assert!(
        none.contains("store = \"ram:8M\"")
            && none.contains("has an iSCSI target of its own")
            && !none.contains("\n[[target]]\n"),
        "{none}"
    );
    ctl_ok(&socket, &["add-volume", &escaped("disk1")]);
    ctl_ok(&socket, &["add-volume", &format!("{},block=4096", escaped("disk2"))]);
    ctl_ok(&socket, &["remove-volume", "gone"]);
    ctl_ok(&socket, &["set-volume", "disk1", "--protected", "on"]);
    ctl_ok(&socket, &["set-volume", "disk1", "--owner", "key:0f1e2d3c4b5a69788796a5b4c3d2e1f0"]);
    ctl_ok(&socket, &["map-volume", "disk2", "--target", "iqn.2026-11.org.example:both", "--lun", "3"]);
    ctl_ok(&socket, &["map-volume", "disk1", "--lun", "1", "--force"]);
    ctl_ok(&socket, &["map-volume", "disk2", "--lun", "2", "--force"]);
    let settings = ["--name", "alice", "--volumes", "disk*,other", "--read-only", "--cap", "100M", "--weight", "7"];
    ctl_ok(&socket, &[&["add-client", CLIENT][..], &settings].concat());
    let shown = || -> Value {
        let status: Value = serde_json::from_str(&ctl_ok(&socket, &["status", "--json"])).expect("JSON");
        let clients: Value = serde_json::from_str(&ctl_ok(&socket, &["clients", "--json"])).expect("JSON");
        let volumes = status["status"]["volumes"].as_array().expect("volumes").iter();
        let keys = ["name", "lun", "size_bytes", "block_bytes", "store", "protected", "owners", "security"];
        let volumes = volumes.map(|volume| keys.map(|key| volume[key].clone()).to_vec()).collect::<Vec<_>>();
        let targets = status["status"]["targets"].as_array().expect("targets").iter();
        let targets = targets.map(|target| (target["name"].clone(), target["units"].clone())).collect::<Vec<_>>();
        json!({ "volumes": volumes, "targets": targets, "client": clients["clients"][0]["client"] })
    };
    let (before, toml) = (shown(), ctl_ok(&socket, &["configuration", "--toml"]));
    assert!(toml.contains("\n[[target]]\n") && toml.contains("cap = \"104857600\""), "{toml}");
    assert!(server.stop().success());

    // The same program with that file, and nothing else that it knows.
    fs::write(scratch.path("sanwire.toml"), &toml).expect("a configuration");
    let mut with_file = options("second");
    with_file.extend(["--config".to_owned(), scratch.text("sanwire.toml")]);
    let mut server = Server::start_on(&scratch, &wires, &[], &with_file);
    wait_until("it serves", TIMEOUT, || ctl(&socket, &["status"]).code == Some(0));
    assert_eq!(shown(), before, "{toml}");
    assert_eq!(ctl_ok(&socket, &["reload", "--dry-run"]), "nothing differs\n", "{toml}");
    let status: Value = serde_json::from_str(&ctl_ok(&socket, &["status", "--json"])).expect("JSON");
    assert_eq!(status["status"]["deviations"], json!([]), "{toml}");
    assert_eq!(ctl_ok(&socket, &["configuration", "--toml"]), toml);
    assert!(server.stop().success());
}

#[test]
fn targets_that_are_not_served_as_they_are_meant_are_in_the_file_or_told_of() {
    let scratch = Scratch::new();
    let (port, socket, away) = (port(), scratch.path("c.sock"), scratch.path("away.img"));
    let wires = [format!("hs-ip:127.0.0.1:{port}"), format!("iscsi:127.0.0.1:{port}")];
    let wires = wires.each_ref().map(String::as_str);
    let options = |state: &str| {
        ["--control", &scratch.text("c.sock"), "--state-directory", &scratch.text(state)].map(str::to_owned).to_vec()
    };
    let targets = || -> Vec<(Value, Value)> {
        let status: Value = serde_json::from_str(&ctl_ok(&socket, &["status", "--json"])).expect("JSON");
        let targets = status["status"]["targets"].as_array().expect("targets").iter();
        targets.map(|target| (target["name"].clone(), target["units"].clone())).collect()
    };
    let toml = || ctl_ok(&socket, &["configuration", "--toml"]);
    let mut server = Server::start_on(&scratch, &wires, &["disk0=ram:8M"], &options("first"));
    ctl_ok(&socket, &["add-volume", &format!("far=file:{},size=1M", scratch.text("far.img"))]);
    ctl_ok(&socket, &["map-volume", "far", "--target", "iqn.2026-11.org.example:far", "--lun", "5"]);
    let whole = targets();
    assert!(server.stop().success());
    fs::rename(scratch.path("far.img"), &away).expect("a rename");
    let mut server = Server::start_on(&scratch, &wires, &["disk0=ram:8M"], &options("first"));
    wait_until("it serves", TIMEOUT, || ctl(&socket, &["status"]).code == Some(0));
    assert!(whole.len() == 3 && targets().len() == 1, "{whole:?}");
    let written = toml();
    assert!(written.contains("lun.5 = \"far\"") && written.contains("# It is not served: "), "{written}");
    ctl_ok(&socket, &["add-target", "iqn.2026-11.org.example:none", "--alias", "nothing yet"]);
    let with_none = toml();
    let comment = "# [[target]]\n# name = \"iqn.2026-11.org.example:none\"\n# alias = \"nothing yet\"\n";
    assert!(with_none.contains("example:none has no volumes") && with_none.contains(comment), "{with_none}");
    assert!(server.stop().success());

    // The same program with that file, when the store is there again.
    fs::rename(&away, scratch.path("far.img")).expect("a rename");
    fs::write(scratch.path("sanwire.toml"), &with_none).expect("a configuration");
    let mut with_file = options("second");
    with_file.extend(["--config".to_owned(), scratch.text("sanwire.toml")]);
    let mut server = Server::start_on(&scratch, &wires, &[], &with_file);
    wait_until("it serves", TIMEOUT, || ctl(&socket, &["status"]).code == Some(0));
    assert_eq!(targets(), whole, "{with_none}");
    for (target, _) in &whole {
        ctl_ok(&socket, &["remove-target", target.as_str().expect("a name")]);
    }
    let none = toml();
    assert!(
        none.contains("# WARNING: no volume has an iSCSI target now") && !none.contains("\n[[target]]\n"),
        "{none}"
    );
    fs::write(scratch.path("sanwire.toml"), &none).expect("a configuration");
    ctl_ok(&socket, &["reload", "--reset", "--dry-run"]);
    assert!(server.stop().success());
}
