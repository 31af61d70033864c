//! Programs that judge what is done with a derived volume.

use std::fs;
use std::path::Path;

use super::life::server;
use super::{TIMEOUT, dvd, dvd_ok, serve, urls};
use crate::harness::{AUTHORITY, Client, SERVER_ADDRESS, Scratch, World, pattern, port, run, run_ok, wait_until};

/// Lets one write through, ever: that is its state, which is durable before the write begins. SYNCHRONIZE CACHE writes nothing.
pub(crate) const ONE_WRITE: &str = r#"(module
  (memory (export "memory") 1)
  (global (export "sanwire_abi_1") i32 (i32.const 0))
  (data (i32.const 0)
    "\00\04\00\00" "\00\08\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\0c\00\00" "\04\00\00\00"
    "\04\00\00\00" "\00\00\00\00\00\00\00\00\00\00\00\00")
  (func (export "judge") (result i32)
    (local $code i32)
    (local.set $code (i32.load8_u offset=1032 (i32.const 0)))
    (if (i32.or (i32.eq (local.get $code) (i32.const 0x35)) (i32.eq (local.get $code) (i32.const 0x91)))
      (then (return (i32.const 1))))
    (if (i32.load offset=3072 (i32.const 0)) (then (return (i32.const 2))))
    (i32.store offset=3072 (i32.const 0) (i32.const 1))
    (i32.const 0x101)))"#;

const BYTES: usize = 64 << 10;

#[test]
fn a_program_that_is_sent_with_a_derived_volume_judges_it_and_remembers_through_a_restart() {
    let scratch = Scratch::new();
    let port = port();
    let mut server = server(&scratch, port);
    let module = scratch.text("one_write.wasm");
    fs::write(&module, wat::parse_str(ONE_WRITE).expect("a module")).expect("a file");
    let create = ["create", "disk", "cam", "--region", "4M+64K", "--principal", "any", "--program"];
    let refused = dvd(&scratch, &[&create[..], &[&scratch.text("c.sock.log")]].concat());
    assert!(refused.code == Some(1) && refused.stderr.contains("cannot read the program"), "{}", refused.stderr);
    let garbage = scratch.text("garbage.wasm");
    fs::write(&garbage, b"\0asm garbage").expect("a file");
    let refused = dvd(&scratch, &[&create[..], &[&garbage]].concat());
    assert!(refused.code == Some(1) && refused.stderr.contains("program"), "{}", refused.stderr);
    dvd_ok(&scratch, &[&create[..], &[&module]].concat());
    fs::remove_file(&module).expect("the server has its own");

    let client = Client::new(&scratch, "client");
    let (url, image) = (format!("hs+ip://127.0.0.1:{port}/cam"), scratch.path("image"));
    let write = |seed: u64| {
        fs::write(&image, pattern(seed, BYTES)).expect("an image");
        run(client.command(&["cp", "--overwrite", &image.display().to_string(), &url]), TIMEOUT)
    };
    let first = write(1);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert_eq!(write(2).code, Some(1), "a second time");
    let told = dvd_ok(&scratch, &["show", "cam"]);
    assert!(told.contains("cam.wasm") && told.contains("1 refused"), "{told}");
    server.kill();
    server.restart();
    wait_until("it is there again", TIMEOUT, || dvd(&scratch, &["ls"]).code == Some(0));
    assert_eq!(write(3).code, Some(1), "after a restart");
    let disk = fs::read(scratch.path("disk.img")).expect("the disk");
    assert!(disk[4 << 20..][..BYTES] == pattern(1, BYTES), "what was written first stays");

    let programs = scratch.path("server-state/sanwire/programs-box.d");
    assert!(programs.join("cam.wasm").exists());
    dvd_ok(&scratch, &["revoke", "cam"]);
    let left: Vec<_> = fs::read_dir(programs).expect("a directory").filter_map(Result::ok).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(server.stop().success(), "{}", server.log());
}

