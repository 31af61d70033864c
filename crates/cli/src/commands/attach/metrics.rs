//! How an attachment is, as text for Prometheus: `attach --metrics ADDR:PORT`.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sanwire_core::Outages;
use sanwire_initiator::{OpClass, Volume, VolumeLooker};

/// How long who asks may take for its question, and again for the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// No question is longer.
const HEAD_MAX_BYTES: usize = 4096;

/// So many may ask at once; a silent one holds up no other.
const ASKERS_MAX: usize = 8;

/// What is told of.
pub(super) struct Watched {
    volume: String,
    server: String,
    looker: VolumeLooker,
    outages: Arc<Outages>,
}

impl Watched {
    pub(super) fn new(volume: &Volume, outages: Arc<Outages>) -> Watched {
        let info = volume.info();
        let (name, server) = (info.name.to_string(), info.server.to_string());
        Watched { volume: name, server, looker: volume.looker(), outages }
    }

    fn text(&self) -> String {
        let (counts, lost) = self.looker.look();
        let is_up = lost.is_none() && !self.outages.is_gone();
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels = format!("volume=\"{}\",server=\"{}\"", escaped(&self.volume), escaped(&self.server));
        let mut text = String::new();
        let mut tell = |name: &str, kind: &str, help: &str, value: &str| {
            let suffix = if kind == "counter" { "_total" } else { "" };
            // Writing into a string does not fail.
            let _ = write!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n{name}{suffix}{{{labels}}} {value}\n");
        };
        let mut counter = |name, help, value: &dyn ToString| tell(name, "counter", help, &value.to_string());
        let lasted = self.outages.lasted().as_secs_f64();
        counter("sanwire_attachment_outages", "How often the server was gone", &self.outages.begun());
        counter("sanwire_attachment_outage_seconds", "For how long it was gone, also now", &lasted);
        counter("sanwire_attachment_commands", "Operations that were asked for", &counts.operations);
        counter("sanwire_attachment_read_bytes", "Bytes that were asked for by reads", &counts.read_bytes);
        counter("sanwire_attachment_written_bytes", "Bytes that writes have given", &counts.written_bytes);
        tell("sanwire_attachment_up", "gauge", "Whether the server is there", if is_up { "1" } else { "0" });
        let name = "sanwire_attachment_command_duration_seconds";
        let _ = write!(text, "# HELP {name} Time from an operation to its result.\n# TYPE {name} histogram\n");
        for (class, durations) in self.looker.durations().iter() {
            let operation = match class {
                OpClass::Read => "read",
                OpClass::Write => "write",
                OpClass::Other => "other",
            };
            let _ = durations.write_histogram(&mut text, name, &format!("{labels},operation=\"{operation}\""));
        }
        text + "# EOF\n"
    }
}

/// Tells at this address for as long as the process lives.
///
/// # Errors
/// What the system says.
pub(super) fn serve(address: SocketAddr, watched: Watched) -> io::Result<()> {
    serve_text(TcpListener::bind(address)?, move || watched.text())
}

fn serve_text(listener: TcpListener, text: impl Fn() -> String + Send + Sync + 'static) -> io::Result<()> {
    let text = Arc::new(text);
    let serve = move || {
        for stream in listener.incoming() {
            let is_crowded = Arc::strong_count(&text) > ASKERS_MAX;
            match stream {
                Ok(stream) if !is_crowded => {
                    let text = Arc::clone(&text);
                    // Who is not answered asks again.
                    let answer = move || drop(answer(stream, &*text));
                    let _ = thread::Builder::new().name("scrape".into()).spawn(answer);
                }
                Ok(_) => {}
                // The process is short of something.
                Err(_) => thread::sleep(PATIENCE),
            }
        }
    };
    thread::Builder::new().name("metrics".into()).spawn(serve).map(drop)
}

fn answer(mut stream: TcpStream, text: &dyn Fn() -> String) -> io::Result<()> {
    let (until, mut head) = (Instant::now() + PATIENCE, Vec::new());
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() >= HEAD_MAX_BYTES {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        let mut part = [0; 1024];
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Ok(());
        }
        head.extend_from_slice(&part[..count]);
    }
    let (status, kind, body) = if head.starts_with(b"GET /metrics ") {
        ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", text())
    } else {
        ("404 Not Found", "text/plain; charset=utf-8", "only GET /metrics is answered here\n".to_owned())
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parking::block_on;
    use crate::test_volume;

    #[test]
    fn whether_the_server_is_there_is_told_of_the_volume() {
        let volume = test_volume::serve(test_volume::info(1 << 20, 512), |_| None);
        let outages = Arc::new(Outages::default());
        let watched = Watched::new(&volume, Arc::clone(&outages));
        let is_told = |name: &str, value: u32| {
            let line = format!("sanwire_attachment_{name}{{volume=\"disk\",server=\"memory\"}} {value}");
            watched.text().lines().any(|other| other == line)
        };
        assert!(is_told("up", 1) && is_told("outages_total", 0) && is_told("outage_seconds_total", 0));
        outages.begin();
        assert!(is_told("up", 0) && is_told("outages_total", 1));
        outages.end();
        assert!(is_told("up", 1) && !is_told("outage_seconds_total", 0), "{}", watched.text());
        block_on(volume.flush()).unwrap();
        let flushed = "sanwire_attachment_command_duration_seconds_count{volume=\"disk\",server=\"memory\",operation=\"other\"} 1";
        assert!(watched.text().lines().any(|line| line == flushed), "{}", watched.text());
    }

    fn ask(at: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn metrics_are_told_beside_those_who_say_nothing_or_too_much() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        serve_text(listener, || "x 1\n# EOF\n".to_owned()).unwrap();
        // One place for each who asks below: that of the first is free some time after its answer.
        let _silent: Vec<_> = (0..ASKERS_MAX - 2).map(|_| TcpStream::connect(at).unwrap()).collect();
        let told = ask(at, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(told.starts_with("HTTP/1.1 200 OK\r\n") && told.ends_with("\r\n\r\nx 1\n# EOF\n"), "{told}");
        assert!(ask(at, "GET /secret HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    }
}
