//! What is changed while a server runs is there when it starts again, also after it was killed.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Scratch, Server, port, run, wait_until};
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
    let before = ctl_ok(&socket, &["status"]);
    let words: Vec<&str> = before.split_whitespace().collect();
    for part in ["disk2 16 MiB", "iqn.2026-11.org.example:both 3 disk2"] {
        assert!(words.join(" ").contains(part), "{before}");
    }
    server.kill();
    server.restart();
    wait_until("it serves again", TIMEOUT, || ctl(&socket, &["status"]).code == Some(0));
    assert_eq!(ctl_ok(&socket, &["status"]), before);
    let serve = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        command.args(["serve", "--name", "box", "--wire", &format!("hs-ip:127.0.0.1:{}", crate::harness::port())]);
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
    let beside = serve();
    assert!(beside.code == Some(1) && beside.stderr.contains("another server called box"), "{}", beside.stderr);
    assert!(server.stop().success());

    let kept = scratch.path("state/changes-box.json");
    let damaged = fs::read_to_string(&kept).expect("it is kept").replace("disk2", "disk3");
    fs::write(&kept, &damaged).expect("it is damaged");
    let refused = serve();
    assert!(refused.code == Some(1) && refused.stderr.contains("is damaged"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&kept).expect("it is still there"), damaged, "nothing is overwritten");
}
