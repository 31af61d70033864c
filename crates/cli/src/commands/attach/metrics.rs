//! How an attachment is, as text for Prometheus: `attach --metrics ADDR:PORT`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_core::Outages;
use sanwire_initiator::{OpClass, Volume, VolumeLooker};

use crate::rdma;

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
        text + &rdma::metrics() + "# EOF\n"
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
        let mut askers = Askers::default();
        for stream in listener.incoming() {
            match stream {
                Ok(mut stream) => {
                    let Some(place) = askers.enter(&stream) else { continue };
                    let text = Arc::clone(&text);
                    let answer = move || {
                        // Who is not answered asks again.
                        let _ = answer(&mut stream, &*text);
                        // That is the end also for the handle that is kept of it.
                        let _ = stream.shutdown(Shutdown::Both);
                        drop(place);
                    };
                    if thread::Builder::new().name("scrape".into()).spawn(answer).is_err() {
                        askers.turn_away_last();
                    }
                }
                // The process is short of something.
                Err(_) => thread::sleep(PATIENCE),
            }
        }
    };
    thread::Builder::new().name("metrics".into()).spawn(serve).map(drop)
}

/// Those who ask and are not answered yet, the oldest first.
#[derive(Default)]
struct Askers(VecDeque<(TcpStream, Weak<()>)>);

impl Askers {
    /// Gives one more a place for as long as the value lives. Where there are too many, the oldest goes: it is silent, or takes nothing,
    /// for an answer takes no time.
    fn enter(&mut self, stream: &TcpStream) -> Option<Arc<()>> {
        self.0.retain(|(_, place)| place.strong_count() > 0);
        if self.0.len() >= ASKERS_MAX {
            let (oldest, _) = self.0.pop_front()?;
            let _ = oldest.shutdown(Shutdown::Both);
        }
        let place = Arc::new(());
        self.0.push_back((stream.try_clone().ok()?, Arc::downgrade(&place)));
        Some(place)
    }

    /// Ends the connection that has come last: nobody can answer it.
    fn turn_away_last(&mut self) {
        if let Some((last, _)) = self.0.pop_back() {
            let _ = last.shutdown(Shutdown::Both);
        }
    }
}

fn answer(stream: &mut TcpStream, text: &dyn Fn() -> String) -> io::Result<()> {
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
        let end = "\nsanwire_rdma_kept_out_bytes_total 0\n# EOF\n";
        assert!(watched.text().ends_with(end), "what its log names: {}", watched.text());
    }

    fn try_to_ask(at: SocketAddr, request: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(at)?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Asks again while there is no answer: who was halted has asked too late.
    fn ask(at: SocketAddr, request: &str) -> String {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match try_to_ask(at, request) {
                Ok(answer) if !answer.is_empty() => return answer,
                answer => assert!(Instant::now() < until, "{answer:?}"),
            }
        }
    }

    #[test]
    fn metrics_are_told_beside_those_who_say_nothing_or_too_much() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        serve_text(listener, || "x 1\n# EOF\n".to_owned()).unwrap();
        let _silent: Vec<_> = (0..2 * ASKERS_MAX).map(|_| TcpStream::connect(at).unwrap()).collect();
        let told = ask(at, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(told.starts_with("HTTP/1.1 200 OK\r\n") && told.ends_with("\r\n\r\nx 1\n# EOF\n"), "{told}");
        assert!(ask(at, "GET /secret HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    }
}
