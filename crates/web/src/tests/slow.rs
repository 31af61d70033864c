//! Clients that send slowly, and such as take nothing of what they have asked for: what they hold is bounded, they are shown out in
//! time, and nobody else waits for them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use sanwire_server::{Answer, Response};
use serde_json::json;

use super::http2::{
    CONTENT_TYPE, Connection, DATA, END_HEADERS, END_STREAM, Frame, GET, HEADERS, JSON, POST, fields, with_field,
};
use super::requests::answer;
use super::{Fixture, Reply, fixture_with, request};
use crate::limits::{MEMORY_OF_NETWORK_MAX_BYTES, STREAMS_MAX, Times};

/// What slow ones have here. Whoever is halted for so long is shown out, too, and tries it again.
const SHORT: Duration = Duration::from_millis(300);
/// What nobody here takes who is not slow.
const LONG: Duration = Duration::from_secs(60);

/// A few of them leave a rest of what one network may hold.
const LARGE_BYTES: usize = 9 << 20;

fn times() -> Times {
    Times { headers: LONG, body: LONG, silence: LONG }
}

/// An API with an answer that no socket holds as a whole.
fn with_large_answer(times: Times) -> Fixture {
    fixture_with(times, |asked| match asked {
        sanwire_server::Request::Metrics => {
            let text = serde_json::from_value(json!("x".repeat(LARGE_BYTES))).unwrap();
            Response::Done(Answer::Metrics(text))
        }
        asked => answer(asked),
    })
}

fn connect(web: &Fixture) -> TcpStream {
    let stream = TcpStream::connect(web.port()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// What a client is told that sends these bytes one by one, and goes on until it is shown out.
fn told_slowly(mut stream: impl Read + Write + Send, bytes: &[u8], sender: impl Write + Send) -> String {
    let mut sender = sender;
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            for byte in bytes.iter().chain(std::iter::repeat(&b' ')) {
                if sender.write_all(&[*byte]).is_err() {
                    return;
                }
                thread::sleep(SHORT / 20);
            }
        });
        let mut told = Vec::new();
        match stream.read_to_end(&mut told) {
            // What was sent and not read resets the connection.
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("it goes on: {error}"),
            _ => {}
        }
        drop(stream);
        sending.join().unwrap();
        String::from_utf8_lossy(&told).into_owned()
    })
}

fn assert_others_are_served(web: &Fixture) {
    for _ in 0..4 {
        assert_eq!(status(|| web.ask_by_tcp("GET", "/healthz", "", "")), 200);
        assert_eq!(status(|| web.get("/api/v1/volumes")), 200);
    }
}

/// How something is answered that is asked again when it was not answered.
fn status(ask: impl Fn() -> Reply) -> u16 {
    let begun = Instant::now();
    loop {
        let status = ask().status;
        if status != 0 || begun.elapsed() > LONG {
            return status;
        }
    }
}

