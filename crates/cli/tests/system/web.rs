//! The HTTP API of a real server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::harness::{Scratch, Server, port};

/// What comes back: the status, the head, the body.
struct Reply(u16, String, String);

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.2).unwrap_or_else(|error| panic!("{error}: {} {}", self.1, self.2))
    }
}

fn exchange(mut stream: impl Read + Write, method: &str, path: &str, headers: &str, body: &str) -> Reply {
    let content = if body.is_empty() {
        String::new()
    } else {
        format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
    };
    let text =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{content}Connection: close\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).expect("asked");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("answered");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Reply(status, head.to_owned(), body.to_owned())
}

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

    assert_eq!((anonymous("/healthz").0, anonymous("/readyz").0, anonymous("/api/v1/volumes").0), (200, 200, 401));
    assert!(anonymous("/metrics").2.ends_with("# EOF\n"));
    assert_eq!(anonymous("/openapi.json").json()["info"]["title"], "Sanwire");
    let audit = std::fs::read_to_string(scratch.audit_log()).expect("the audit log");
    assert!(audit.contains("add-volume") && audit.contains(&format!("\"pid\":{}", std::process::id())), "{audit}");
    assert!(server.stop().success());
    assert!(!scratch.path("http.sock").exists());
}
