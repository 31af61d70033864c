//! iSCSI targets are made, set and removed while a server runs, by ctl and over HTTP, and initiators log in to them.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    AUTHORITY, Http, Initiator, Ran, Reply, Scratch, Server, exchange, is_installed, port, run, wait_until,
};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(60);
const INITIATOR: &str = "iqn.2026-11.org.example:initiator";
const SECRET: &str = "secret-of-the-host";
const OTHER: &str = "secret-of-another";
const MUTUAL: &str = "secret-of-the-box";

/// A server of one volume, over iSCSI, by ctl and over HTTP.
struct Bed {
    scratch: Scratch,
    address: String,
    socket: PathBuf,
    http: Http,
    server: Server,
}

impl Bed {
    fn start() -> Bed {
        let (scratch, address) = (Scratch::new(), format!("127.0.0.1:{}", port()));
        let (socket, http) = (scratch.path("c.sock"), Http(scratch.path("http.sock")));
        let unix = format!("unix:{}", scratch.text("http.sock"));
        let options = ["--control", &scratch.text("c.sock"), "--http", &unix].map(str::to_owned);
        let server = Server::start_on(&scratch, &[&format!("iscsi:{address}")], &["disk=ram:8M"], &options);
        Bed { scratch, address, socket, http, server }
    }

    fn ctl(&self, arguments: &[&str]) -> String {
        ctl_ok(&self.socket, arguments)
    }

    /// Looks at unit 0 of a target as a user.
    fn info(&self, user: &str, target: &str, options: &[&str]) -> Ran {
        let mut info = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        info.args(["info", &format!("iscsi://{user}{}/{target}/0", self.address)]).args(options);
        info.env("XDG_STATE_HOME", self.scratch.path("client-state"));
        run(info, TIMEOUT)
    }

    /// The same by libiscsi, where it is.
    fn inquire(&self, user: &str, target: &str) -> Option<bool> {
        let mut inquiry = Command::new("iscsi-inq");
        inquiry.args(["-i", INITIATOR, &format!("iscsi://{user}{}/{target}/0", self.address)]);
        is_installed("iscsi-inq").then(|| run(inquiry, TIMEOUT).code == Some(0))
    }

    fn target(&self, name: &str) -> Value {
        self.http.ask("GET", &format!("/targets/{name}"), "").json()
    }

    /// With a condition.
    fn ask_if(&self, revision: &Value, method: &str, path: &str, body: &str) -> Reply {
        let stream = std::os::unix::net::UnixStream::connect(&self.http.0).expect("the socket");
        exchange(stream, method, &format!("/api/v1{path}"), &format!("If-Match: \"{revision}\"\r\n"), body)
    }
}

#[test]
fn initiators_log_in_to_a_target_that_ctl_has_made_also_after_a_kill() {
    let mut bed = Bed::start();
    let [host, other, mutual] = [("host", SECRET), ("other", OTHER), ("box", MUTUAL)]
        .map(|(name, secret)| bed.scratch.secret(name, &format!("{secret}\n")));
    let vm = format!("{AUTHORITY}:vm");
    let made = bed.ctl(&[
        "add-target",
        "vm",
        "--chap-user",
        &format!("host={host}"),
        "--mutual-chap",
        &format!("box={mutual}"),
    ]);
    assert!(made.starts_with(&format!("target {vm} is there: chap host; mutual chap box")), "{made}");
    bed.ctl(&["map-volume", "disk", "--target", &vm]);
    let get_in = |bed: &Bed, secret: &str| bed.info("host@", &vm, &["--password-file", secret]);
    let known = get_in(&bed, &host);
    assert!(known.code == Some(0) && known.stdout.contains("8 MiB"), "{known:?}");
    let both = ["--password-file", &host, "--target-user", "box", "--target-password-file", &mutual];
    assert_eq!(bed.info("host@", &vm, &both).code, Some(0), "each shows the other who it is");
    for refused in [get_in(&bed, &other), bed.info("", &vm, &[])] {
        assert_eq!(refused.code, Some(1), "{refused:?}");
    }
    for (user, is_in) in [(format!("host%{SECRET}@"), true), (format!("host%{OTHER}@"), false), (String::new(), false)]
    {
        assert!(bed.inquire(&user, &vm).is_none_or(|got_in| got_in == is_in), "{user}");
    }

    bed.server.kill();
    bed.server.restart();
    wait_until("it serves again", TIMEOUT, || ctl(&bed.socket, &["status"]).code == Some(0));
    assert_eq!(get_in(&bed, &host).code, Some(0));
    bed.ctl(&["set-target", "vm", "--chap-user", &format!("host={other}"), "--chap-algorithms", "sha256"]);
    assert_eq!((get_in(&bed, &host).code, get_in(&bed, &other).code), (Some(1), Some(0)), "the other secret holds now");
    let row = bed.ctl(&["targets"]);
    assert!(row.contains(&vm) && row.contains("who knows a secret") && row.contains("sha256"), "{row}");
    bed.ctl(&["remove-target", "vm"]);
    assert_eq!(get_in(&bed, &other).code, Some(1));

    let told = [bed.ctl(&["targets", "--json"]), bed.ctl(&["status", "--json"]), bed.ctl(&["configuration"])];
    let audit = fs::read_to_string(bed.scratch.audit_log()).expect("the audit log");
    assert!(audit.contains("add-target") && audit.contains("(secret)"), "{audit}");
    assert!(bed.server.stop().success());
    for text in told.into_iter().chain([audit, bed.server.log(), row, made]) {
        assert!([SECRET, OTHER, MUTUAL].iter().all(|secret| !text.contains(secret)), "{text}");
    }
}

