//! From an address to a connection: the places at which the server may be, one after the other, and what became of its process.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use sanwire_core::Instant;
use sanwire_io::Interest;
use sanwire_io::tcp::{PeerProcess, Stream};
use sanwire_nbd::ConnectionId;

use super::super::address::Place;
use super::Driver;

/// How long one place may take to answer while there are others.
const PLACE_TIMEOUT: Duration = Duration::from_secs(1);

/// One connection, or the attempt to make one.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) stream: Stream,
    pub(super) is_connected: bool,
    pub(super) interest: Interest,
    pub(super) place: Place,
    /// Where else the server may be.
    others: VecDeque<Place>,
    /// When to try there.
    pub(super) until: Option<Instant>,
    pub(super) process: Option<PeerProcess>,
}

impl Socket {
    pub(super) fn look_whether_connected(&mut self) -> io::Result<bool> {
        self.is_connected = match self.place {
            Place::Path(_) => true,
            Place::Socket(_) => self.stream.is_connected()?,
        };
        if self.is_connected {
            self.until = None;
        }
        Ok(self.is_connected)
    }
}

/// Where the server may be.
#[derive(Debug)]
pub(in super::super) struct Ways {
    pub(super) places: VecDeque<Place>,
    /// It was there a moment ago.
    pub(super) is_known: bool,
}

impl Ways {
    /// It is sought there first; where there is nothing, its name is to be asked for.
    pub(in super::super) fn to(places: VecDeque<Place>) -> Ways {
        let is_known = !places.is_empty();
        Ways { places, is_known }
    }

    /// It is there.
    pub(super) fn found(&mut self, place: Place) {
        self.places = [place].into();
        self.is_known = true;
    }
}

/// The processes that were at the other end of connections that are lost.
#[derive(Debug)]
pub(super) struct Departed {
    linger: Duration,
    processes: Vec<Option<PeerProcess>>,
    /// Until then one of which nobody knows whether it has ended may be at work.
    unsure_until: Option<Instant>,
}

impl Departed {
    pub(super) fn new(linger: Duration) -> Self {
        Departed { linger, processes: Vec::new(), unsure_until: None }
    }

    pub(super) fn add(&mut self, process: Option<PeerProcess>) {
        self.processes.push(process);
    }

    /// Whether nothing of what lost connections carried is done any more.
    pub(super) fn have_ended(&mut self, now: Instant) -> bool {
        let has_ended = |process: &Option<PeerProcess>| process.as_ref().is_some_and(PeerProcess::has_ended);
        let is_known = self.processes.iter().all(has_ended);
        let has_any = !self.processes.is_empty();
        self.processes.clear();
        if !is_known {
            self.unsure_until = Some(now + self.linger);
        }
        has_any && self.unsure_until.is_none_or(|until| until <= now)
    }
}

impl Driver {
    pub(super) fn connect(&mut self, id: ConnectionId) {
        if self.departed.have_ended(self.clock.now()) {
            self.client.servers_have_ended();
        }
        if !self.ways.is_known {
            match self.address.places() {
                Ok(places) => self.ways.places = places,
                // A name that was known before, where no name server answers now.
                Err(_) if !self.ways.places.is_empty() => {}
                Err(error) => return self.client.lost(id, &error.to_string(), self.clock.now()),
            }
        }
        let places = self.ways.places.clone();
        self.try_places(id, places, String::new());
    }

    /// Begins to connect to the first of these places that takes a connection, or seems to; `reason`: why others do not.
    fn try_places(&mut self, id: ConnectionId, mut others: VecDeque<Place>, mut reason: String) {
        let now = self.clock.now();
        while let Some(place) = others.pop_front() {
            let interest = Interest { readable: true, writable: true };
            let begun = place.connect().and_then(|stream| {
                self.poller.add_stream(&stream, id.0, interest)?;
                Ok(stream)
            });
            match begun {
                Ok(stream) => {
                    let until = (!others.is_empty()).then(|| now + PLACE_TIMEOUT);
                    let process = stream.peer_process();
                    let socket = Socket { stream, is_connected: false, interest, place, others, until, process };
                    self.sockets.insert(id, socket);
                    return;
                }
                Err(error) => add_reason(&mut reason, &place, &error),
            }
        }
        self.client.lost(id, &reason, now);
    }

    pub(super) fn is_on_its_way(&self, id: ConnectionId) -> bool {
        self.sockets.get(&id).is_some_and(|socket| !socket.is_connected)
    }

    /// The server is not at this place: the next one is tried.
    pub(super) fn go_elsewhere(&mut self, id: ConnectionId, error: &io::Error) {
        let Some(Socket { place, others, .. }) = self.sockets.remove(&id) else { return };
        let mut reason = String::new();
        add_reason(&mut reason, &place, error);
        self.try_places(id, others, reason);
    }

    /// Tries the next place where one does not answer.
    pub(super) fn give_up_places(&mut self, now: Instant) {
        let is_late = |socket: &Socket| socket.until.is_some_and(|until| until <= now);
        let late: Vec<_> = self.sockets.iter().filter(|(_, socket)| is_late(socket)).map(|(id, _)| *id).collect();
        let timed_out = io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
        late.into_iter().for_each(|id| self.go_elsewhere(id, &timed_out));
    }
}

/// What people read when none of the places will do.
fn add_reason(reason: &mut String, place: &Place, error: &io::Error) {
    use std::fmt::Write as _;
    if !reason.is_empty() {
        reason.push_str("; ");
    }
    let _ = match place {
        Place::Path(_) => write!(reason, "{error}"),
        Place::Socket(address) => write!(reason, "{address}: {error}"),
    };
}
