//! Programs that judge what is done with a derived volume.

use std::fs;
use std::path::Path;

use super::life::server;
use super::{TIMEOUT, dvd, dvd_ok, serve, urls};
use crate::harness::{Client, Scratch, World, pattern, port, run, wait_until};

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