/// The same client over another wire is the same principal, and each other one another.
#[test]
fn a_program_is_told_who_asks_on_every_wire() {
    let Some(world) = World::new("a_program_is_told_who_asks_on_every_wire", 1500, &[]) else { return };
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dvd/one_writer.wat");
    let module = world.scratch.text("one_writer.wasm");
    fs::write(&module, wat::parse_file(example).expect("a module")).expect("a file");
    let cam = format!("cam=dvd:disk,region=1M+64K,principal=any,program={module}");
    let mut server = serve(&world, &["disk=ram:16M", &cam], &["--control", &world.scratch.text("c.sock")]);
    let image = world.scratch.text("image");
    fs::write(&image, pattern(1, BYTES)).expect("an image");
    let write =
        |who: &str, url: &str| run(world.sanwire_of(who, &["cp", "--overwrite", &image, url]), TIMEOUT).code == Some(0);
    let urls = urls(&world, "cam");
    let url = |wire: &str| &*urls.iter().find(|(name, _)| *name == wire).expect("a wire").1;
    for wire in ["hs+ip", "hs+eth", "hdsp", "visa", "visa+tcp"] {
        assert!(write("alice", url(wire)), "{wire}: she has written last, or nobody has");
        assert!(!write("bob", url(wire)), "{wire}: that is somebody else");
    }
    for wire in ["iscsi", "iser"] {
        assert!(!write("alice", url(wire)), "{wire}: there she is an initiator without her key, and the same by both");
    }
    let told: serde_json::Value =
        serde_json::from_str(&dvd_ok(&world.scratch, &["show", "cam", "--json"])).expect("JSON");
    let used = told["dvd"]["used_by"].as_array().expect("principals");
    assert_eq!(used.len(), 3, "{told}");
    let refused = |used: &serde_json::Value| used["refused_program"].as_u64().expect("a count") > 0;
    assert_eq!(used.iter().map(refused).collect::<Vec<_>>(), [false, true, true], "{told}");
    assert!(server.stop().success(), "{}", server.log());
}

/// By each wire on which servers are asked.
#[test]
fn an_owner_sends_a_long_program_in_band() {
    let Some(world) = World::new("an_owner_sends_a_long_program_in_band", 1500, &[]) else { return };
    let owner = run_ok(world.sanwire_of("owner", &["id"]), TIMEOUT).trim().to_owned();
    let mut server = serve(&world, &[&format!("mine=ram:16M,owner=key:{owner}")], &[]);
    // Nearly as long as one that is sent may be.
    let data = format!("(data (i32.const 65536) \"{}\") (func (export", "x".repeat(250_000));
    let text = ONE_WRITE.replace("\"memory\") 1)", "\"memory\") 5)").replace("(func (export", &data);
    let bytes = wat::parse_str(text).expect("a module");
    assert!((250_000..=256 << 10).contains(&bytes.len()), "{} bytes", bytes.len());
    let (module, image) = (world.scratch.text("long.wasm"), world.scratch.text("image"));
    fs::write(&module, bytes).expect("a file");
    fs::write(&image, pattern(1, BYTES)).expect("an image");
    let is_asked_by = |wire: &str| matches!(wire, "hs+eth" | "hs+ip" | "visa" | "visa+tcp");
    for (wire, url) in urls(&world, "cam").into_iter().filter(|(wire, _)| is_asked_by(wire)) {
        let at = url.strip_suffix("/cam").expect("a server");
        let ask = |arguments: &[&str]| {
            let ran = run(world.sanwire_of("owner", &[&["dvd"], arguments, &["--at", at]].concat()), TIMEOUT);
            assert_eq!(ran.code, Some(0), "{wire}: {arguments:?}: {}", ran.stderr);
        };
        ask(&["create", "mine", "cam", "--region", "1M+64K", "--principal", "any", "--program", &module]);
        let write = || run(world.sanwire_of("guest", &["cp", "--overwrite", &image, &url]), TIMEOUT).code;
        assert_eq!((write(), write()), (Some(0), Some(1)), "{wire}: it lets one write through");
        ask(&["revoke", "cam"]);
    }
    assert!(server.stop().success(), "{}", server.log());
}

