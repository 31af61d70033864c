//! The container image: built without a daemon, and run once.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Process, Scratch, can_run, run, run_ok, skip};

const TIMEOUT: Duration = Duration::from_secs(300);

/// What `image.sh` ends with when it cannot download what it needs.
const UNAVAILABLE: i32 = 75;

#[test]
fn the_container_image_serves() {
    let test = "the_container_image_serves";
    if !can_run(test, &["mmdebstrap", "umoci", "runc", "strip", "tar"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut build = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/image.sh"));
    build.arg(scratch.path("image")).env("SANWIRE_PROGRAM", env!("CARGO_BIN_EXE_sanwire"));
    let built = run(build, TIMEOUT);
    if built.code == Some(UNAVAILABLE) {
        return skip(test, "Debian's packages cannot be downloaded");
    }
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    let archive = built.stdout.lines().last().expect("the image");
    let tool = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments);
        run_ok(command, TIMEOUT)
    };
    let (layout, bundle) = (scratch.text("layout"), scratch.text("bundle"));
    fs::create_dir(&layout).expect("a directory");
    tool("tar", &["-C", &layout, "-xf", archive]);
    tool("umoci", &["unpack", "--image", &format!("{layout}:{}", env!("CARGO_PKG_VERSION")), &bundle]);
    let config = Path::new(&bundle).join("config.json");
    let text = fs::read_to_string(&config).expect("how it is run");
    fs::write(&config, text.replace("\"terminal\": true", "\"terminal\": false")).expect("without a terminal");

    let (state, name) = (scratch.text("runc"), format!("sanwire-{}", scratch.label));
    let mut command = Command::new("runc");
    command.args(["--root", &state, "run", "--bundle", &bundle, &name]);
    let mut server = Process::spawn("container", command, scratch.path("container.log"));
    server.wait_for("\n  on hs-ip:127.0.0.1:5674", TIMEOUT);
    tool("runc", &["--root", &state, "kill", &name, "TERM"]);
    assert!(server.wait(TIMEOUT).success(), "{}", server.log());
    assert!(Path::new(&bundle).join("rootfs/var/lib/sanwire/server/server.key").is_file(), "its state is at its place");
}
