//! The HTTP API of a server.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::wait_until;

const TIMEOUT: Duration = Duration::from_secs(60);

/// What comes back: the status, the head, the body.
#[derive(Debug)]
pub struct Reply(pub u16, pub String, pub String);

impl Reply {
    /// The body.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.2).unwrap_or_else(|error| panic!("{error}: {} {}", self.1, self.2))
    }
}

/// One request on a connection of its own; `headers` end with a line's end each.
pub fn exchange(mut stream: impl Read + Write, method: &str, path: &str, headers: &str, body: &str) -> Reply {
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

/// A server that is asked at the socket where `--http unix:PATH` has it listen.
#[derive(Clone, Debug)]
pub struct Http(pub PathBuf);

impl Http {
    /// Waits until a server that was started again listens there: the last one, when it serves all else.
    #[track_caller]
    pub fn wait(&self) {
        wait_until("the HTTP API answers", TIMEOUT, || UnixStream::connect(&self.0).is_ok());
    }

    /// One request below `/api/v1`.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Reply {
        let stream = UnixStream::connect(&self.0).expect("the socket of the HTTP API");
        exchange(stream, method, &format!("/api/v1{path}"), "", body)
    }

    /// A request that must succeed; one that goes on as a job is waited for.
    #[track_caller]
    pub fn done(&self, method: &str, path: &str, body: &str) -> Value {
        let reply = self.ask(method, path, body);
        let mut said = reply.json();
        assert!([200, 201, 202].contains(&reply.0), "{method} {path}: {said}");
        if reply.0 == 202 {
            let job = format!("/jobs/{}", said["id"]);
            wait_until("the job is over", TIMEOUT, || {
                said = self.ask("GET", &job, "").json();
                said["state"] != "running"
            });
            assert_eq!(said["state"], "done", "{method} {path}: {said}");
        }
        said
    }
}
