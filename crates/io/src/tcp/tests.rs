use std::os::fd::AsFd;
use std::time::Duration;

use sanwire_buffer::{Frame, Head};

use super::outgoing::QUEUE_PACKETS;
use super::*;
use crate::{Clock, Interest, Poller};

const TIMEOUT: Duration = Duration::from_secs(10);
const STREAM: u64 = 7;

fn loopback(address: &str) -> (Listener, SocketAddr) {
    let listener = Listener::open(address.parse().unwrap()).unwrap();
    let address = listener.local_address().unwrap();
    (listener, address)
}

/// Waits until the stream is ready for what it is watched for.
fn wait(poller: &mut Poller) -> Interest {
    let clock = Clock::new();
    let mut found = Interest::default();
    let ready = poller.wait(&[], &[], None, Some(clock.now() + TIMEOUT), &clock).unwrap();
    assert!(ready.streams, "nothing in {TIMEOUT:?}");
    poller
        .poll_streams(&mut |key, ready| {
            assert_eq!(key, STREAM);
            found = ready;
        })
        .unwrap();
    found
}

fn ready(fd: &impl AsFd, interest: Interest) -> Interest {
    let mut poller = Poller::new();
    poller.add_stream(fd, STREAM, interest).unwrap();
    wait(&mut poller)
}

/// Two ends of one connection: the one that asked, and the one that was accepted.
fn pair(address: &str) -> (Stream, Stream) {
    let (listener, address) = loopback(address);
    let client = Stream::connect(address).unwrap();
    assert!(ready(&client, Interest { readable: false, writable: true }).writable);
    assert!(client.is_connected().unwrap());
    ready(&listener, Interest::READABLE);
    let (server, peer) = listener.accept().unwrap().expect("a connection");
    assert_eq!(peer, client.local_address().unwrap());
    assert!(listener.accept().unwrap().is_none(), "one connection");
    (client, server)
}

fn packet(head: &[u8], payload: Option<Vec<u8>>) -> Packet {
    let mut bytes = Head::new();
    bytes.extend(head);
    Packet::new(bytes, payload.map(|payload| Frame::from(payload).freeze()))
}

fn bytes(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + seed * 7 + index / 251) as u8).collect()
}

#[test]
fn what_is_queued_arrives_in_order_though_the_socket_takes_it_in_parts() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (mut from, mut to) = pair(address);
        let mut expected = Vec::new();
        let mut packets = Vec::new();
        for number in 0..QUEUE_PACKETS {
            let head = bytes(number, 1 + number % 60);
            let payload = (number % 3 != 0).then(|| bytes(number + 1, 100_000 + number));
            expected.extend_from_slice(&head);
            expected.extend_from_slice(payload.as_deref().unwrap_or_default());
            packets.push(packet(&head, payload));
        }
        for packet in packets {
            from.queue(packet).expect("room");
        }
        assert!(from.queue(packet(b"one more", None)).is_err(), "a bound");
        assert_eq!(from.unsent_bytes(), expected.len());
        from.flush().unwrap();
        assert!(from.wants_write(), "{} bytes do not fit the socket's buffers", expected.len());
        assert!((1..expected.len()).contains(&from.unsent_bytes()));
        let (mut found, mut one, mut other) = (Vec::new(), vec![0; 70_001], vec![0; 333]);
        while found.len() < expected.len() {
            match to.receive([&mut one, &mut other]).unwrap() {
                Received::Bytes(count) => {
                    let first = count.min(one.len());
                    found.extend_from_slice(&one[..first]);
                    found.extend_from_slice(&other[..count - first]);
                }
                Received::Nothing => {
                    from.flush().unwrap();
                    if !from.wants_write() {
                        ready(&to, Interest::READABLE);
                    }
                }
                Received::End => panic!("the other end is there"),
            }
        }
        assert!(found == expected, "the same bytes over {address}");
        assert_eq!([to.received_bytes(), from.sent_bytes()], [expected.len() as u64; 2]);
        assert!(!from.wants_write() && from.unsent_bytes() == 0);
        assert_eq!(to.receive([&mut one, &mut other]).unwrap(), Received::Nothing);
        drop(from);
        ready(&to, Interest::READABLE);
        assert_eq!(to.receive([&mut [], &mut other]).unwrap(), Received::End);
    }
}

#[test]
fn without_room_nothing_is_received() {
    let (mut from, mut to) = pair("127.0.0.1:0");
    from.queue(packet(b"hello", None)).expect("room");
    from.flush().unwrap();
    ready(&to, Interest::READABLE);
    assert_eq!(to.receive([&mut [], &mut []]).unwrap(), Received::Nothing);
    let mut place = [0; 8];
    assert_eq!(to.receive([&mut [], &mut place]).unwrap(), Received::Bytes(5));
    assert_eq!(&place[..5], b"hello");
}

#[test]
fn a_refused_connection_says_so() {
    let (listener, address) = loopback("127.0.0.1:0");
    drop(listener);
    let client = Stream::connect(address);
    // The loopback may refuse at once or a moment later.
    let kind = client.and_then(|client| {
        ready(&client, Interest { readable: false, writable: true });
        client.is_connected()
    });
    assert_eq!(kind.expect_err("nobody listens").kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn writing_to_who_is_gone_is_an_error_and_not_the_end_of_the_process() {
    let (mut from, to) = pair("127.0.0.1:0");
    drop(to);
    ready(&from, Interest::READABLE);
    let failed = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        from.queue(packet(b"hello", None)).is_err() || from.flush().is_err()
    });
    assert!(failed);
}