/// Lets those alone write who are called so: what is known of each of them, as a number (docs/dvd-programs.md), and the name.
fn only(names: &[(u8, &str)]) -> String {
    const FIRST: usize = 4096;
    /// The number, the length of the name, and its room.
    const STEP: usize = 4 + 4 + 256;
    let entry = |(number, (kind, name)): (usize, &(u8, &str))| {
        let (at, length) = (FIRST + number * STEP, name.len());
        format!(r#"(data (i32.const {at}) "\{kind:02x}\00\00\00\{length:02x}\00\00\00{name}")"#)
    };
    let entries: String = names.iter().enumerate().map(entry).collect();
    let end = FIRST + names.len() * STEP;
    // In the command, at 1024, what is known stands at 96, the length of the name at 100, and the name at 128.
    format!(
        r#"(module
          (memory (export "memory") 1)
          (global (export "sanwire_abi_1") i32 (i32.const 0))
          (data (i32.const 0)
            "\00\04\00\00" "\00\08\00\00"
            "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00"
            "\04\00\00\00" "\00\00\00\00\00\00\00\00\00\00\00\00")
          {entries}
          (func (export "judge") (result i32)
            (local $entry i32)
            (local $at i32)
            (local.set $entry (i32.const {FIRST}))
            (loop $entries
              (block $other
                (br_if $other (i32.ne (i32.load (local.get $entry)) (i32.load offset=1120 (i32.const 0))))
                (br_if $other (i32.ne (i32.load offset=4 (local.get $entry)) (i32.load offset=1124 (i32.const 0))))
                (local.set $at (i32.const 0))
                (loop $bytes
                  (br_if $other
                    (i32.ne
                      (i32.load8_u offset=8 (i32.add (local.get $entry) (local.get $at)))
                      (i32.load8_u offset=1152 (local.get $at))))
                  (local.set $at (i32.add (local.get $at) (i32.const 1)))
                  (br_if $bytes (i32.lt_u (local.get $at) (i32.load offset=1124 (i32.const 0)))))
                (return (i32.const 1)))
              (local.set $entry (i32.add (local.get $entry) (i32.const {STEP})))
              (br_if $entries (i32.lt_u (local.get $entry) (i32.const {end}))))
            (i32.const 2)))"#
    )
}

/// By what is proved of him, if anything is: a CHAP user before the name that his host says.
#[test]
fn a_program_is_told_the_name_of_who_asks_on_every_wire() {
    const USERS: [(&str, &str); 2] = [("carol", "carol has a secret"), ("dave", "dave has another one")];
    let Some(world) = World::new("a_program_is_told_the_name_of_who_asks_on_every_wire", 1500, &[]) else { return };
    world.add_path(1, 1500);
    let id = run_ok(world.sanwire_of("alice", &["id"]), TIMEOUT).trim().to_owned();
    let initiator = format!("iqn.2026-11.org.sanwire:client-{id}");
    let module = world.scratch.text("only.wasm");
    let names = [(1, "carol"), (2, &*id), (3, &*initiator), (4, world.client_mac())];
    fs::write(&module, wat::parse_str(only(&names)).expect("a module")).expect("a file");
    let cam = format!("cam=dvd:disk,region=1M+64K,principal=any,shelf=7,slot=1,program={module}");
    let target = |name: &str, chap: &str| {
        format!("[[target]]\nname = \"{AUTHORITY}:{name}\"\nlun = {{ 0 = \"cam\" }}\n{chap}\n")
    };
    let users = USERS.map(|(user, secret)| format!("{{ user = \"{user}\", secret = \"{secret}\" }}")).join(", ");
    let targets = [target("cam", ""), target("users", &format!("chap = [{users}]"))].concat();
    let configuration = world.scratch.secret("targets.toml", &targets);
    let interfaces = [world.interface(), "lan1"];
    let aoe = interfaces.map(|interface| format!("aoe:{interface}"));
    let options = ["--config", &configuration, "--wire", &aoe[0], "--wire", &aoe[1]];
    let mut server = serve(&world, &["disk=ram:16M", &cam], &options);
    let image = world.scratch.text("image");
    fs::write(&image, pattern(1, BYTES)).expect("an image");
    let write = |who: &str, url: &str, options: &[&str]| {
        let arguments = [&["cp", "--overwrite", &image, url][..], options].concat();
        run(world.sanwire_of(who, &arguments), TIMEOUT).code == Some(0)
    };
    for (wire, url) in urls(&world, "cam") {
        assert!(write("alice", &url, &[]), "{wire}: that is she");
        assert!(!write("bob", &url, &[]), "{wire}: that is somebody else");
    }
    for (interface, is_known) in interfaces.into_iter().zip([true, false]) {
        let url = format!("aoe://{interface}/7.1");
        assert_eq!(write("bob", &url, &[]), is_known, "{interface}: a station is its address, whoever uses it");
    }
    for (((user, secret), who), is_known) in USERS.into_iter().zip(["bob", "alice"]).zip([true, false]) {
        let file = world.scratch.secret(user, secret);
        for scheme in ["iscsi", "iser"] {
            let url = format!("{scheme}://{user}@{SERVER_ADDRESS}/{AUTHORITY}:users/0");
            assert_eq!(
                write(who, &url, &["--password-file", &file]),
                is_known,
                "{scheme}: {user}, by the host of {who}"
            );
        }
    }
    assert!(server.stop().success(), "{}", server.log());
}
