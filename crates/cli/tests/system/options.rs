//! What a client asks of its connection on the command line, and what changes of it while it is used.

use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{
    Attached, Client, Process, Ran, Scratch, Server, Wire, World, pattern, port, run, run_ok, wait_until,
};

const TIMEOUT: Duration = Duration::from_secs(60);
const CAP_BYTES_PER_SECOND: f64 = (2 << 20) as f64;

#[track_caller]
fn json(ran: &Ran) -> Value {
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).expect("JSON")
}

#[test]
fn a_client_asks_for_compression_and_a_cap_and_has_them() {
    let scratch = Scratch::new();
    let port = port();
    let url = format!("hs+ip://127.0.0.1:{port}/disk0");
    let (wire, options) = (format!("hs-ip:127.0.0.1:{port}"), ["--compression", "allowed"].map(str::to_owned));
    let mut server = Server::start_on(&scratch, &[&wire], &["disk0=ram:16M"], &options);
    let alice = Client::new(&scratch, "alice");

    let info = json(&alice.run(&["info", "--json", &url]));
    assert!(info["compression"] == false && info["cap_bytes_per_second"].is_null(), "{info}");
    let info = json(&alice.run(&["info", "--json", "--compression", "required", "--cap", "2M", &url]));
    assert!(
        info["compression"] == true && info["cap_bytes_per_second"].as_f64() == Some(CAP_BYTES_PER_SECOND),
        "{info}"
    );

    let (image, back) = (scratch.text("image"), scratch.text("back"));
    let text = b"all work and no play makes a dull disk. ".iter().copied().cycle().take(16 << 20);
    fs::write(&image, text.collect::<Vec<u8>>()).expect("an image");
    for (from, to) in [(&image, &url), (&url, &back)] {
        let copied = run(alice.command(&["cp", "--compression", "required", from, to]), TIMEOUT);
        assert_eq!(copied.code, Some(0), "{}", copied.stderr);
    }
    assert!(fs::read(&image).expect("the image") == fs::read(&back).expect("the copy"), "the copy differs");

    let bench = ["bench", "--json", "--block", "64K", "--depth", "8", "--time", "3", "--cap", "2M", &url];
    let rate = json(&run(alice.command(&bench), TIMEOUT))["bytes_per_second"].as_f64().expect("a rate");
    assert!(rate > 0.0 && rate < 1.5 * CAP_BYTES_PER_SECOND, "{rate} bytes in a second");
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_volumes_security_changes_while_it_is_used_and_no_operation_fails() {
    let scratch = Scratch::new();
    let port = port();
    let url = format!("hs+ip://127.0.0.1:{port}/disk0");
    let options = ["--control".to_owned(), scratch.text("control.sock")];
    let wire = format!("hs-ip:127.0.0.1:{port}");
    let mut server = Server::start_on(&scratch, &[&wire], &["disk0=ram:16M"], &options);
    let (alice, bob) = (Client::new(&scratch, "alice"), Client::new(&scratch, "bob"));
    let ctl = |arguments: &[&str]| {
        let socket = scratch.text("control.sock");
        bob.run(&[&["ctl", "--socket", &socket], arguments].concat())
    };
    // Longer than the rest takes, on whatever machine; it ends at the first operation that fails.
    let bench = alice.command(&["bench", &url, "--reads", "50", "--overwrite", "--depth", "8", "--time", "3600"]);
    let mut bench = Process::spawn("bench", bench, scratch.path("bench.log"));
    let operations = || {
        let statistics = json(&ctl(&["statistics", "--json"]));
        assert_eq!(statistics["statistics"]["dropped"]["guarded_too_little"], 0, "{statistics}");
        statistics["statistics"]["volumes"][0]["commands"].as_u64().expect("a number")
    };
    wait_until("the client is there", TIMEOUT, || operations() > 100);
    for level in ["aes-256-gcm", "none", "hash", "chacha20-poly1305"] {
        let set = ctl(&["set-volume", "disk0", "--security", level]);
        assert!(set.stdout.contains(&format!("protected by security {level} now")), "{}{}", set.stdout, set.stderr);
        let before = operations();
        wait_until("the client goes on", TIMEOUT, || operations() > before + 200);
        assert_eq!(json(&bob.run(&["info", "--json", &url]))["security"], level);
    }
    assert!(bench.is_alive(), "{}", bench.log());
    bench.kill();
    assert_eq!(ctl(&["set-volume", "disk0", "--security", "rot13"]).code, Some(2), "misuse");
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_client_changes_the_terms_of_a_volume_that_it_has_attached() {
    let test = "a_client_changes_the_terms_of_a_volume_that_it_has_attached";
    let Some(world) = World::new(test, 1500, &["dd", "cmp"]) else { return };
    let mut server = Server::start_with(&world, &["disk=ram:16M"], &["--allow", "any", "--compression", "allowed"]);
    let (terms, image) = (world.scratch.text("terms.toml"), world.scratch.text("image"));
    fs::write(&terms, "cap = \"64M\"\n").expect("the terms");
    fs::write(&image, pattern(1, 4 << 20)).expect("an image");
    let options = ["--no-device", "--terms", &terms, "--log", "info"];
    let attached = Attached::device_with(&world, &Wire::Ip.url("disk"), &options);
    let place = attached.place.display().to_string();
    let copy = |to_mib: u64| {
        let mut dd = Command::new("dd");
        dd.args([&format!("if={image}"), &format!("of={place}"), "bs=1M", "conv=notrunc,fsync", "oflag=direct"]);
        dd.arg(format!("seek={to_mib}"));
        run_ok(dd, TIMEOUT);
        let mut cmp = Command::new("cmp");
        cmp.args(["--bytes", "4194304", "--ignore-initial", &format!("0:{}", to_mib << 20), &image, &place]);
        run_ok(cmp, TIMEOUT);
    };
    let pid = Pid::from_raw(attached.pid() as i32).expect("a process");
    copy(0);
    let changed = "security = \"encryption\"\ncap = \"32M\"\nmax-transfer = \"64K\"\n";
    let again = "compression = \"required\"\nlock-media = true\n";
    for (to_mib, text, logged) in [
        (4, changed, "security aes-128-gcm at least, no compression, cap 32 MiB/s, transfers of up to 64 KiB"),
        (8, again, "security none at least, compression, no cap, media locked"),
        (12, "cap = \"much\"\n", "terms.toml:1: "),
    ] {
        fs::write(&terms, text).expect("the terms");
        kill_process(pid, Signal::HUP).expect("a signal");
        wait_until("it is agreed on, or refused", TIMEOUT, || attached.log().contains(logged));
        copy(to_mib);
    }
    attached.detach(&world);
    assert!(server.stop().success(), "{}", server.log());
}
