//! The TCP connections of a shard that carry VISA, each a path of its own.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use sanwire_core::{Instant, LinkId, NexusId, Path, Peer, SessionEnd};
use sanwire_visa::Server;
use sanwire_visa::framing::Deframer;

use crate::front::{Admission, FrontEvent, StreamId};

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
    events: VecDeque<FrontEvent>,
}

impl Streams {
    pub(super) fn new(link: LinkId) -> Self {
        let (connections, by_path, by_nexus, events) = Default::default();
        Streams { link, connections, by_path, by_nexus, events }
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
    pub(super) fn add(&mut self, stream: StreamId, (peer, admission): (SocketAddr, Admission), bytes: &[u8]) {
        let path = Path { link: self.link, peer: Peer::Udp(peer) };
        if self.by_path.contains_key(&path) {
            tracing::debug!("{path}: there is a connection from there by another address of this server");
            self.events.push_back(FrontEvent::CloseStream { stream, is_at_once: true });
            return self.free(admission);
        }
        let mut deframer = Deframer::default();
        let space = deframer.space();
        let count = bytes.len().min(space.len());
        space[..count].copy_from_slice(&bytes[..count]);
        deframer.filled(count);
        self.by_path.insert(path, stream);
        self.by_nexus.insert(admission.nexus, stream);
        self.connections.insert(stream, Connection { path, admission, deframer });
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
