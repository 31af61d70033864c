//! The same of the file of attachments: `sanwire attach --check` refuses what is wrong or senseless, with its line or its entry.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use crate::{Scratch, stderr};

const URL: &str = "url = 'hs+ip://box/data'\n";
const ISCSI: &str = "url = 'iscsi://box/iqn.2026-11.org.x:data/0'\n";
const AOE: &str = "url = 'aoe:///1.0'\n";

/// An entry below `[data]`, and what is said of it after the name of the file.
const ROWS: &[(&str, &str, &str)] = &[
    ("", "url = 'box/data'", ":2: invalid value 'box/data' for '--url"),
    ("", "url = 'hs+ip://box'", ":2: 'hs+ip://box' names no volume"),
    ("", "url = ['hs+ip://box/a', 'hs+ip://box/b']", ":2: url is a text or a number"),
    (URL, "speed = 3", ":3: unknown key `speed`: an entry has url, as, "),
    (URL, "as = 'disk'", ":3: invalid value 'disk' for '--as"),
    (URL, "as = 'nbd'\nmount-point = '/mnt'", ": --mount-point and --no-device are for --as fuse"),
    (URL, "as = 'nbd'\nno-device = true", ": --mount-point and --no-device are for --as fuse"),
    (URL, "socket = '/s'", ": --socket and --listen are for --as nbd"),
    (URL, "listen = '127.0.0.1:1'", ": --socket and --listen are for --as nbd"),
    (URL, "as = 'nbd'\nsocket = '/s'\nlisten = '127.0.0.1:1'", "cannot be used with"),
    (URL, "as = 'nbd'\nlisten = '10809'", ":4: invalid value '10809' for '--listen"),
    (URL, "mount-point = 'mnt'", ":3: mount-point is an absolute path"),
    (URL, "mount-point = '/mnt'\nsocket = '/s'", "cannot be used with"),
    (URL, "no-device = 'yes'", ":3: no-device is true or false"),
    (URL, "metrics = 9100", ":3: invalid value '9100' for '--metrics"),
    (URL, "again = 1", ":3: again is true or false"),
    (URL, "exclusive = true\nagain = true", "cannot be used with"),
    (URL, "exclusive = 'yes'", ":3: exclusive is true or false"),
    (URL, "preempt = true", ":3: unknown key `preempt`"),
    (URL, "identity = true", ":3: identity is a text or a number"),
    (URL, "read-only = 'no'", ":3: read-only is true or false"),
    (URL, "terms = 'terms.toml'", ":3: terms is an absolute path"),
    (URL, "terms = '/nonexistent/terms'", "/nonexistent/terms"),
    (URL, "password-file = '/nonexistent/password'", "cannot read the password file /nonexistent/password"),
    (URL, "password-file = 'DIR/empty'", "DIR/empty"),
    (URL, "password-file = '/a'\nsecret-file = '/b'", "cannot be used with"),
    (URL, "secret-file = 'DIR/password'", "DIR/password"),
    (URL, "key-file = 'client.key'", ":3: key-file is an absolute path"),
    (URL, "key-file = 'DIR/password'", "DIR/password is no key file"),
    (URL, "wait = 'ever'", ":3: invalid value 'ever' for '--wait"),
    (URL, "wait = 0", ":3: invalid value '0' for '--wait"),
    (URL, "name-server = ['192.0.2.1', 'ns']", ":3: invalid value 'ns' for '--name-server"),
    (URL, "links = 0", ":3: invalid value '0' for '--links"),
    (URL, "security = 'rot13'", ":3: invalid value 'rot13' for '--security"),
    (ISCSI, "security = 'aes-256-gcm'", ": --security is for HyperSCSI, HDSP and VISA, and iscsi://box/"),
    (URL, "compression = 'maybe'", ":3: invalid value 'maybe' for '--compression"),
    (AOE, "compression = 'required'", ": --compression is for HyperSCSI, and aoe:///1.0"),
    (URL, "cap = '1 MB'", ":3: invalid value '1 MB' for '--cap"),
    (ISCSI, "cap = '1M'", ": --cap is for HyperSCSI, and iscsi://box/"),
    (URL, "keep-writes = 'all'", ":3: invalid value 'all' for '--keep-writes"),
    (ISCSI, "lock-media = true", ": --lock-media is for HyperSCSI, and iscsi://box/"),
    (URL, "disk-type = 'ata'", ": --disk-type is for HDSP, and hs+ip://box"),
    (URL, "recovery = 'some'", ":3: invalid value 'some' for '--recovery"),
    (URL, "visa-mode = 'classic'", ": --visa-mode is for VISA, and hs+ip://box"),
    (URL, "visa-checksum = 'either'", ": --visa-checksum is for VISA, and hs+ip://box"),
    (URL, "visa-payload = '4K'", ": --visa-payload is for VISA, and hs+ip://box"),
    (URL, "initiator-name = 'iqn.2026-11.org.x:me'", ": --initiator-name is for iSCSI, and hs+ip://box"),
    (ISCSI, "target-user = 'us'", ":1: the entry has no target-password-file, which belongs to what it says"),
    (ISCSI, "target-password-file = '/secret'", ":1: the entry has no target-user, which belongs to what it says"),
    (URL, "digests = true", ": --digests is for iSCSI, and hs+ip://box"),
    (URL, "iser-path = 'rdma'", ": --iser-path is for iSER, and hs+ip://box"),
    (ISCSI, "iser-path = 'rdma'", ": --iser-path is for iSER, and iscsi://box/"),
    (ISCSI, "iser-path = 'udp'", ":3: invalid value 'udp' for '--iser-path"),
    (ISCSI, "connections = 9", ":3: invalid value '9' for '--connections"),
    (ISCSI, "recovery-level = 3", ":3: invalid value '3' for '--recovery-level"),
    (URL, "command-timeout = 5", ": --command-timeout is for iSCSI, and hs+ip://box"),
    (URL, "[more]\nurl = 'hs+ip://box/data'", "the entries data and more both have hs+ip://box/data"),
    (
        URL,
        "mount-point = '/m'\n[more]\nurl = 'hs+ip://box/b'\nmount-point = '/m'",
        "the entries data and more both have /m",
    ),
    (
        URL,
        "as = 'nbd'\nlisten = '127.0.0.1:1'\n[more]\nurl = 'hs+ip://box/b'\nmetrics = '127.0.0.1:1'",
        "the entries data and more both have 127.0.0.1:1",
    ),
];

