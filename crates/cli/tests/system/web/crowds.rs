//! Crowds before the sockets of a real server: what they hold is bounded, and nobody else waits for them.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::num::NonZero;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::exchange;
use crate::harness::{AUTHORITY, Initiator, Scratch, Server, cpu_time, is_installed, port, run, skip, wait_until};
use crate::manage::ctl_ok;

const TIMEOUT: Duration = Duration::from_secs(60);

/// So long nobody waits who is served beside a crowd. A busy machine takes its time, too; what is to be found here waits for much longer.
const SOON: Duration = Duration::from_secs(60);

/// Who comes from so many addresses of this host counts as so many networks.
const NETWORKS: u8 = 16;

/// A server with its API.
struct Api {
    server: Server,
    scratch: Scratch,
    http: u16,
    /// On addresses that other hosts reach, so by TLS.
    https: u16,
    iscsi: u16,
}

impl Api {
    fn start() -> Api {
        let (scratch, http, https, iscsi) = (Scratch::new(), port(), port(), port());
        let options = [
            "--http".to_owned(),
            format!("127.0.0.1:{http}"),
            "--http".to_owned(),
            format!("0.0.0.0:{https}"),
            "--http".to_owned(),
            format!("unix:{}", scratch.text("http.sock")),
            "--control".to_owned(),
            scratch.text("control.sock"),
        ];
        let server = Server::start_on(&scratch, &[&format!("iscsi:127.0.0.1:{iscsi}")], &["disk=ram:8M"], &options);
        Api { server, scratch, http, https, iscsi }
    }

    /// A connection from one of the networks.
    fn from(&self, network: u8) -> TcpStream {
        self.to_port(self.http, network)
    }

    fn to_port(&self, port: u16, network: u8) -> TcpStream {
        let own = SocketAddrV4::new(Ipv4Addr::new(127, 0, 1, network), 0);
        let descriptor = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&descriptor, &own).expect("an address of this host");
        connect(&descriptor, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).expect("a connection");
        let stream = TcpStream::from(descriptor);
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time");
        stream
    }

    fn as_root(&self, method: &str, path: &str, body: &str) -> crate::harness::Reply {
        let stream = UnixStream::connect(self.scratch.path("http.sock")).expect("the socket");
        exchange(stream, method, path, "", body)
    }

    /// The header of a new token.
    fn token(&self, name: &str) -> String {
        let body = format!(r#"{{"name":"{name}","role":"viewer"}}"#);
        let made = self.as_root("POST", "/api/v1/tokens", &body).json();
        format!("Authorization: Bearer {}\r\n", made["token"].as_str().expect("a token"))
    }

    /// Whether one more who comes by TCP is taken in: there is a limit for all networks together.
    fn has_room(&self) -> bool {
        let mut stream = self.from(200);
        let (mut told, text) =
            (String::new(), b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        // One that is shown out is reset, or sees the end.
        stream.write_all(text).and_then(|()| stream.read_to_string(&mut told)).is_ok()
            && told.starts_with("HTTP/1.1 200")
    }

    /// Everybody else is served soon: by each of its sockets.
    #[track_caller]
    fn serves_others(&self, token: &str) {
        let served = |what: &str, serve: &dyn Fn()| {
            let begun = Instant::now();
            serve();
            assert!(begun.elapsed() < SOON, "{what} has waited for {:?}", begun.elapsed());
        };
        served("who asks by TCP", &|| {
            assert_eq!(exchange(self.from(200), "GET", "/api/v1/volumes", token, "").0, 200);
        });
        served("who asks by TLS", &|| {
            if !is_installed("curl") {
                return;
            }
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--insecure", "--interface", "127.0.1.200"]);
            curl.arg(format!("https://localhost:{}/healthz", self.https));
            let told = run(curl, TIMEOUT);
            assert_eq!(told.stdout, "ok\n", "{}", told.stderr);
        });
        served("root by HTTP", &|| assert_eq!(self.as_root("GET", "/api/v1/volumes", "").0, 200));
        served("root by ctl", &|| assert!(ctl_ok(&self.scratch.path("control.sock"), &["status"]).contains("disk")));
        served("an initiator", &|| {
            let address = format!("127.0.0.1:{}", self.iscsi);
            let mut initiator =
                Initiator::log_in(&address, "iqn.2026-11.org.example:host", &format!("{AUTHORITY}:disk"), 1)
                    .expect("a session");
            initiator.good(&[0; 6], &[], 0);
        });
    }

    fn memory_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.pid())).expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }
}

