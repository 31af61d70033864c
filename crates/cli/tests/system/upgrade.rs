//! State directories of other versions: those of earlier ones are taken, and left as these can read them; newer ones are refused.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Scratch, Server, port, run};
use crate::manage::ctl_ok;
use crate::state_sample::SAMPLES;

const TIMEOUT: Duration = Duration::from_secs(60);

/// The first line of a versioned file without its checksum.
fn format_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.lines().next().and_then(|head| head.split(',').next()).unwrap_or_default().to_owned()
}

fn copy(sample: &Path, state: &Path) {
    fs::create_dir_all(state).expect("a directory");
    let files = fs::read_dir(sample).expect("a sample").flatten();
    for file in files.filter(|file| file.path().is_file()) {
        let copy = state.join(file.file_name());
        fs::copy(file.path(), &copy).expect("it is copied");
        // What git keeps of the mode is less.
        fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("its mode");
    }
}

#[test]
fn the_state_of_every_version_is_taken_and_can_be_taken_back() {
    let versions = fs::read_dir(SAMPLES).expect("samples").flatten().filter(|entry| entry.path().is_dir());
    let mut count = 0;
    for version in versions {
        let (scratch, sample) = (Scratch::new(), version.path());
        let (state, socket) = (scratch.path("state"), scratch.path("c.sock"));
        copy(&sample, &state);
        let options = ["--control", &scratch.text("c.sock"), "--state-directory", &scratch.text("state")];
        let options = options.map(str::to_owned);
        let port = port();
        let wires = [format!("hs-ip:127.0.0.1:{port}"), format!("iscsi:127.0.0.1:{port}")];
        let wires: Vec<&str> = wires.iter().map(String::as_str).collect();
        let in_file = format!("kept=file:{},size=1M", scratch.text("kept.img"));
        let mut server = Server::start_on(&scratch, &wires, &["disk0=ram:1M", &in_file], &options);
        let status = ctl_ok(&socket, &["status"]);
        let words = status.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("disk1 3 MiB"), "{status}");
        assert!(words.contains("iqn.2026-11.org.example:both 3 disk1"), "{status}");
        assert!(ctl_ok(&socket, &["clients"]).contains("alice"));
        ctl_ok(&socket, &["add-volume", "disk2=ram:1M"]);
        ctl_ok(&socket, &["set-client", "alice", "--read-only"]);
        assert!(server.stop().success(), "{}", server.log());
        let key = |directory: &Path| fs::read_to_string(directory.join("server.key")).expect("a key");
        assert_eq!(key(&state), key(&sample), "clients know the server by it");
        for file in ["changes-box.json", "clients-box.json"] {
            assert_eq!(
                format_of(&state.join(file)),
                format_of(&sample.join(file)),
                "{file}: that version reads it again"
            );
        }
        refused_when_newer(&scratch, &in_file);
        count += 1;
    }
    assert!(count > 0, "{SAMPLES} has no sample");
}

/// A program goes on with nothing that it understands a part of only.
fn refused_when_newer(scratch: &Scratch, in_file: &str) {
    let state = scratch.path("state");
    let only_in = |directory: &str| {
        let mut files = fs::read_dir(state.join(directory)).expect(directory).flatten();
        files.next().expect("what is remembered of the volume in a file").path()
    };
    let files = ["changes-box.json", "clients-box.json"].map(|file| state.join(file));
    for path in files.into_iter().chain(["volumes", "writes"].map(only_in)) {
        let before = fs::read_to_string(&path).expect("it is kept");
        let newer = before.replacen("{\"sanwire\":1", "{\"sanwire\":99", 1);
        assert_ne!(before, newer);
        fs::write(&path, &newer).expect("it is written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        command.args(["serve", "--name", "box", "--volume", "disk0=ram:1M", "--volume", in_file, "--wire"]);
        command.arg(format!("hs-ip:127.0.0.1:{}", port())).arg("--state-directory").arg(scratch.path("state"));
        command.arg("--control").arg(scratch.path("newer.sock"));
        let refused = run(command, TIMEOUT);
        assert!(refused.code == Some(1) && refused.stderr.contains("newer version of Sanwire"), "{}", refused.stderr);
        assert_eq!(fs::read_to_string(&path).expect("it is there"), newer, "nothing is overwritten");
        fs::write(&path, before).expect("as it was");
    }
}
