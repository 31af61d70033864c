//! The TCP connections of a shard that carry VISA, each a path of its own.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use sanwire_core::quota::{Account, Usage, VISA_NEWCOMERS};
use sanwire_core::{Instant, LinkId, NexusId, Path, Peer, SessionEnd};
use sanwire_visa::Server;
use sanwire_visa::framing::Deframer;

use crate::front::{Admission, FrontEvent, StreamId};

/// How long a connection may be there before it carries one of VISA: its client has shown nothing.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// A connection that may not carry one of VISA yet.
struct Newcomer {
    stream: StreamId,
    path: Path,
    until: Instant,
}

struct Connection {
    path: Path,
    admission: Admission,
    deframer: Deframer,
}

/// All of them.
pub(super) struct Streams {
    /// The link that they are, behind those of the ports.
    link: LinkId,
    connections: BTreeMap<StreamId, Connection>,
    by_path: BTreeMap<Path, StreamId>,
    by_nexus: BTreeMap<NexusId, StreamId>,
    /// In the order in which they came.
    newcomers: VecDeque<Newcomer>,
    of_newcomers: Account,
    events: VecDeque<FrontEvent>,
}

impl Streams {
    pub(super) fn new(link: LinkId) -> Self {
        let (connections, by_path, by_nexus, newcomers, events) = Default::default();
        Streams { link, connections, by_path, by_nexus, newcomers, of_newcomers: Account::new(&VISA_NEWCOMERS), events }
    }

    pub(super) fn poll_event(&mut self) -> Option<FrontEvent> {
        self.events.pop_front()
    }

    pub(super) fn events_waiting(&self) -> usize {
        self.events.len()
    }

    /// The connection to there.
    pub(super) fn of(&self, path: Path) -> Option<StreamId> {
        self.by_path.get(&path).copied()
    }

    /// Where a connection leads.
    pub(super) fn path(&self, stream: StreamId) -> Option<Path> {
        self.connections.get(&stream).map(|connection| connection.path)
    }

    /// A connection comes, from which this was received already. One from where another one comes that is there is closed: nothing would
    /// tell what goes to it from what goes to that.
    pub(super) fn add(
        &mut self,
        stream: StreamId,
        (peer, admission): (SocketAddr, Admission),
        bytes: &[u8],
        (server, now): (&mut Server, Instant),
    ) {
        let path = Path { link: self.link, peer: Peer::Udp(peer) };
        if self.by_path.contains_key(&path) {
            tracing::debug!("{path}: there is a connection from there by another address of this server");
            self.events.push_back(FrontEvent::CloseStream { stream, is_at_once: true });
            return self.free(admission);
        }
        self.make_room(path, server, now);
        let mut deframer = Deframer::default();
        let space = deframer.space();
        let count = bytes.len().min(space.len());
        space[..count].copy_from_slice(&bytes[..count]);
        deframer.filled(count);
        self.by_path.insert(path, stream);
        self.by_nexus.insert(admission.nexus, stream);
        self.connections.insert(stream, Connection { path, admission, deframer });
        self.newcomers.push_back(Newcomer { stream, path, until: now + HANDSHAKE_MAX });
    }

    /// Of too many that have shown nothing, the oldest one of the network that has the most gives way to one that comes.
    fn make_room(&mut self, path: Path, server: &mut Server, now: Instant) {
        let connections = &self.connections;
        self.newcomers.retain(|one| connections.contains_key(&one.stream) && !server.has_connection_at(one.path));
        if self.of_newcomers.admits(self.newcomers.len() as u64, 1) {
            return;
        }
        // The one that comes counts, too.
        let mut counts = BTreeMap::from([(path.peer.source(), 1)]);
        for newcomer in &self.newcomers {
            *counts.entry(newcomer.path.peer.source()).or_default() += 1;
        }
        let count = |one: &Newcomer| counts.get(&one.path.peer.source()).copied().unwrap_or(0);
        let most = self.newcomers.iter().map(count).max();
        let oldest = self.newcomers.iter().find(|one| Some(count(one)) == most).map(|one| one.stream);
        oldest.into_iter().for_each(|stream| self.cut(stream, server, now));
    }

    /// How the quota for those that have shown nothing is used.
    pub(super) fn usage(&self) -> Usage {
        self.of_newcomers.usage()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.newcomers.front().map(|newcomer| newcomer.until)
    }

    /// Closes those that have had their time, and still carry no connection of VISA.
    pub(super) fn handle_timeout(&mut self, server: &mut Server, now: Instant) {
        while let Some(Newcomer { stream, path, .. }) = self.newcomers.pop_front_if(|one| one.until <= now) {
            if !server.has_connection_at(path) {
                self.cut(stream, server, now);
            }
        }
    }

    /// The server ends: nobody has to be told so who has no connection of VISA.
    pub(super) fn shut_down(&mut self, server: &mut Server, now: Instant) {
        self.newcomers.iter_mut().for_each(|newcomer| newcomer.until = now);
        self.handle_timeout(server, now);
    }

    /// A connection is gone; where it led.
    pub(super) fn remove(&mut self, stream: StreamId) -> Option<Path> {
        let Connection { path, admission, .. } = self.connections.remove(&stream)?;
        self.by_path.remove(&path);
        self.by_nexus.remove(&admission.nexus);
        self.free(admission);
        Some(path)
    }

    /// The place of a connection in the registry is free.
    fn free(&mut self, admission: Admission) {
        let (nexus, session) = (admission.nexus, Some(admission.session));
        self.events.push_back(FrontEvent::NexusClosed { nexus, session, is_for_good: true, end: SessionEnd::Closed });
    }

    /// Closes a connection at once.
    pub(super) fn cut(&mut self, stream: StreamId, server: &mut Server, now: Instant) {
        if let Some(path) = self.remove(stream) {
            self.events.push_back(FrontEvent::CloseStream { stream, is_at_once: true });
            server.lost(path, now);
        }
    }

    /// The same, of the one that was admitted so.
    pub(super) fn cut_admitted(&mut self, nexus: NexusId, server: &mut Server, now: Instant) {
        if let Some(stream) = self.by_nexus.get(&nexus).copied() {
            self.cut(stream, server, now);
        }
    }

    /// Where the next bytes go; nowhere while those before wait for memory.
    pub(super) fn space(&mut self, stream: StreamId, server: &Server) -> &mut [u8] {
        match self.connections.get_mut(&stream) {
            Some(connection) if !server.is_starved_at(connection.path) => connection.deframer.space(),
            _ => &mut [],
        }
    }

    pub(super) fn filled(&mut self, stream: StreamId, count: usize) {
        if let Some(connection) = self.connections.get_mut(&stream) {
            connection.deframer.filled(count);
        }
    }

    /// Gives the server what has come whole, as far as it takes it.
    pub(super) fn take_input(&mut self, stream: StreamId, server: &mut Server, now: Instant) {
        let Some(Connection { path, deframer, .. }) = self.connections.get_mut(&stream) else { return };
        let path = *path;
        while !server.is_starved_at(path) {
            match deframer.poll() {
                Ok(Some(packet)) => server.handle_input(path, packet, now),
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!("{path}: {error}");
                    return self.cut(stream, server, now);
                }
            }
        }
    }
}
