//! A host's wall clock jumps, by hours and by centuries, while a server runs: what is told has the time that the clock says then, and
//! nothing else depends on it.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    AUTHORITY, Client, Http, Initiator, Process, Scratch, Server, WallClock, can_run, exchange, port, run_ok,
    wait_until,
};
use crate::manage::ctl_ok;

const TIMEOUT: Duration = Duration::from_secs(60);

const DAY: i64 = 86_400;
const YEAR: i64 = 365 * DAY;

/// Where the clock jumps to, in seconds from now.
const JUMPS: [i64; 8] = [3600, -7200, 10 * YEAR, -30 * YEAR, -100 * YEAR, 7000 * YEAR, DAY, 0];

/// A server of a volume in a pool of layers and of one in memory, with its clock.
struct Bed {
    server: Server,
    clock: WallClock,
    socket: PathBuf,
    http: Http,
    /// Where it listens: for HyperSCSI and iSCSI, and for HTTP.
    ports: [u16; 2],
    scratch: Scratch,
}

impl Bed {
    fn new(more: &[String]) -> Bed {
        Bed::of(Scratch::new(), more)
    }

    fn of(scratch: Scratch, more: &[String]) -> Bed {
        let (clock, ports) = (WallClock::new(&scratch), [port(), port()]);
        fs::create_dir_all(scratch.path("pool")).expect("a directory");
        let mut options: Vec<String> = [
            ["--control", &scratch.text("ctl.sock")],
            ["--http", &format!("127.0.0.1:{}", ports[1])],
            ["--http", &format!("unix:{}", scratch.text("http.sock"))],
            ["--pool", &format!("p={},snapshots=layers", scratch.text("pool"))],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect();
        options.extend_from_slice(more);
        let wires = ["hs-ip", "iscsi"].map(|wire| format!("{wire}:127.0.0.1:{}", ports[0]));
        let wires = [&*wires[0], &*wires[1]];
        let volumes = ["a=pool:p,size=1M", "b=ram:8M"];
        let server = Server::start_within(&clock.environment, &scratch, &wires, &volumes, &options);
        let (socket, http) = (scratch.path("ctl.sock"), Http(scratch.path("http.sock")));
        Bed { server, clock, socket, http, ports, scratch }
    }

    /// The second that the server's clock shows, as text; of a time that RFC 3339 cannot write the nearest that it can.
    fn now(&self, offset: i64) -> String {
        let mut date = Command::new("date");
        let seconds = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs() as i64 + offset;
        date.args(["-u", "+%Y-%m-%dT%H:%M", "-d", &format!("@{}", seconds.clamp(0, 253_402_300_799))]);
        run_ok(date, TIMEOUT).trim().to_owned()
    }

    fn ask(&self, path: &str, headers: &str) -> (u16, Value) {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports[1])).expect("the port");
        let reply = exchange(stream, "GET", &format!("/api/v1{path}"), headers, "");
        (reply.0, reply.json())
    }

    /// The headers by which a program and a person show who they are.
    fn callers(&self) -> [String; 2] {
        let token = self.http.done("POST", "/tokens", r#"{"name":"program","role":"administrator"}"#);
        let link = ctl_ok(&self.socket, &["web-login"]);
        let (_, code) = link.trim_end().split_once("/#code=").expect("a link");
        let begin = json!({ "code": code, "name": "root", "password": "correct horse battery" }).to_string();
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports[1])).expect("the port");
        let begun = exchange(stream, "POST", "/api/v1/bootstrap", "", &begin);
        let cookie = begun.1.lines().find(|line| line.to_ascii_lowercase().starts_with("set-cookie: "));
        let cookie = cookie.and_then(|line| line["set-cookie: ".len()..].split(';').next()).expect("a cookie");
        let token = token["token"].as_str().expect("a token");
        [format!("Authorization: Bearer {token}\r\n"), format!("Cookie: {cookie}\r\n")]
    }
}

