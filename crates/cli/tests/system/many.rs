//! A server with more volumes than one byte counts, over both wires.

use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::harness::{AUTHORITY, Scratch, Server, is_installed, pattern, port, run, run_ok, skip};

const TIMEOUT: Duration = Duration::from_secs(120);
const VOLUMES: usize = 1000;

/// libiscsi names a unit by the two bytes that it puts on the wire, with those bits that say how it is addressed: flat space, from 256 on.
const FLAT: usize = 0x4000;

/// A server of 1000 volumes, which are also units of one iSCSI target, and the URLs of both.
fn serve(scratch: &Scratch) -> (Server, String, String) {
    let mut text = String::from("allow = ['any']\n");
    for number in 0..VOLUMES {
        // Each has another length, by which it is known.
        let store = if number == 900 { "ram:8M".to_owned() } else { format!("null:{}M", number + 1) };
        write!(text, "[[volume]]\nname = 'v{number}'\nstore = '{store}'\n").expect("a text");
    }
    write!(text, "[[target]]\nname = '{AUTHORITY}:many'\n").expect("a text");
    for number in 0..VOLUMES {
        writeln!(text, "lun.{number} = 'v{number}'").expect("a text");
    }
    fs::write(scratch.path("sanwire.toml"), text).expect("a configuration");
    let [hyperscsi, iscsi] = [port(), port()].map(|port| format!("127.0.0.1:{port}"));
    let wires = [format!("hs-ip:{hyperscsi}"), format!("iscsi:{iscsi}")];
    let options = ["--config".to_owned(), scratch.text("sanwire.toml")];
    let server = Server::start_on(scratch, &[&wires[0], &wires[1]], &[], &options);
    (server, format!("hs+ip://{hyperscsi}"), format!("iscsi://{iscsi}/{AUTHORITY}:many"))
}

fn sanwire(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    command.args(arguments).env("XDG_STATE_HOME", scratch.path("client-state"));
    command
}

#[test]
fn each_of_a_thousand_volumes_is_found_listed_and_used() {
    let scratch = Scratch::new();
    let (mut server, hyperscsi, iscsi) = serve(&scratch);
    for url in [&hyperscsi, &iscsi] {
        let listed = run_ok(sanwire(&scratch, &["ls", url]), TIMEOUT);
        assert_eq!(listed.lines().count(), VOLUMES + 1, "a line for each, and the heads: {listed}");
        assert!(listed.contains("v700"), "{listed}");
    }
    // Written over one wire, and read over the other.
    let (image, back) = (scratch.text("image"), scratch.text("back"));
    let bytes = pattern(5, 8 << 20);
    fs::write(&image, &bytes).expect("an image");
    run_ok(sanwire(&scratch, &["cp", &image, &format!("{hyperscsi}/v900")]), TIMEOUT);
    run_ok(sanwire(&scratch, &["cp", &format!("{iscsi}/900"), &back]), TIMEOUT);
    assert!(fs::read(&back).expect("the copy") == bytes, "what came back differs");
    for (url, length) in [(format!("{hyperscsi}/v999"), "1000 MiB"), (format!("{iscsi}/256"), "257 MiB")] {
        let told = run_ok(sanwire(&scratch, &["info", &url]), TIMEOUT);
        assert!(told.contains(length), "{told}");
    }
    for (url, there) in
        [(format!("{hyperscsi}/v1000"), "it has: v0, v1, "), (format!("{iscsi}/1000"), "it has: 0, 1, ")]
    {
        let refused = run(sanwire(&scratch, &["info", &url]), TIMEOUT);
        assert!(
            refused.code == Some(1) && refused.stderr.contains(there) && refused.stderr.len() < 1000,
            "{refused:?}"
        );
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn libiscsi_sees_units_beyond_256() {
    if !["iscsi-ls", "iscsi-inq", "iscsi-readcapacity16"].into_iter().all(is_installed) {
        return skip("libiscsi_sees_units_beyond_256", "libiscsi-bin is not installed");
    }
    let scratch = Scratch::new();
    let (mut server, _, iscsi) = serve(&scratch);
    let told = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments);
        run_ok(command, TIMEOUT)
    };
    let portal = iscsi.rsplit_once('/').map_or("", |(portal, _)| portal);
    let listed = told("iscsi-ls", &["-s", portal]);
    assert!(listed.contains(&format!("Lun:{}", FLAT + 999)) && listed.matches("Lun:").count() == VOLUMES, "{listed}");
    let unit = format!("{iscsi}/{}", FLAT + 700);
    assert!(told("iscsi-inq", &["-e", "1", "-c", "131", &unit]).contains("v700"));
    let capacity = told("iscsi-readcapacity16", &[&unit]);
    assert!(capacity.contains(&format!("RETURNED LOGICAL BLOCK ADDRESS:{}", 701 * 2048 - 1)), "{capacity}");
    assert!(server.stop().success(), "{}", server.log());
}