#[test]
fn a_body_that_comes_slowly_is_refused() {
    let web = fixture_with(Times { body: SHORT, ..times() }, answer);
    let whole = request("POST", "/api/v1/session", "Content-Length: 1000\r\nContent-Type: application/json\r\n", "");
    let chunked =
        request("POST", "/api/v1/session", "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n", "");
    for head in [whole, chunked + "3e8\r\n"] {
        let mut stream = connect(&web);
        stream.write_all(head.as_bytes()).unwrap();
        let sender = stream.try_clone().unwrap();
        let told = told_slowly(stream, b"{\"name\":", sender);
        assert!(told.starts_with("HTTP/1.1 408 ") && told.contains("\"code\":\"request-too-slow\""), "{told}");
        let mut stream = UnixStream::connect(web.socket()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        // One that sends nothing at all.
        let mut told = String::new();
        stream.read_to_string(&mut told).unwrap();
        assert!(told.contains("\"code\":\"request-too-slow\""), "{told}");
    }
    assert_others_are_served(&web);
    assert_eq!(web.asked().iter().filter(|asked| asked.is_change()).count(), 0);
}

#[test]
fn a_body_that_comes_slowly_by_http_2_is_refused_and_its_connection_goes_on() {
    let web = fixture_with(Times { body: SHORT, ..times() }, answer);
    let mut connection = Connection::new(&web);
    let post = with_field(fields(POST, "/api/v1/session"), CONTENT_TYPE, JSON);
    connection.send(HEADERS, END_HEADERS, 1, &post).unwrap();
    connection.send(DATA, 0, 1, b"{\"name\":").unwrap();
    let answered = |connection: &mut Connection, stream: u32| {
        let is_it = |frame: &Frame| (frame.kind, frame.stream) == (DATA, stream) && !frame.payload.is_empty();
        let frame = std::iter::from_fn(|| connection.next()).find(is_it).expect("an answer");
        String::from_utf8_lossy(&frame.payload).into_owned()
    };
    let told = answered(&mut connection, 1);
    assert!(told.contains("\"code\":\"request-too-slow\""), "{told}");
    connection.send(HEADERS, END_STREAM | END_HEADERS, 3, &fields(GET, "/healthz")).unwrap();
    assert_eq!(answered(&mut connection, 3), "ok\n");
}

#[test]
fn headers_that_come_slowly_end_their_connection() {
    // Of HTTP/1.1 they have a time of their own; HTTP/2 is a connection without a request.
    let cases: [(Times, &[u8], &[u8]); 3] = [
        (Times { headers: SHORT, ..times() }, b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "),
        (Times { silence: SHORT, ..times() }, b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "),
        (
            Times { silence: SHORT, ..times() },
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
            b"\0\x10\0\x01\x05\0\0\0\x01\x82\x84\x86",
        ),
    ];
    for (times, at_once, slowly) in cases {
        let web = fixture_with(times, answer);
        let mut stream = connect(&web);
        stream.write_all(at_once).unwrap();
        let sender = stream.try_clone().unwrap();
        let told = told_slowly(stream, slowly, sender);
        assert!(!told.contains("ok\n"), "{told:?}");
        assert_others_are_served(&web);
    }
}

/// Reads the first bytes of an answer, and no more: whether it is one that is done.
fn is_done(stream: &mut TcpStream) -> bool {
    begins_with_200(stream).unwrap()
}

fn begins_with_200(stream: &mut TcpStream) -> io::Result<bool> {
    let mut text = [0; 12];
    stream.read_exact(&mut text)?;
    assert!(text.ends_with(b"200") || text.ends_with(b"503"), "{text:?}");
    Ok(text.ends_with(b"200"))
}

/// Whether one who takes nothing of an answer for so long is shown out by then. One that is shown out before it is answered is not.
fn is_shown_out(web: &Fixture, text: &str, pause: Duration) -> bool {
    let mut stream = connect(web);
    if stream.write_all(text.as_bytes()).is_err() || !begins_with_200(&mut stream).unwrap_or(false) {
        return false;
    }
    thread::sleep(pause);
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest);
    assert!(!ended.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "it goes on");
    rest.len() < LARGE_BYTES
}

#[test]
fn who_takes_nothing_of_an_answer_holds_little_and_is_shown_out() {
    let web = with_large_answer(times());
    let text = request("GET", "/metrics", "", "");
    let mut streams: Vec<TcpStream> = (0..16)
        .map(|_| {
            let mut stream = connect(&web);
            stream.write_all(text.as_bytes()).unwrap();
            stream
        })
        .collect();
    let done: Vec<bool> = streams.iter_mut().map(is_done).collect();
    let held = done.iter().filter(|is_done| **is_done).count();
    assert!((1..=MEMORY_OF_NETWORK_MAX_BYTES / LARGE_BYTES).contains(&held), "{held} answers are held");
    assert_others_are_served(&web);
    let of_root = web.get("/metrics");
    assert_eq!((of_root.status, of_root.body.len()), (200, LARGE_BYTES), "what strangers hold is none of root's");
    drop(streams);
    assert_all_comes_back(&web);

    let web = with_large_answer(Times { silence: SHORT, ..times() });
    // A server that is halted shows it out only later.
    let is_out = [3_u32, 3, 10, 30, 50].into_iter().any(|times| is_shown_out(&web, &text, times * SHORT));
    assert!(is_out, "it was sent as a whole");
    assert_all_comes_back(&web);
}

/// What others have held of the memory for answers is there again.
fn assert_all_comes_back(web: &Fixture) {
    let begun = Instant::now();
    while web.ask_by_tcp("GET", "/metrics", "", "").body.len() < LARGE_BYTES {
        assert!(begun.elapsed() < LONG, "it does not come back");
    }
}

#[test]
fn who_takes_nothing_by_http_2_holds_little_and_is_shown_out() {
    let web = with_large_answer(Times { silence: SHORT, ..times() });
    let mut begun = (0..8).map(|_| begun_without_window(&web));
    let done = begun.find(|done| *done > 0).unwrap_or(0);
    assert!((1..=MEMORY_OF_NETWORK_MAX_BYTES / LARGE_BYTES).contains(&done), "{done} answers are held");
    assert_all_comes_back(&web);
}

/// How many answers are begun for one who asks for many, and takes nothing of them until it is shown out.
fn begun_without_window(web: &Fixture) -> usize {
    let mut connection = Connection::without_window(web);
    let get = fields(GET, "/metrics");
    let mut ask = |number: u32| connection.send(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, &get);
    // Who is halted meanwhile is shown out before it has asked for all.
    let _ = (0..STREAMS_MAX).try_for_each(&mut ask);
    assert_others_are_served(web);
    // `:status: 200` stands in the static table; a problem says its code in a body, which is not taken either.
    let frames: Vec<Frame> = std::iter::from_fn(|| connection.next()).collect();
    let heads: Vec<&Frame> = frames.iter().filter(|frame| frame.kind == HEADERS).collect();
    assert!(frames.iter().all(|frame| frame.kind != DATA || frame.payload.is_empty()));
    heads.iter().filter(|frame| frame.payload[0] == 0x88).count()
}