#[test]
fn a_target_is_made_set_and_removed_over_http() {
    let mut bed = Bed::start();
    let name = "iqn.2026-11.org.example:web";
    let settings = json!({ "alias": "web", "allow": ["any"], "chap": [{ "user": "host", "secret": SECRET }] });
    let body = json!({ "name": name, "settings": settings }).to_string();
    assert_eq!(bed.http.ask("POST", "/targets?dry-run=true", &body).0, 200);
    assert_eq!(bed.target(name)["code"], "target-unknown");
    let made = bed.http.ask("POST", "/targets", &body);
    assert!(made.0 == 201 && made.1.contains(&format!("/api/v1/targets/{name}")), "{made:?}");
    let again = bed.http.ask("POST", "/targets", &body);
    assert_eq!((again.0, &again.json()["code"]), (409, &json!("target-exists")));
    bed.http.done("PUT", &format!("/targets/{name}/units/0"), r#"{"volume":"disk"}"#);
    let target = bed.target(name);
    assert_eq!(
        (&target["alias"], &target["chap"], &target["allow"]),
        (&json!("web"), &json!(["host"]), &json!(["any"]))
    );
    assert!(!target.to_string().contains(SECRET), "{target}");
    let host = bed.scratch.secret("host", SECRET);
    assert_eq!(bed.info("host@", name, &["--password-file", &host]).code, Some(0));

    let path = format!("/targets/{name}");
    for wrong in [json!({ "allow": ["?!"] }), json!({ "chap": [{ "user": "host", "secret": "short" }] })] {
        let refused = bed.http.ask("PATCH", &path, &wrong.to_string());
        assert_eq!((refused.0, &refused.json()["code"]), (422, &json!("target-invalid")));
    }
    let open = json!({ "chap": [] }).to_string();
    let changed = [0, 1].map(|_| bed.ask_if(&target["revision"], "PATCH", &path, &open).0);
    assert_eq!(changed, [200, 412], "the second one has seen what is no more");
    // Nobody need show who it is any more.
    let mut session = Initiator::log_in(&bed.address, INITIATOR, name, 1).expect("a session");
    let refused = bed.http.ask("DELETE", &path, "");
    assert_eq!((refused.0, &refused.json()["code"]), (409, &json!("target-in-use")));
    bed.http.done("DELETE", &format!("{path}?force=true"), "");
    let mut rest = Vec::new();
    session.stream.read_to_end(&mut rest).expect("the end");
    assert_eq!(Initiator::log_in(&bed.address, INITIATOR, name, 2).map(drop), Err([2, 3]), "there is no such target");
    let events = bed.ctl(&["events", "--topic", "configuration"]);
    for what in ["is there", "is set otherwise", "is gone"] {
        assert!(events.contains(&format!("target {name} {what}")), "{events}");
    }
    assert!(bed.server.stop().success());
}

#[test]
fn who_may_not_use_a_target_any_more_is_told_to_leave() {
    let mut bed = Bed::start();
    let target = format!("{AUTHORITY}:disk");
    let mut session = Initiator::log_in(&bed.address, INITIATOR, &target, 1).expect("a session");
    // READ(10) of the first block.
    session.good(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], 512);
    let keeps_out = ["set-target", "disk", "--allow", "iqn.1993-08.org.debian:*"];
    let refused = ctl(&bed.socket, &keeps_out);
    assert!(
        refused.code == Some(1) && refused.stderr.contains(&format!("is in use by initiator {INITIATOR}")),
        "{refused:?}"
    );
    session.good(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], 512);
    bed.ctl(&[&keeps_out[..], &["--force"]].concat());
    let mut rest = Vec::new();
    session.stream.read_to_end(&mut rest).expect("the end");
    assert_eq!(Initiator::log_in(&bed.address, INITIATOR, &target, 1).map(drop), Err([2, 2]), "it is forbidden");
    assert!(Initiator::log_in(&bed.address, "iqn.1993-08.org.debian:01:a", &target, 1).is_ok());
    let misuse = ctl(&bed.socket, &["set-target", "disk", "--chap-user", "host"]);
    assert!(misuse.code == Some(2) && misuse.stderr.contains("USER=FILE"), "{misuse:?}");
    assert!(bed.server.stop().success());
}