/// The last line of the audit log about this request.
fn last_audited(bed: &Bed, request: &str) -> Value {
    let text = fs::read_to_string(bed.scratch.audit_log()).expect("the audit log");
    let line = text.lines().rev().find(|line| line.contains(request)).expect("it is there");
    serde_json::from_str(line).expect("JSON")
}

#[test]
fn a_wall_clock_that_jumps_ends_nothing_and_is_told_as_it_is() {
    let test = "a_wall_clock_that_jumps_ends_nothing_and_is_told_as_it_is";
    if !can_run(test, &WallClock::TOOLS) {
        return;
    }
    let mut bed = Bed::new(&[]);
    let callers = bed.callers();
    let mut session = Initiator::log_in(
        &format!("127.0.0.1:{}", bed.ports[0]),
        "iqn.2026-11.org.example:host",
        &format!("{AUTHORITY}:a"),
        1,
    )
    .expect("a session");
    let url = format!("hs+ip://127.0.0.1:{}/b", bed.ports[0]);
    let client = Client::new(&bed.scratch, "alice");
    let bench = client.command(&["bench", &url, "--time", "600"]);
    let mut bench = Process::spawn("bench", bench, bed.scratch.path("bench.log"));
    let mut follow = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    follow.args(["ctl", "--socket"]).arg(&bed.socket).args(["events", "--follow"]);
    let mut follow = Process::spawn("events", follow, bed.scratch.path("events.log"));
    wait_until("the client is there", TIMEOUT, || ctl_ok(&bed.socket, &["sessions"]).contains(&client.id()));
    let sessions = || bed.http.done("GET", "/sessions", "")["items"].as_array().expect("a list").len();
    let before = sessions();

    for (number, offset) in JUMPS.into_iter().enumerate() {
        bed.clock.set(offset);
        let (name, early) = (format!("s{number}"), bed.now(offset));
        let content = vec![number as u8 + 1; 4096];
        session.good(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0], &content, 0);
        bed.http.done("POST", "/volumes/a/snapshots", &json!({ "name": name }).to_string());
        let late = bed.now(offset);
        assert_eq!(session.good(&[0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[], 4096), content);
        let is_now = |time: &Value| time.as_str().is_some_and(|time| time[..16] >= *early && time[..16] <= *late);
        let snapshot = bed.http.done("GET", &format!("/volumes/a/snapshots/{name}"), "");
        assert!(is_now(&snapshot["made"]), "{offset}: {snapshot}, and it is {early}");
        let line = last_audited(&bed, &format!("\"name\":\"{name}\""));
        assert!(is_now(&line["time"]), "{offset}: {line}");
        follow.wait_for(&format!("a@{name}"), TIMEOUT);
        for caller in &callers {
            let (status, told) = bed.ask("/session", caller);
            assert_eq!(status, 200, "{offset}: who has logged in still has: {told}");
        }
        let up = bed.http.done("GET", "/server", "")["uptime_seconds"].as_u64().expect("a number");
        assert!(up < 300, "{offset}: it has run for {up} s");
        assert_eq!(sessions(), before, "{offset}: no session has ended");
        assert!(follow.log().contains(&early[..10]), "{offset}: {}", follow.log());
        assert!(bench.is_alive() && bed.server.is_alive(), "{offset}: {}{}", bench.log(), bed.server.log());
    }
    // What is kept is neither ordered nor judged by when it was made.
    let snapshots = bed.http.done("GET", "/volumes/a/snapshots", "");
    assert_eq!(snapshots["total"], JUMPS.len());
    bed.http.done("POST", "/volumes/a/rollback?force=true", r#"{"snapshot":"s3"}"#);
    for number in [0, 5] {
        bed.http.done("DELETE", &format!("/volumes/a/snapshots/s{number}"), "");
    }
    bench.kill();
    assert!(bed.server.stop().success(), "{}", bed.server.log());

    // The next run begins long before this one, as far as its clock says.
    bed.clock.set(-40 * YEAR);
    bed.server.restart();
    bed.http.wait();
    assert_eq!(bed.http.done("GET", "/volumes/a/snapshots", "")["total"], JUMPS.len() - 2);
    assert_eq!(bed.ask("/session", &callers[0]).0, 200, "the token still holds");
    assert_eq!(bed.ask("/session", &callers[1]).0, 401, "sessions end with the server");
    bed.http.done("POST", "/volumes/a/snapshots", r#"{"name":"last"}"#);
    assert!(bed.server.stop().success() && !bed.server.log().contains("panicked"), "{}", bed.server.log());
}

#[test]
fn what_a_page_knows_of_a_server_is_not_taken_for_what_another_run_at_the_same_time_has() {
    let test = "what_a_page_knows_of_a_server_is_not_taken_for_what_another_run_at_the_same_time_has";
    if !can_run(test, &WallClock::TOOLS) {
        return;
    }
    let mut bed = Bed::new(&[]);
    let change = |revision: &Value, size: &str| {
        let stream = std::os::unix::net::UnixStream::connect(&bed.http.0).expect("the socket");
        let headers = format!("If-Match: \"{revision}\"\r\n");
        exchange(stream, "PATCH", "/api/v1/volumes/b", &headers, &format!(r#"{{"size":"{size}"}}"#)).0
    };
    let revision = |bed: &Bed| bed.http.done("GET", "/volumes/b", "")["revision"].clone();
    let first = revision(&bed);
    assert_eq!(change(&first, "9M"), 200);
    let second = revision(&bed);
    for offset in [-YEAR, YEAR] {
        bed.server.kill();
        bed.clock.set(offset);
        bed.server.restart();
        bed.http.wait();
        let now = revision(&bed);
        for old in [&first, &second] {
            assert_eq!(change(old, "20M"), 412, "{offset}: {old} is none of this run, whose are from {now} on");
        }
    }
    assert_eq!(change(&revision(&bed), "10M"), 200);
    assert!(bed.server.stop().success(), "{}", bed.server.log());
}

#[test]
fn a_certificate_that_has_ended_by_the_clock_is_told_and_ends_nothing() {
    let test = "a_certificate_that_has_ended_by_the_clock_is_told_and_ends_nothing";
    if !can_run(test, &[WallClock::TOOLS[0], "openssl"]) {
        return;
    }
    let scratch = Scratch::new();
    let [certificate, key, config] = ["cert.pem", "key.pem", "sanwire.toml"].map(|name| scratch.text(name));
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "90",
    ]);
    openssl.args(["-subj", "/CN=box", "-out", &certificate, "-keyout", &key]);
    run_ok(openssl, TIMEOUT);
    let text = format!("http-certificate = \"{certificate}\"\nhttp-key = \"{key}\"\n");
    scratch.secret("sanwire.toml", &text);
    let mut bed = Bed::of(scratch, &["--config".to_owned(), config]);
    assert!(!bed.server.log().contains("certificate of the HTTP API ends"), "{}", bed.server.log());
    let replaced = |bed: &Bed, days: i64| {
        bed.clock.set(days * DAY);
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-key",
            &bed.scratch.text("key.pem"),
            "-days",
            "90",
            "-subj",
            &format!("/CN=b{days}"),
        ]);
        openssl.args(["-out", &bed.scratch.text("cert.pem")]);
        run_ok(openssl, TIMEOUT);
        ctl_ok(&bed.socket, &["reload"])
    };
    for (days, part) in [(80, "the certificate of the HTTP API ends in "), (3650, "has ended at ")] {
        let told = replaced(&bed, days);
        assert!(format!("{told}{}", bed.server.log()).contains(part), "{days}: {told}{}", bed.server.log());
        assert_eq!(bed.http.done("GET", "/volumes", "")["total"], 2);
        assert!(ctl_ok(&bed.socket, &["status"]).contains("8 MiB"));
    }
    assert!(bed.server.stop().success(), "{}", bed.server.log());
}
