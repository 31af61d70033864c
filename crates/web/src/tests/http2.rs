//! Connections of HTTP/2 that do what no client does. Frames are written by hand (RFC 9113, RFC 7541).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::Fixture;
use super::requests::usual;
use crate::limits::{HEADERS_MAX_BYTES, STREAMS_MAX};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const REFUSED_STREAM: u32 = 7;

/// A connection whose client has said that it speaks HTTP/2.
struct Connection(TcpStream);

struct Frame {
    kind: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Connection {
    fn new(web: &Fixture) -> Self {
        let stream = TcpStream::connect(web.port()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut connection = Connection(stream);
        connection.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        connection.send(SETTINGS, 0, 0, &[]).unwrap();
        connection
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame)
    }

    /// The next frame; `None` when the connection is over.
    fn next(&mut self) -> Option<Frame> {
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
fn fields(method: u8, path: &str) -> Vec<u8> {
    let mut block = vec![method, 0x86];
    for (name, value) in [(0x04, path), (0x01, "localhost")] {
        block.extend([name, u8::try_from(value.len()).unwrap()]);
        block.extend(value.as_bytes());
    }
    block
}

const GET: u8 = 0x82;
const POST: u8 = 0x83;

/// The place of `content-type` in the static table, whose number takes more than the four bits of its first byte.
const CONTENT_TYPE: u8 = 31;
const JSON: &str = "application/json";

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
    let mut post = fields(POST, "/api/v1/session");
    post.extend([0x0f, CONTENT_TYPE - 0x0f, u8::try_from(JSON.len()).unwrap()]);
    post.extend(JSON.as_bytes());
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