fn check(scratch: &Scratch, text: &str) -> Output {
    let text = text.replace("DIR", &scratch.0.display().to_string());
    let file = scratch.write("attach.toml", &text);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    command.args(["attach", "--check", "--config"]).arg(file).env("XDG_STATE_HOME", scratch.0.join("state"));
    command.env_remove("SANWIRE_LOG").output().expect("the program runs")
}

#[test]
fn nothing_odd_of_an_attachment_is_taken_in_silence() {
    let scratch = Scratch::new("attachments");
    let mut failures = String::new();
    for (url, lines, part) in ROWS {
        let output = check(&scratch, &format!("[data]\n{url}{lines}\n"));
        let (said, part) = (stderr(&output), part.replace("DIR", &scratch.0.display().to_string()));
        if output.status.code() != Some(2) || !said.contains(&part) {
            failures += &format!("--- {url}{lines}\nwanted: {part}\ngot {:?}: {said}\n", output.status.code());
        }
    }
    assert!(failures.is_empty(), "{failures}");
    let right =
        check(&scratch, &format!("[data]\n{URL}wait = 'forever'\nread-only = true\nmetrics = '127.0.0.1:9100'\n"));
    assert_eq!((right.status.code(), stderr(&right)), (Some(0), String::new()));
    fs::remove_file(scratch.0.join("attach.toml")).expect("the file");
}

#[test]
fn every_key_of_an_attachment_has_a_row() {
    let scratch = Scratch::new("attachment-keys");
    let said = stderr(&check(&scratch, "[data]\nno-such-key = 1\n"));
    let (_, known) = said.split_once("an entry has ").unwrap_or_else(|| panic!("{said}"));
    let known: Vec<&str> = known.trim_end().split(", ").collect();
    assert!(known.len() > 30, "{known:?}");
    let key = |line: &'static str| line.split(' ').next().unwrap_or_default();
    let rows: BTreeSet<&str> = ROWS.iter().flat_map(|(_, lines, _)| lines.lines().map(key)).collect();
    let without: Vec<_> = known.iter().filter(|known| !rows.contains(*known)).collect();
    assert!(without.is_empty(), "{without:?} have no row");
}
