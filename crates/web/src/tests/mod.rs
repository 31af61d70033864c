//! The API over real sockets, before a desk that answers what a test says.

mod accounts;
mod description;
mod http2;
mod large;
mod listeners;
mod names;
mod odd;
mod renewal;
pub(crate) mod requests;
mod resources;
mod slow;
mod standing;
mod streams;
mod strictness;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, process};

use sanwire_server::{Asker, Request, Response};
use serde_json::Value;

use crate::limits::Times;
use crate::{Desk, Web, WebAddress, WebConfig};

/// A desk that keeps what it was asked.
pub(crate) struct FakeDesk {
    pub(crate) asked: Mutex<Vec<(Asker, Request)>>,
    pub(super) noted: Mutex<Vec<String>>,
    /// Called with each line that is noted, after it was.
    pub(super) on_note: Mutex<Option<OnNote>>,
    answer: Box<dyn Fn(&Request) -> Response + Send + Sync>,
}

type OnNote = Arc<dyn Fn(&str) + Send + Sync>;

impl FakeDesk {
    pub(crate) fn new(answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        FakeDesk {
            asked: Mutex::default(),
            noted: Mutex::default(),
            on_note: Mutex::default(),
            answer: Box::new(answer),
        }
    }
}

impl Desk for FakeDesk {
    fn handle(&self, by: &Asker, request: Request) -> Response {
        let response = (self.answer)(&request);
        self.asked.lock().unwrap().push((by.clone(), request));
        response
    }

    fn is_alive(&self) -> bool {
        true
    }

    fn note_changed(&self, by: &Asker, line: String) {
        self.noted.lock().unwrap().push(format!("{by}: {line}"));
        let on_note = self.on_note.lock().unwrap().clone();
        on_note.into_iter().for_each(|call| call(&line));
    }

    fn note_refused(&self, by: &Asker, what: &str) {
        self.noted.lock().unwrap().push(format!("{by} is refused {what}"));
    }
}

/// An API at a port and at a socket.
pub(super) struct Fixture {
    pub(super) desk: Arc<FakeDesk>,
    pub(super) web: Web,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(super) fn code(&self) -> (u16, String) {
        (self.status, self.json()["code"].as_str().unwrap_or_default().to_owned())
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim())
    }
}

pub(super) fn fixture(answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Fixture {
    // On a busy host, what a test does between the head of a request and its body takes its time.
    fixture_with(Times { body: Duration::from_secs(120), ..Times::default() }, answer)
}

/// The same, where clients may take so long.
pub(super) fn fixture_with(times: Times, answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Fixture {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("sanwire-web-{}-{}.sock", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let desk = Arc::new(FakeDesk::new(answer));
    let socket = env::temp_dir().join(&name);
    let accounts_file = env::temp_dir().join(format!("{name}.json"));
    let addresses = vec!["127.0.0.1:0".parse().unwrap(), WebAddress::Unix(socket)];
    let config =
        WebConfig { addresses, hosts: vec!["Box".into()], accounts_file: Some(accounts_file), ..WebConfig::default() };
    let web = Web::start_with(&config, desk.clone(), times).unwrap();
    Fixture { desk, web }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(format!("{}.json", self.socket().display()));
    }
}

impl Fixture {
    pub(super) fn port(&self) -> SocketAddr {
        let WebAddress::Tcp(address) = self.web.addresses()[0] else { panic!("no port") };
        address
    }

    pub(super) fn socket(&self) -> PathBuf {
        let WebAddress::Unix(path) = self.web.addresses().remove(1) else { panic!("no socket") };
        path
    }

    /// Asks as an administrator.
    pub(super) fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        exchange(UnixStream::connect(self.socket()).unwrap(), &request(method, path, headers, body))
    }

    pub(super) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "", "")
    }

    /// Asks from somewhere.
    pub(super) fn ask_by_tcp(&self, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        exchange(TcpStream::connect(self.port()).unwrap(), &request(method, path, headers, body))
    }

    pub(super) fn asked(&self) -> Vec<Request> {
        self.desk.asked.lock().unwrap().iter().map(|(_, request)| request.clone()).collect()
    }
}

pub(super) fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
    let content = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let is_typed = body.is_empty() || headers.contains("Content-Type");
    let content_type = if is_typed { "" } else { "Content-Type: application/json\r\n" };
    format!("{method} {path} HTTP/1.1\r\n{host}{headers}{content}{content_type}Connection: close\r\n\r\n{body}")
}

pub(super) fn exchange(stream: impl Read + Write, request: &str) -> Reply {
    exchange_bytes(stream, request.as_bytes())
}

pub(super) fn exchange_bytes(mut stream: impl Read + Write, request: &[u8]) -> Reply {
    // A request that is refused before it is read whole may break off, in either direction.
    let _ = stream.write_all(request);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}
