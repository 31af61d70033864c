//! The HTTP API of a real server.

mod crowds;
mod first_page;
mod foreign;
mod tools;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::json;

use crate::harness::{AUTHORITY, Initiator, Scratch, Server, exchange, port, wait_until};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn a_server_is_managed_over_http() {
    let scratch = Scratch::new();
    let (wire, http) = (format!("hs-ip:127.0.0.1:{}", port()), port());
    let options = ["--http", &format!("127.0.0.1:{http}"), "--http", &format!("unix:{}", scratch.text("http.sock"))];
    let mut server = Server::start_on(&scratch, &[&wire], &["disk0=ram:8M"], &options.map(str::to_owned));
    let ask = |method: &str, path: &str, headers: &str, body: &str| {
        let stream = UnixStream::connect(scratch.path("http.sock")).expect("the socket");
        exchange(stream, method, &format!("/api/v1{path}"), headers, body)
    };
    let anonymous =
        |path: &str| exchange(TcpStream::connect((Ipv4Addr::LOCALHOST, http)).expect("the port"), "GET", path, "", "");

    let disk0 = ask("GET", "/volumes/disk0", "", "").json();
    assert_eq!(disk0["size_bytes"], 8 << 20);
    let volume = json!({ "name": "disk1", "store": format!("file:{}", scratch.text("disk1.img")), "options": { "size": "16M" } });
    let made = ask("POST", "/volumes", "", &volume.to_string());
    assert_eq!(made.0, 201, "{}", made.2);
    assert_eq!(ask("POST", "/volumes", "", &volume.to_string()).json()["code"], "volume-exists");
    let revision = ask("GET", "/volumes/disk1", "", "").json()["revision"].as_u64().expect("a revision");
    let resize =
        |revision: u64| ask("PATCH", "/volumes/disk1", &format!("If-Match: \"{revision}\"\r\n"), r#"{"size":"32M"}"#).0;
    assert_eq!((resize(revision), resize(revision)), (200, 412));
    assert_eq!(ask("GET", "/volumes/disk1", "", "").json()["size_bytes"], 32 << 20);
    assert_eq!(ask("DELETE", "/volumes/disk1", "", "").0, 200);
    assert_eq!(ask("GET", "/volumes/disk1", "", "").0, 404);
    assert_eq!(ask("POST", "/server/reload?dry-run=true", "", "{}").0, 200);

    let links = ask("GET", "/links", "", "").json();
    let link = json!({ "link": wire, "wire": "hyperscsi", "up": true, "connections": 0 });
    for (key, value) in link.as_object().expect("an object") {
        assert_eq!(&links["items"][0][key], value, "{links}");
    }
    let told = ask("POST", "/volumes", "", r#"{"name":"later","store":"ram:1M"}"#);
    assert_eq!(told.0, 201, "{}", told.2);
    let configuration = ask("GET", "/server/configuration", "", "").json();
    assert_eq!(
        configuration["volumes"],
        json!([{ "name": "disk0", "origin": "command-line", "lun": 0, "store": "ram:8M" }])
    );
    assert_eq!(configuration["deviations"][0]["name"], "later", "{configuration}");
    assert_eq!(ask("POST", "/volumes/disk0/scrub", "", "").json()["code"], "copies-refused");
    let member = ask("PUT", "/volumes/disk0/members/1", "", r#"{"store":"ram:8M"}"#);
    assert_eq!(member.json()["code"], "copies-refused");

    assert_eq!((anonymous("/healthz").0, anonymous("/readyz").0, anonymous("/api/v1/volumes").0), (200, 200, 401));
    let metrics = anonymous("/metrics").2;
    assert!(metrics.ends_with("# EOF\n"));
    // What the server, HTTP and the system tell is one text: no family is there twice, and no sample.
    let names = metrics.lines().map(|line| line.rsplit_once(' ').map_or(line, |(name, _)| name));
    let mut known = BTreeSet::new();
    let twice: Vec<&str> = names.filter(|line| !line.starts_with("# HELP") && !known.insert(*line)).collect();
    assert!(twice.is_empty() && known.len() > 100, "{twice:?}");
    assert_eq!(anonymous("/openapi.json").json()["info"]["title"], "Sanwire");
    let audit = std::fs::read_to_string(scratch.audit_log()).expect("the audit log");
    assert!(audit.contains("add-volume") && audit.contains(&format!("\"pid\":{}", std::process::id())), "{audit}");
    assert!(server.stop().success());
    assert!(!scratch.path("http.sock").exists());
}

#[test]
fn an_operator_makes_and_deletes_volumes_of_pools_and_touches_no_others() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.path("pool")).expect("a directory");
    let (wire, http) = (format!("hs-ip:127.0.0.1:{}", port()), port());
    let (control, pool) = (scratch.text("ctl.sock"), format!("fast={}", scratch.text("pool")));
    let (tcp, unix) = (format!("127.0.0.1:{http}"), format!("unix:{}", scratch.text("http.sock")));
    let options = ["--http", &tcp, "--http", &unix, "--pool", &pool, "--control", &control].map(str::to_owned);
    let _server = Server::start_on(&scratch, &[&wire], &["disk0=ram:8M"], &options);
    let ask = |token: &str, method: &str, path: &str, body: &str| {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, http)).expect("the port");
        exchange(stream, method, &format!("/api/v1{path}"), &format!("Authorization: Bearer {token}\r\n"), body)
    };
    let token = |body: &str| {
        let stream = UnixStream::connect(scratch.path("http.sock")).expect("the socket");
        exchange(stream, "POST", "/api/v1/tokens", "", body).json()["token"].as_str().expect("a token").to_owned()
    };
    let operator = token(r#"{"name":"operator","role":"operator"}"#);
    let of_another = token(r#"{"name":"other","role":"operator","pools":["slow"]}"#);
    let of_it = token(r#"{"name":"csi","role":"operator","pools":["fast"]}"#);
    let wanted = r#"{"pool":"fast","size":"4M"}"#;

    let shadow = r#"{"name":"shadow","store":"file:/etc/shadow","options":{"readonly":true}}"#;
    for token in [&operator, &of_it] {
        assert_eq!(ask(token, "POST", "/volumes", shadow).json()["code"], "not-permitted");
        for (method, path, body) in [
            ("PATCH", "/volumes/disk0", r#"{"size":"16M"}"#),
            ("PATCH", "/volumes/disk0", r#"{"protected":true}"#),
            ("DELETE", "/volumes/disk0?force=true", ""),
            ("DELETE", "/volumes/disk0?content=delete", ""),
            ("POST", "/volumes/disk0/load", r#"{"store":"file:/etc/shadow"}"#),
            ("POST", "/snapshots", r#"{"volumes":["disk0"],"name":"s"}"#),
        ] {
            assert_eq!(ask(token, method, path, body).json()["code"], "not-permitted", "{method} {path}");
        }
    }
    assert_eq!(ask(&of_another, "PUT", "/volumes/data", wanted).json()["code"], "not-permitted");
    assert_eq!(ask(&of_it, "PUT", "/volumes/data", wanted).0, 201);
    assert_eq!(ask(&operator, "PUT", "/volumes/data", wanted).0, 200, "it is there");
    assert_eq!(ask(&of_another, "DELETE", "/volumes/data?content=delete", "").0, 403);
    let audit = ask(&operator, "GET", "/audit", "");
    assert_eq!(audit.json()["code"], "not-permitted");
    let deleted = ask(&of_it, "DELETE", "/volumes/data?content=delete", "");
    assert!([200, 202].contains(&deleted.0), "done at once, or a job: {}", deleted.json());
    wait_until("the content is gone", TIMEOUT, || !scratch.path("pool/data.img").exists());

    // The link for the first administrator, and for nobody else afterwards.
    let link = ctl_ok(&scratch.path("ctl.sock"), &["web-login"]);
    let (url, code) = link.trim_end().split_once("/#code=").expect("a link");
    assert_eq!(url, format!("http://{tcp}"));
    let begin = json!({ "code": code, "name": "root", "password": "correct horse battery" }).to_string();
    assert_eq!(ask("", "POST", "/bootstrap", &begin).0, 401, "no wrong token beside it");
    let stream = || TcpStream::connect((Ipv4Addr::LOCALHOST, http)).expect("the port");
    assert_eq!(exchange(stream(), "POST", "/api/v1/bootstrap", "", &begin).0, 201);
    let again = ctl(&scratch.path("ctl.sock"), &["web-login"]);
    assert!(again.code != Some(0) && again.stderr.contains("name the user"), "{}", again.stderr);
    assert!(ctl_ok(&scratch.path("ctl.sock"), &["web-login", "root"]).starts_with(url));
    assert!(!std::fs::read_to_string(scratch.audit_log()).expect("the audit log").contains(code));
}

#[test]
fn who_is_registered_and_who_holds_a_reservation_is_told_over_http() {
    let scratch = Scratch::new();
    let (iscsi, control) = (format!("127.0.0.1:{}", port()), scratch.text("ctl.sock"));
    let options = ["--http", &format!("unix:{}", scratch.text("http.sock")), "--control", &control].map(str::to_owned);
    let mut server = Server::start_on(&scratch, &[&format!("iscsi:{iscsi}")], &["disk=ram:8M"], &options);
    let told = || {
        let stream = UnixStream::connect(scratch.path("http.sock")).expect("the socket");
        exchange(stream, "GET", "/api/v1/volumes/disk/reservations", "", "").json()
    };
    assert_eq!((&told()["type"], &told()["registrants"]), (&json!(null), &json!([])));
    let name = "iqn.2026-11.org.example:host";
    let mut initiator = Initiator::log_in(&iscsi, name, &format!("{AUTHORITY}:disk"), 1).expect("a session");
    // PERSISTENT RESERVE OUT (SPC-5 6.16): REGISTER the key 2Ah, and RESERVE as write exclusive.
    let mut order = |action: u8, kind: u8, key: u64, new_key: u64| {
        let parameters = [&key.to_be_bytes()[..], &new_key.to_be_bytes(), &[0; 8]].concat();
        initiator.good(&[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], &parameters, 0);
    };
    order(0, 0, 0, 0x2a);
    order(1, 1, 0x2a, 0);
    let reserved = told();
    let holder = json!({ "initiator": format!("initiator {name}"), "key": "000000000000002a", "holder": true });
    assert_eq!((&reserved["type"], &reserved["persistent"]), (&json!("write-exclusive"), &json!(false)), "{reserved}");
    for (key, value) in holder.as_object().expect("an object") {
        assert_eq!(&reserved["registrants"][0][key], value, "{reserved}");
    }
    let shown = ctl_ok(&scratch.path("ctl.sock"), &["reservations", "disk"]);
    assert!(shown.contains("write exclusive") && shown.contains("holder"), "{shown}");
    assert!(ctl_ok(&scratch.path("ctl.sock"), &["links"]).contains("up"));
    assert!(ctl_ok(&scratch.path("ctl.sock"), &["configuration"]).contains("ram:8M"));
    assert!(server.stop().success());
}

#[test]
fn an_administrator_ends_the_reservations_of_a_host_that_does_not_come_again() {
    const CONFLICT: u8 = 0x18;
    const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let scratch = Scratch::new();
    let (iscsi, socket) = (format!("127.0.0.1:{}", port()), scratch.path("ctl.sock"));
    let http = format!("unix:{}", scratch.text("http.sock"));
    let options = ["--http", &http, "--control", &scratch.text("ctl.sock")].map(str::to_owned);
    let volume = format!("disk=file:{},size=8M", scratch.text("disk.img"));
    let mut server = Server::start_on(&scratch, &[&format!("iscsi:{iscsi}")], &[&volume], &options);
    let ask = |method: &str, query: &str| {
        let stream = UnixStream::connect(scratch.path("http.sock")).expect("the socket");
        exchange(stream, method, &format!("/api/v1/volumes/disk/reservations{query}"), "", "")
    };
    let log_in = |name: &str| {
        let name = format!("iqn.2026-11.org.example:{name}");
        Initiator::log_in(&iscsi, &name, &format!("{AUTHORITY}:disk"), 1).expect("a session")
    };
    // PERSISTENT RESERVE OUT: REGISTER a key, kept through restarts, and RESERVE as write exclusive.
    let reserve = |session: &mut Initiator, action: u8, key: u64, new_key: u64| {
        let mut parameters = [&key.to_be_bytes()[..], &new_key.to_be_bytes(), &[0; 8]].concat();
        parameters[20] = 1;
        session.good(&[0x5f, action, 1, 0, 0, 0, 0, 0, 24, 0], &parameters, 0);
    };
    let (mut first, mut second) = (log_in("first"), log_in("second"));
    reserve(&mut first, 0, 0, 0x2a);
    reserve(&mut second, 0, 0, 0x2b);
    reserve(&mut first, 1, 0x2a, 0);
    assert_eq!(second.command(&WRITE, &[1; 512], 0).status, CONFLICT);
    let refused = ask("DELETE", "");
    assert_eq!((refused.0, &refused.json()["code"]), (409, &json!("volume-in-use")), "{}", refused.2);
    assert!(refused.2.contains("iqn.2026-11.org.example:first"), "{}", refused.2);
    let would = ask("DELETE", "?force=true&dry-run=true").json();
    assert!(would["changed"].to_string().contains("would have no persistent reservation"), "{would}");
    assert_eq!(ask("DELETE", "/zz").json()["code"], "reservation-key-invalid");
    assert_eq!(ask("DELETE", "/2c?force=true").json()["code"], "registration-unknown");
    assert_eq!(ask("GET", "").json()["registrants"].as_array().map(Vec::len), Some(2), "nothing was ended");

    // The first one does not come again. What it has registered goes, and the other one's stays.
    drop(first);
    wait_until("it is gone", TIMEOUT, || !ctl_ok(&socket, &["sessions"]).contains("example:first"));
    assert_eq!(second.command(&WRITE, &[1; 512], 0).status, CONFLICT);
    let ended = ctl_ok(&socket, &["clear-reservations", "disk", "--key", "2a"]);
    assert!(ended.contains("is not registered for volume disk any more"), "{ended}");
    assert!(ended.contains("it was write exclusive"), "{ended}");
    assert_eq!(second.command(&WRITE, &[1; 512], 0).status, 0);
    assert_eq!(ask("GET", "").json()["registrants"][0]["key"], "000000000000002b");
    server.kill();
    server.restart();
    wait_until("it is back", TIMEOUT, || UnixStream::connect(scratch.path("http.sock")).is_ok());
    let told = ask("GET", "").json();
    assert_eq!((&told["type"], told["registrants"].as_array().map(Vec::len)), (&json!(null), Some(1)), "{told}");

    // All of it goes also while its owner is there, who is told.
    let mut second = log_in("second");
    second.good(&[0; 6], &[], 0);
    assert_eq!(ask("DELETE", "?force=true").0, 200);
    let attention = second.execute(&[0; 6], &[], 0);
    assert_eq!(attention.sense, Some((6, 0x2a, 3)), "RESERVATIONS PREEMPTED");
    assert_eq!(ask("GET", "").json()["registrants"], json!([]));
    let events = ctl_ok(&socket, &["events", "--volume", "disk"]);
    assert!(events.contains("reservations of volume disk are ended; registrations: 1"), "{events}");
    let audit = std::fs::read_to_string(scratch.audit_log()).expect("the audit log");
    assert!(audit.contains("clear-reservations") && audit.contains("\"key\":\"2a\""), "{audit}");
    assert!(server.stop().success());
}