/// As many descriptors as this process may have.
fn raise_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("more descriptors");
}

#[test]
fn of_a_thousand_listeners_by_tcp_some_are_told_and_nobody_waits_for_them() {
    const WANTED: usize = 1000;
    const TOLD: usize = 64;
    raise_descriptors();
    let mut api = Api::start();
    let tokens: Vec<String> = (0..8).map(|number| api.token(&format!("t{number}"))).collect();
    let before = api.memory_bytes();
    let (mut listeners, mut refused) = (Vec::new(), 0);
    for (number, network) in (0..WANTED).zip((1..=NETWORKS).cycle()) {
        let mut stream = api.from(network);
        let token = &tokens[number % tokens.len()];
        let text = format!("GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n{token}Connection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).expect("asked");
        let mut lines = BufReader::new(stream).lines().map(|line| line.expect("an answer"));
        match &*lines.next().expect("an answer") {
            "HTTP/1.1 200 OK" => listeners.push(lines),
            "HTTP/1.1 503 Service Unavailable" => {
                assert!(
                    lines.find(|line| line.starts_with('{')).is_some_and(|body| body.contains("listeners-too-many"))
                );
                refused += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!((listeners.len(), refused), (TOLD, WANTED - TOLD));
    // Those that were refused go, and others come who only connect.
    let idle: Vec<TcpStream> = (0..WANTED).zip((1..=NETWORKS).cycle()).map(|(_, network)| api.from(network)).collect();
    let grown = api.memory_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "they hold {grown} bytes");
    drop(idle);
    wait_until("the places of those who have gone are free", TIMEOUT, || api.has_room());
    api.serves_others(&tokens[0]);
    for (method, body) in [("PATCH", r#"{"protected":true}"#), ("DELETE", "")] {
        let answer = api.as_root(method, "/api/v1/volumes/disk", body);
        if answer.0 == 202 {
            // A busy machine takes so long that it is a job: that has to end well.
            let job = format!("/api/v1/jobs/{}", answer.json()["id"]);
            wait_until("the job is done", TIMEOUT, || api.as_root("GET", &job, "").json()["state"] == "done");
        } else {
            assert_eq!(answer.0, 200, "{method}: {}", answer.2);
        }
    }
    for mut listener in listeners {
        assert!(listener.any(|line| line == "event: volume-removed"), "it is not told");
    }
    assert!(api.server.stop().success());
}

/// The status of a log-in; none when the storm is over before there is one.
fn log_in(mut stream: TcpStream, body: &str, is_over: &AtomicBool) -> Option<u16> {
    let head =
        "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let text = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).expect("asked");
    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
    let (mut told, mut piece) = (Vec::new(), [0; 512]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => told.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
            Err(_) if is_over.load(Ordering::Relaxed) => return None,
            Err(_) => {}
        }
    }
    String::from_utf8_lossy(&told).split(' ').nth(1).and_then(|status| status.parse().ok())
}

#[test]
fn a_storm_of_log_ins_from_many_networks_leaves_processors_and_places_to_others() {
    let mut api = Api::start();
    let token = api.token("t");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for network in 1..=40 {
            let (api, is_over) = (&api, &is_over);
            scope.spawn(move || {
                // Each as somebody else: no quota of a user ends it.
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let body = format!(r#"{{"name":"u{network}-{number}","password":"a wrong one!"}}"#);
                    let told = log_in(api.from(network), &body, is_over);
                    assert!(matches!(told, None | Some(401 | 429 | 503)), "{told:?}");
                }
            });
        }
        let (begun, used) = (Instant::now(), cpu_time(api.server.pid()));
        while begun.elapsed() < Duration::from_secs(3) {
            api.serves_others(&token);
        }
        let (took, used) = (begun.elapsed(), cpu_time(api.server.pid()) - used);
        is_over.store(true, Ordering::Relaxed);
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        // With one there is none to be left.
        let most = took.mul_f64((processors.max(2) as f64 - 0.4).min(2.6));
        assert!(used < most, "{used:?} of {processors} processors in {took:?}");
    });
    assert!(api.server.stop().success());
}

/// What a client of TLS 1.3 begins with (RFC 8446 4.1.2): X25519, AES-128-GCM, and signatures that every server has.
fn client_hello() -> Vec<u8> {
    let with_length = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let extension = |number: u16, content: &[u8]| [&number.to_be_bytes()[..], &with_length(content)].concat();
    let share = [&[0, 0x1d][..], &with_length(&[9; 32])].concat();
    let extensions = [
        extension(10, &with_length(&[0, 0x1d])),
        extension(13, &with_length(&[4, 3, 8, 4, 4, 1])),
        extension(43, &[2, 3, 4]),
        extension(51, &with_length(&share)),
    ];
    let head = [&[3, 3][..], &[7; 32], &[0], &with_length(&[0x13, 1]), &[1, 0]].concat();
    let hello = [head, with_length(&extensions.concat())].concat();
    let message = [&[1, 0][..], &with_length(&hello)].concat();
    [&[0x16, 3, 1][..], &with_length(&message)].concat()
}

#[test]
fn nobody_waits_for_those_who_begin_to_speak_tls_and_stop() {
    let test = "nobody_waits_for_those_who_begin_to_speak_tls_and_stop";
    if !is_installed("curl") {
        return skip(test, "curl is not installed");
    }
    let mut api = Api::start();
    let token = api.token("t");
    let hello = client_hello();
    let begin = |network: u8, said: &[u8]| {
        let mut stream = api.to_port(api.https, network);
        // The oldest ones may have had to go.
        let _ = stream.write_all(said);
        stream
    };
    let mut answered = begin(1, &hello);
    let mut head = [0; 6];
    answered.read_exact(&mut head).expect("an answer");
    assert_eq!((head[0], head[5]), (0x16, 2), "a ServerHello, so the server has computed and waits for the rest");
    let parts = [&[][..], &hello[..hello.len() / 2], &hello];
    let networks = (1..=NETWORKS).cycle().take(64);
    let silent: Vec<_> = networks.flat_map(|network| parts.map(|part| begin(network, part))).collect();
    (0..4).for_each(|_| api.serves_others(&token));
    drop(silent);
    assert!(api.server.stop().success());
}

#[test]
fn nobody_waits_for_those_who_connect_and_are_silent() {
    let mut api = Api::start();
    let token = api.token("t");
    let (http, control) = (api.scratch.path("http.sock"), api.scratch.path("control.sock"));
    let iscsi = || TcpStream::connect((Ipv4Addr::LOCALHOST, api.iscsi)).expect("the portal");
    let mut silent: Vec<Box<dyn Write>> = Vec::new();
    for (number, network) in (0..64).zip((1..=NETWORKS).cycle()) {
        let unix = |path| UnixStream::connect(path).expect("a socket");
        let all: [Box<dyn Write>; 4] =
            [Box::new(api.from(network)), Box::new(unix(&http)), Box::new(unix(&control)), Box::new(iscsi())];
        let begun: [&[u8]; 4] = [b"POST /api/v1/se", b"GET / HTTP/1.1\r\nHost", b"{\"do\":", &[0x43, 0x87, 0, 0]];
        for (mut stream, begun) in all.into_iter().zip(begun) {
            // Every other one says nothing at all. The oldest ones may have had to go.
            if number % 2 == 0 {
                let _ = stream.write_all(begun);
            }
            silent.push(stream);
        }
    }
    (0..4).for_each(|_| api.serves_others(&token));
    drop(silent);
    assert!(api.server.stop().success());
}
