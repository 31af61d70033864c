//! Connections of HTTP/2 that do what no client does. Frames are written by hand (RFC 9113, RFC 7541).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use super::Fixture;
use super::requests::usual;
use crate::limits::{HEADERS_MAX_BYTES, STREAMS_MAX};

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW_SIZE: u16 = 4;

const REFUSED_STREAM: u32 = 7;

/// A connection whose client has said that it speaks HTTP/2.
pub(super) struct Connection(TcpStream);

pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Connection {
    pub(super) fn new(web: &Fixture) -> Self {
        Connection::with_settings(web, &[])
    }

    /// One whose client takes nothing of any answer.
    pub(super) fn without_window(web: &Fixture) -> Self {
        let [first, second] = INITIAL_WINDOW_SIZE.to_be_bytes();
        Connection::with_settings(web, &[first, second, 0, 0, 0, 0])
    }

    fn with_settings(web: &Fixture, settings: &[u8]) -> Self {
        let stream = TcpStream::connect(web.port()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut connection = Connection(stream);
        // Who was halted may have been shown out by now: what is read tells so.
        let _ = connection.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let _ = connection.send(SETTINGS, 0, 0, settings);
        connection
    }

    pub(super) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame)
    }

    /// The next frame; `None` when the connection is over.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], stream, payload })
    }
}

/// The fields of a request, as literals beside the methods and the scheme of the static table.
pub(super) fn fields(method: u8, path: &str) -> Vec<u8> {
    fields_for("localhost", method, path)
}

fn fields_for(authority: &str, method: u8, path: &str) -> Vec<u8> {
    let block = vec![method, 0x86];
    [(AUTHORITY, authority), (PATH, path)]
        .into_iter()
        .fold(block, |block, (name, value)| with_field(block, name, value))
}

/// With one more field: its name by its place in the static table, in four bits or in one more byte, and its value.
pub(super) fn with_field(mut block: Vec<u8>, name: u8, value: &str) -> Vec<u8> {
    block.extend(if name < 0x0f { vec![name] } else { vec![0x0f, name - 0x0f] });
    block.push(u8::try_from(value.len()).unwrap());
    block.extend(value.as_bytes());
    block
}

pub(super) const GET: u8 = 0x82;
pub(super) const POST: u8 = 0x83;

/// Places in the static table (RFC 7541, appendix A).
const AUTHORITY: u8 = 1;
const PATH: u8 = 4;
pub(super) const CONTENT_TYPE: u8 = 31;
const HOST: u8 = 38;
pub(super) const JSON: &str = "application/json";

#[test]
fn who_resets_each_request_at_once_is_shown_out_and_hurts_nobody() {
    let web = usual();
    let mut connection = Connection::new(&web);
    let get = fields(GET, "/healthz");
    let is_over = (0..20_000u32).map(|number| 2 * number + 1).any(|stream| {
        let sent = connection.send(HEADERS, END_STREAM | END_HEADERS, stream, &get);
        sent.and_then(|()| connection.send(RST_STREAM, 0, stream, &8u32.to_be_bytes())).is_err()
    });
    let told = std::iter::from_fn(|| connection.next()).any(|frame| frame.kind == GOAWAY);
    assert!(is_over || told, "it goes on");
    assert_eq!(web.get("/healthz").status, 200);
}

#[test]
fn requests_of_one_connection_are_bounded() {
    let web = usual();
    let mut connection = Connection::new(&web);
    // Each waits for its body; without a media type that is taken, it would be answered at once.
    let post = with_field(fields(POST, "/api/v1/session"), CONTENT_TYPE, JSON);
    let last = 2 * STREAMS_MAX + 1;
    (0..=STREAMS_MAX).for_each(|number| connection.send(HEADERS, END_HEADERS, 2 * number + 1, &post).unwrap());
    let refused = std::iter::from_fn(|| connection.next()).find(|frame| frame.kind == RST_STREAM).unwrap();
    assert_eq!((refused.stream, refused.payload), (last, REFUSED_STREAM.to_be_bytes().to_vec()));
}

#[test]
fn headers_without_end_are_not_collected() {
    let web = usual();
    let mut connection = Connection::new(&web);
    connection.send(HEADERS, END_STREAM, 1, &fields(GET, "/healthz")).unwrap();
    // A field that is in no table: its name, its length in 7 bits and more, its value.
    let mut field = vec![0x00, 0x01, b'x', 0x7f, 0x81, 0x3e];
    field.extend(vec![b'y'; 0x7f + 1 + (0x3e << 7)]);
    let is_over = (0..4096).any(|_| connection.send(CONTINUATION, 0, 1, &field).is_err());
    let sent_bytes = 4096 * field.len();
    assert!(sent_bytes > 100 * HEADERS_MAX_BYTES);
    let told = std::iter::from_fn(|| connection.next()).any(|frame| frame.kind == GOAWAY);
    assert!(is_over || told, "all of that is taken");
    assert_eq!(web.get("/healthz").status, 200);
}

/// The code of the problem that a request for this is answered with, by HTTP/2; nothing when it is done.
fn told(web: &Fixture, block: &[u8]) -> String {
    let mut connection = Connection::new(web);
    connection.send(HEADERS, END_STREAM | END_HEADERS, 1, block).unwrap();
    let frame = std::iter::from_fn(|| connection.next()).find(|frame| matches!(frame.kind, DATA | RST_STREAM | GOAWAY));
    let frame = frame.expect("an answer");
    if frame.kind != DATA {
        return "broken off".into();
    }
    let body: Value = serde_json::from_slice(&frame.payload).unwrap_or_default();
    body["code"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_page_elsewhere_reaches_nothing_by_http_2() {
    let web = usual();
    for authority in ["localhost", "LocalHost:80", "127.0.0.1:1", "[::1]:1", "box", "Box:5674"] {
        assert_eq!(told(&web, &fields_for(authority, GET, "/healthz")), "", "{authority}");
    }
    for authority in [
        "evil.example",
        "box.evil.example",
        "127.0.0.1.evil.example:80",
        "localhost.",
        "localhost@evil.example",
        "evil.example@box",
        "2130706433",
        "0x7f.1",
        "127.1",
    ] {
        let code = told(&web, &fields_for(authority, GET, "/healthz"));
        assert!(matches!(&*code, "host-unknown" | "broken off"), "{authority}: {code:?}");
    }
    assert_eq!(told(&web, &fields_for("evil.example", GET, "/healthz")), "host-unknown");
    let two = |authority: &str, host: &str| told(&web, &with_field(fields_for(authority, GET, "/healthz"), HOST, host));
    assert_eq!(two("box", "box"), "");
    for (authority, host) in [("box", "evil.example"), ("evil.example", "box"), ("box", "box:80")] {
        let code = two(authority, host);
        assert!(matches!(&*code, "request-invalid" | "broken off"), "{authority}, {host}: {code:?}");
    }
    assert_eq!(web.asked(), []);
}
