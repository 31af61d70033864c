//! iSCSI as foreign initiators use it.

use std::fs;
use std::io::Read;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{
    AUTHORITY, Initiator, Process, SERVER_ADDRESS, SERVER_NAME, Scratch, Server, Wire, World, is_installed, pattern,
    port, run, run_ok, wait_until,
};

const TIMEOUT: Duration = Duration::from_secs(120);
const INITIATOR: &str = "iqn.2026-11.org.example:initiator";

fn serve(world: &World, volumes: &[&str], options: &[&str]) -> Server {
    let wire = format!("iscsi:{SERVER_ADDRESS}");
    Server::start_with(world, volumes, &[&["--wire", &wire], options].concat())
}

fn url(volume: &str) -> String {
    Wire::Iscsi.url(volume)
}

/// What a program of the client says.
#[track_caller]
fn client(world: &World, program: &str, arguments: &[&str]) -> String {
    let mut command = world.on_client(program);
    command.args(arguments);
    run_ok(command, TIMEOUT)
}

/// Discovery by an address that is not announced leads to the one that is, and HyperSCSI has no link elsewhere.
#[test]
fn only_announced_addresses_are_told() {
    let Some(world) = World::new("only_announced_addresses_are_told", 1500, &["iscsi-ls"]) else { return };
    world.add_path(1, 1500);
    let wires = ["--wire", "iscsi:0.0.0.0", "--wire", "hs-ip:0.0.0.0:5675", "--allow", "any"];
    let told = |rules: &[&str]| {
        let _ = fs::remove_file(world.scratch.path("server.log"));
        let mut server = Server::start_with(&world, &["disk=ram:8M"], &[&wires[..], rules].concat());
        let listed = client(&world, "iscsi-ls", &["iscsi://10.77.1.1"]);
        let info = ["info", &format!("hs+ip://{SERVER_ADDRESS}:5675/disk"), "--json"];
        let links: Value = serde_json::from_str(&run_ok(world.sanwire(&info), TIMEOUT)).expect("JSON");
        assert!(server.stop().success(), "{}", server.log());
        (listed, links["links"].to_string(), server.log())
    };
    let (listed, links, _) = told(&[]);
    assert!(listed.contains("Portal:10.77.1.1:3260,1") && links.contains("10.77.1.1"), "{listed} {links}");
    let rules = ["--announce", "10.77.0.0/24", "--announce", "172.16.0.0/12"];
    let (listed, links, log) = told(&rules);
    assert!(listed.contains(&format!("Portal:{SERVER_ADDRESS}:3260,1")) && !listed.contains("10.77.1.1"), "{listed}");
    assert!(links.contains(SERVER_ADDRESS) && !links.contains("10.77.1.1"), "{links}");
    assert!(log.contains("announce: 172.16.0.0/12 is no address or interface of this host now"), "{log}");
}