#[test]
fn what_an_aborted_connection_has_not_delivered_never_arrives() {
    for is_aborted in [false, true] {
        let (mut from, mut to) = pair("127.0.0.1:0");
        while from.queue(packet(b"", Some(vec![7; 100_000]))).is_ok() {}
        from.flush().unwrap();
        assert!(from.wants_write(), "more than the kernel takes");
        let sent = from.sent_bytes();
        if is_aborted {
            from.abort();
        } else {
            drop(from);
        }
        let (mut place, mut found) = (vec![0; 1 << 20], 0);
        loop {
            match to.receive([&mut [], &mut place]) {
                Ok(Received::Bytes(count)) => found += count as u64,
                Ok(Received::Nothing) => drop(ready(&to, Interest::READABLE)),
                Ok(Received::End) | Err(_) => break,
            }
        }
        assert_eq!(found < sent, is_aborted, "{found} of {sent}");
    }
}

/// A unix socket at which somebody listens, in a directory that goes with the test.
struct Local {
    directory: std::path::PathBuf,
    listener: std::os::unix::net::UnixListener,
}

impl Local {
    fn new(name: &str) -> Local {
        let directory = std::env::temp_dir().join(format!("sanwire-io-{}-{name}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(directory.join("socket")).unwrap();
        Local { directory, listener }
    }

    fn connect(&self) -> io::Result<Stream> {
        Stream::connect_local(&self.directory.join("socket"))
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn a_unix_socket_at_which_nobody_accepts_keeps_nobody_waiting() {
    let local = Local::new("backlog");
    // SAFETY: no memory is involved; the second call only changes how many may wait.
    sys::check(unsafe { libc::listen(local.listener.as_raw_fd(), 0) }).unwrap();
    let waiting: Vec<_> = std::iter::from_fn(|| local.connect().ok()).take(10).collect();
    assert!((1..10).contains(&waiting.len()), "{}", waiting.len());
    assert_eq!(local.connect().unwrap_err().kind(), ErrorKind::WouldBlock);
    let too_long = Stream::connect_local(Path::new(&"a".repeat(200))).unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::InvalidInput);
}

#[test]
fn it_is_known_whether_the_process_behind_a_unix_socket_lives() {
    let local = Local::new("peer");
    let client = local.connect().unwrap();
    // An older kernel does not tell.
    if let Some(process) = client.peer_process() {
        assert!(!process.has_ended(), "it is this one");
    }
}

#[test]
fn a_port_is_free_again_at_once() {
    let (listener, address) = loopback("127.0.0.1:0");
    let client = Stream::connect(address).unwrap();
    ready(&listener, Interest::READABLE);
    let accepted = listener.accept().unwrap();
    drop((accepted, listener));
    drop(client);
    Listener::open(address).expect("connections that linger do not hold the port");
}

#[test]
fn accepted_connections_have_the_options_of_the_listener() {
    let (client, server) = pair("127.0.0.1:0");
    for stream in [&client, &server] {
        for (level, name) in [(libc::IPPROTO_TCP, libc::TCP_NODELAY), (libc::SOL_SOCKET, libc::SO_KEEPALIVE)] {
            assert_eq!(sys::get_option_int(stream.as_fd(), level, name).unwrap(), 1);
        }
        let timeout = sys::get_option_int(stream.as_fd(), libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT);
        assert!(timeout.unwrap() > 0);
    }
}

#[test]
fn what_a_stream_is_watched_for_can_change() {
    let (mut from, to) = pair("127.0.0.1:0");
    let mut poller = Poller::new();
    poller.add_stream(&to, STREAM, Interest::READABLE).unwrap();
    assert_eq!(poller.poll_streams(&mut |_, _| panic!("nothing is there")).unwrap(), 0);
    poller.change_stream(&to, STREAM, Interest { readable: true, writable: true }).unwrap();
    assert_eq!(wait(&mut poller), Interest { readable: false, writable: true });
    from.queue(packet(b"hello", None)).expect("room");
    from.flush().unwrap();
    poller.change_stream(&to, STREAM, Interest::READABLE).unwrap();
    assert_eq!(wait(&mut poller), Interest::READABLE);
    assert_eq!(wait(&mut poller), Interest::READABLE, "told again while it is so");
    poller.change_stream(&to, STREAM, Interest::default()).unwrap();
    assert_eq!(poller.poll_streams(&mut |_, _| panic!("not asked")).unwrap(), 0);
    poller.change_stream(&to, STREAM, Interest::READABLE).unwrap();
    poller.remove_stream(&to).unwrap();
    assert_eq!(poller.poll_streams(&mut |_, _| panic!("not asked")).unwrap(), 0);
    let error = Poller::new().change_stream(&pair("127.0.0.1:0").0, STREAM, Interest::READABLE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_connection_knows_how_long_its_segments_are() {
    let (client, server) = pair("127.0.0.1:0");
    for end in [&client, &server] {
        let bytes = end.segment_bytes().unwrap();
        // The loopback's are longer than those of any Ethernet.
        assert!((9001..=65_535).contains(&bytes), "{bytes}");
    }
}

/// What is more than the cache holds is not gathered before it is sent.
#[test]
fn no_more_is_wanted_in_one_call_than_fits_into_the_cache() {
    let (mut from, mut to) = pair("127.0.0.1:0");
    let (mut count, mut sink) = (0, vec![0; 1 << 20]);
    while from.wants_more() {
        from.queue(packet(b"", Some(bytes(1, 100_000)))).expect("room");
        count += 1;
    }
    assert_eq!((count, from.has_room()), (3, true));
    while from.wants_write() {
        from.flush().unwrap();
        to.receive([&mut sink, &mut []]).unwrap();
    }
    assert_eq!((from.unsent_bytes(), from.wants_more()), (0, true));
    for _ in 0..QUEUE_PACKETS {
        assert!(from.wants_more());
        from.queue(packet(b"few", None)).expect("room");
    }
    assert!(!from.wants_more());
}
