//! TCP connections that carry VISA: one to each place at which the server is sought, then the one by which it was found.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Path, Peer};
use sanwire_io::tcp::{Received, Stream};
use sanwire_io::{Clock, Interest, Poller, Waker};
use sanwire_visa::Client;
use sanwire_visa::framing::{Deframer, framed};

/// Runs of bytes taken from a connection before the driver looks at anything else.
const RECEIVE_BUDGET: usize = 8;

/// A place that cannot be connected to is left alone for this long.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// A connection that has brought no server for this long is made anew: where a cable was out, TCP itself waits much longer.
const SOCKET_AGE_MAX: Duration = Duration::from_secs(3);

struct Socket {
    stream: Stream,
    key: u64,
    is_connected: bool,
    deframer: Deframer,
    watched: Interest,
    begun_at: Instant,
}

/// All of them.
#[derive(Default)]
pub(super) struct Streams {
    sockets: BTreeMap<Path, Socket>,
    poller: Poller,
    /// When a place may be connected to again.
    again_at: BTreeMap<Path, Instant>,
    next_key: u64,
    /// Why the last connection that has failed did.
    failed: Option<String>,
}

impl Streams {
    /// Ends connections that have led nowhere.
    pub(super) fn tend(&mut self, now: Instant) {
        self.sockets.retain(|_, socket| now < socket.begun_at + SOCKET_AGE_MAX);
    }

    /// Why there is no connection, as far as TCP knows.
    pub(super) fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    pub(super) fn keep_only(&mut self, path: Path) {
        self.failed = None;
        self.sockets.retain(|other, _| *other == path);
        self.again_at.clear();
    }

    pub(super) fn close_all(&mut self) {
        self.sockets.clear();
    }

    pub(super) fn has_room(&self) -> bool {
        self.sockets.values().all(|socket| socket.stream.has_room())
    }

    /// A packet goes out; to a place without a connection one is made.
    pub(super) fn queue(&mut self, path: Path, packet: Packet, now: Instant) {
        if !self.sockets.contains_key(&path) && !self.connect(path, now) {
            return;
        }
        if let Some(socket) = self.sockets.get_mut(&path) {
            // What there is no room for is asked again, like what a network loses.
            drop(socket.stream.queue(framed(packet)));
        }
    }

    fn connect(&mut self, path: Path, now: Instant) -> bool {
        let Peer::Udp(address) = path.peer else { return false };
        if self.again_at.get(&path).is_some_and(|at| now < *at) {
            return false;
        }
        self.again_at.insert(path, now + AGAIN_AFTER);
        let key = self.next_key;
        let watched = Interest { readable: true, writable: true };
        let opened =
            Stream::connect(address).and_then(|stream| self.poller.add_stream(&stream, key, watched).map(|()| stream));
        match opened {
            Ok(stream) => {
                self.next_key += 1;
                let deframer = Deframer::default();
                let socket = Socket { stream, key, is_connected: false, deframer, watched, begun_at: now };
                self.sockets.insert(path, socket);
                true
            }
            Err(error) => {
                self.failed = Some(why(path, &error));
                false
            }
        }
    }

    pub(super) fn receive(&mut self, protocol: &mut Client, now: Instant) -> usize {
        let paths: Vec<Path> = self.sockets.keys().copied().collect();
        let mut received = 0;
        for path in paths {
            let Some(socket) = self.sockets.get_mut(&path) else { continue };
            match receive_from(socket, path, protocol, now) {
                Ok(count) => received += count,
                Err(error) => {
                    self.lose(path, &error, protocol, now);
                    received += 1;
                }
            }
        }
        received
    }

    fn lose(&mut self, path: Path, error: &io::Error, protocol: &mut Client, now: Instant) {
        let why = why(path, error);
        tracing::debug!("a VISA connection is lost: {why}");
        self.failed = Some(why);
        self.sockets.remove(&path);
        // While the server is sought, the next packet for this place makes another one.
        protocol.lost(path, now);
    }

    pub(super) fn flush(&mut self, protocol: &mut Client, now: Instant) -> usize {
        let flush = |(path, socket): (&Path, &mut Socket)| {
            let result = if socket.is_connected { socket.stream.flush() } else { Ok(()) };
            result.err().map(|error| (*path, error))
        };
        let lost: Vec<(Path, io::Error)> = self.sockets.iter_mut().filter_map(flush).collect();
        lost.iter().for_each(|(path, error)| self.lose(*path, error, protocol, now));
        lost.len()
    }

    pub(super) fn wait(&mut self, waker: &Waker, deadline: Option<Instant>) -> io::Result<()> {
        for socket in self.sockets.values_mut() {
            let writable = !socket.is_connected || socket.stream.wants_write();
            let wanted = Interest { readable: socket.is_connected, writable };
            if wanted != socket.watched {
                self.poller.change_stream(&socket.stream, socket.key, wanted)?;
                socket.watched = wanted;
            }
        }
        self.poller.wait(&[], &[], Some(waker), deadline, &Clock::new()).map(drop)
    }
}

/// Receives a bounded part of what the socket has. Gives the number of reads.
fn receive_from(socket: &mut Socket, path: Path, protocol: &mut Client, now: Instant) -> io::Result<usize> {
    if !socket.is_connected {
        socket.is_connected = socket.stream.is_connected()?;
        return Ok(usize::from(socket.is_connected));
    }
    for count in 0..RECEIVE_BUDGET {
        match socket.stream.receive([socket.deframer.space(), &mut []])? {
            Received::Nothing => return Ok(count),
            Received::End => return Err(io::ErrorKind::UnexpectedEof.into()),
            Received::Bytes(bytes) => socket.deframer.filled(bytes),
        }
        while let Some(packet) = socket.deframer.poll().map_err(io::Error::other)? {
            protocol.handle_input(path, packet, now);
        }
    }
    Ok(RECEIVE_BUDGET)
}

/// Why TCP has failed there, for people.
fn why(path: Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            format!(
                "{} closes the connection: it speaks no VISA, does not serve this client, or has no room",
                path.peer
            )
        }
        _ => format!("{}: {error}", path.peer),
    }
}