#[test]
fn libiscsi_finds_and_reads_volumes() {
    let tools = ["iscsi-ls", "iscsi-inq", "iscsi-readcapacity16"];
    let Some(world) = World::new("libiscsi_finds_and_reads_volumes", 9000, &tools) else { return };
    let mut server = serve(&world, &["one=ram:64M", "two=ram:32M,block=4096"], &["--allow", "any"]);
    let found = client(&world, "iscsi-ls", &["-s", &format!("iscsi://{SERVER_ADDRESS}")]);
    for volume in ["one", "two"] {
        assert!(found.contains(&format!("Target:{AUTHORITY}:{volume} Portal:{SERVER_ADDRESS}:3260,1")), "{found}");
    }
    assert_eq!(found.matches("Lun:0").count(), 2, "{found}");
    assert!(client(&world, "iscsi-inq", &[&url("one")]).contains("SANWIRE"));
    for (volume, blocks, block_bytes) in [("one", 131_072, 512), ("two", 8192, 4096)] {
        let told = client(&world, "iscsi-readcapacity16", &[&url(volume)]);
        assert!(told.contains(&format!("RETURNED LOGICAL BLOCK ADDRESS:{}", blocks - 1)), "{told}");
        assert!(told.contains(&format!("LOGICAL BLOCK LENGTH IN BYTES:{block_bytes}")), "{told}");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn qemu_img_converts_to_and_from_a_volume_over_iscsi() {
    let test = "qemu_img_converts_to_and_from_a_volume_over_iscsi";
    let Some(world) = World::new(test, 9000, &["qemu-img"]) else { return };
    let volume = format!("disk=file:{},size=64M", world.scratch.text("disk.img"));
    let mut server = serve(&world, &[&volume], &["--allow", &format!("{AUTHORITY}.example:*"), "--allow", "any"]);
    let (image, back) = (world.scratch.text("image.raw"), world.scratch.text("back.raw"));
    let bytes = [pattern(7, 24 << 20), vec![0; 16 << 20], pattern(8, 24 << 20)].concat();
    fs::write(&image, bytes).expect("an image");
    let qemu_img = |arguments: &[&str]| client(&world, "qemu-img", arguments);
    let url = url("disk");
    assert!(qemu_img(&["info", "--output=json", &url]).contains("\"virtual-size\": 67108864"));
    qemu_img(&["convert", "-n", "-f", "raw", "-O", "raw", &image, &url]);
    assert!(qemu_img(&["compare", "-f", "raw", "-F", "raw", &image, &url]).contains("Images are identical"));
    qemu_img(&["convert", "-f", "raw", "-O", "raw", &url, &back]);
    assert!(fs::read(&image).expect("the image") == fs::read(&back).expect("the copy"), "what came back differs");
    assert!(fs::read(&image).expect("the image") == fs::read(world.scratch.path("disk.img")).expect("the store"));
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn only_initiators_that_are_named_or_know_the_secret_get_in() {
    let test = "only_initiators_that_are_named_or_know_the_secret_get_in";
    let Some(world) = World::new(test, 1500, &["iscsi-inq", "iscsi-ls"]) else { return };
    let (config, secret) = (world.scratch.path("sanwire.toml"), world.scratch.path("host.secret"));
    let text = format!(
        "[[target]]\nname = '{AUTHORITY}:named'\nlun.0 = 'disk'\nallow = ['iqn.2026-11.org.example:*']\n\
         [[target]]\nname = '{AUTHORITY}:secret'\nlun.0 = 'disk'\n\
         chap = [{{ user = 'host', secret-file = '{}' }}]\n",
        secret.display()
    );
    fs::write(&config, text).expect("a configuration");
    fs::write(&secret, "a secret of hosts\n").expect("a secret");
    let mut chmod = Command::new("chmod");
    chmod.arg("600").arg(&secret);
    run_ok(chmod, TIMEOUT);
    let socket = world.scratch.text("control");
    let options = ["--config", &config.display().to_string(), "--control", &socket];
    let mut server = serve(&world, &["disk=ram:64M"], &options);
    let inquire = |initiator: &str, user: &str, target: &str| {
        let mut command = world.on_client("iscsi-inq");
        command.args(["-i", initiator, &format!("iscsi://{user}{SERVER_ADDRESS}/{AUTHORITY}:{target}/0")]);
        run(command, TIMEOUT).code == Some(0)
    };
    assert!(inquire(INITIATOR, "", "named"));
    assert!(!inquire("iqn.2026-11.org.stranger:initiator", "", "named"));
    assert!(inquire(INITIATOR, "host%a secret of hosts@", "secret"));
    assert!(!inquire(INITIATOR, "host%a secret of others@", "secret"));
    assert!(!inquire(INITIATOR, "", "secret"));
    let stranger = ["-i", "iqn.2026-11.org.stranger:initiator", &format!("iscsi://{SERVER_ADDRESS}")];
    let found = client(&world, "iscsi-ls", &stranger);
    assert!(!found.contains(":named") && found.contains(":secret"), "{found}");

    let url = format!("iscsi://host@{SERVER_ADDRESS}/{AUTHORITY}:secret/0");
    let load = world.sanwire(&["bench", &url, "--password-file", &secret.display().to_string(), "--time", "600"]);
    let _load = Process::spawn("load", load, world.scratch.path("load.log"));
    let sessions =
        |more: &[&str]| run_ok(world.sanwire(&[&["ctl", "sessions", "--socket", &socket], more].concat()), TIMEOUT);
    wait_until("the session is told", TIMEOUT, || sessions(&[]).contains("  chap host\n"));
    let told: Value = serde_json::from_str(&sessions(&["--json"])).expect("JSON");
    let portal = format!("{SERVER_ADDRESS}:3260,1");
    assert_eq!(
        (&told["sessions"][0]["user"], &told["sessions"][0]["portal"]),
        (&json!("host"), &json!(portal)),
        "{told}"
    );
    assert!(sessions(&["--wide"]).contains(&portal));
    assert!(server.stop().success(), "{}", server.log());
}

/// A server of which the one target sends initiators to another server.
fn redirecting(scratch: &Scratch, to: &str, more: &str) -> (Server, String) {
    let address = format!("127.0.0.1:{}", port());
    let text = format!("[[target]]\nname = '{AUTHORITY}:disk'\nredirect = '{to}'\n{more}");
    fs::write(scratch.path("sanwire.toml"), text).expect("a configuration");
    let options = ["--config".to_owned(), scratch.text("sanwire.toml")];
    let server = Server::start_on(scratch, &[&format!("iscsi:{address}")], &["unused=ram:1M"], &options);
    (server, address)
}

#[test]
fn initiators_follow_a_target_to_where_it_is_for_now_or_for_good() {
    let scratches = [Scratch::new(), Scratch::new(), Scratch::new()];
    let there = format!("127.0.0.1:{}", port());
    let mut servers = vec![Server::start_on(&scratches[0], &[&format!("iscsi:{there}")], &["disk=ram:64M"], &[])];
    let target = format!("{AUTHORITY}:disk");
    for (more, scratch, status) in [("", &scratches[1], [1, 1]), ("redirect-for-good = true\n", &scratches[2], [1, 2])]
    {
        let (server, here) = redirecting(scratch, &there, more);
        servers.push(server);
        assert_eq!(Initiator::log_in(&here, INITIATOR, &target, 1).map(drop), Err(status));
        let url = format!("iscsi://{here}/{target}/0");
        let mut ours = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        ours.args(["info", &url]).env("XDG_STATE_HOME", scratches[0].path("client-state"));
        assert!(run_ok(ours, TIMEOUT).contains("64 MiB"));
        // libiscsi follows those that are for now.
        if status == [1, 1] && is_installed("iscsi-inq") {
            let mut inquiry = Command::new("iscsi-inq");
            inquiry.args(["-i", INITIATOR, &url]);
            assert!(run_ok(inquiry, TIMEOUT).contains("SANWIRE"));
        }
    }
    for server in &mut servers {
        assert!(server.stop().success(), "{}", server.log());
        let log = server.log();
        let is_refusal = |line: &str| line.contains("is refused") || line.contains("WARN") && line.contains("login");
        assert!(!log.lines().any(is_refusal), "to be sent on is no refusal: {log}");
    }
}

#[test]
fn refused_logins_stand_in_the_audit_log_those_of_a_kind_together() {
    const TIMES: u64 = 5;
    let (scratch, address) = (Scratch::new(), format!("127.0.0.1:{}", port()));
    let mut server = Server::start_on(&scratch, &[&format!("iscsi:{address}")], &["disk=ram:1M"], &[]);
    for _ in 0..TIMES {
        assert_eq!(Initiator::log_in(&address, INITIATOR, &format!("{AUTHORITY}:nothing"), 1).map(drop), Err([2, 3]));
    }
    assert!(Initiator::log_in(&address, INITIATOR, &format!("{AUTHORITY}:disk"), 1).is_ok());
    let log = scratch.path("server-state").join("sanwire").join(format!("audit-{SERVER_NAME}.jsonl"));
    let refused = || {
        let lines = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert!(lines.len() as u64 <= TIMES, "{lines:?}");
        lines
    };
    let count = || refused().iter().filter_map(|line| line["count"].as_u64()).sum::<u64>();
    wait_until("all that was refused is written down", TIMEOUT, || count() == TIMES);
    for line in refused() {
        assert_eq!((&line["by"], &line["result"]), (&json!({"address": "127.0.0.1"}), &json!("refused")));
        let reason = line["details"][0].as_str().expect("a reason");
        assert!(reason.starts_with("an iSCSI login: ") && reason.contains("nothing"), "{reason}");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_reload_sends_the_sessions_of_a_target_to_where_it_has_moved() {
    let scratch = Scratch::new();
    let address = format!("127.0.0.1:{}", port());
    let write = |more: &str| {
        let text = format!("[[target]]\nname = '{AUTHORITY}:disk'\nlun.0 = 'disk'\n{more}");
        fs::write(scratch.path("sanwire.toml"), text).expect("a configuration");
    };
    write("");
    let options = ["--config".to_owned(), scratch.text("sanwire.toml")];
    let mut server = Server::start_on(&scratch, &[&format!("iscsi:{address}")], &["disk=ram:8M"], &options);
    let target = format!("{AUTHORITY}:disk");
    let mut session = Initiator::log_in(&address, INITIATOR, &target, 1).expect("a session");
    write("redirect = '192.0.2.1'\n");
    server.signal(Signal::HUP);
    // Asynchronous message, event 1: the target requests a logout (RFC 7143 11.9.1).
    let mut message = [0; 48];
    session.stream.read_exact(&mut message).expect("a message");
    assert_eq!((message[0], message[36]), (0x32, 1), "{message:?}");
    assert_eq!(Initiator::log_in(&address, INITIATOR, &target, 2).map(drop), Err([1, 1]));
    assert!(server.stop().success(), "{}", server.log());
}
