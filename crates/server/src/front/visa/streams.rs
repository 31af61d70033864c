//! The TCP connections of a shard that carry VISA, each a path of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, LinkId, NexusId, Path, Peer, SessionEnd};
use sanwire_visa::Server;
use sanwire_visa::framing::{Deframer, framed};

use crate::front::{Admission, FrontEvent, StreamId};

struct Connection {
    path: Path,
    admission: Admission,
    deframer: Deframer,
    out: VecDeque<Packet>,
}

/// All of them.
pub(super) struct Streams {
    /// The link that they are, behind those of the ports.
    link: LinkId,
    connections: BTreeMap<StreamId, Connection>,
    by_path: BTreeMap<Path, StreamId>,
    /// Those that have something to send, or room for input again.
    ready: VecDeque<StreamId>,
    /// Those whose input waits for memory.
    blocked: BTreeSet<StreamId>,
    /// What goes to ports, and has come out while streams were looked after.
    datagrams: VecDeque<(Path, Packet)>,
    events: VecDeque<FrontEvent>,
}

impl Streams {
    pub(super) fn new(link: LinkId) -> Self {
        Streams {
            link,
            connections: BTreeMap::new(),
            by_path: BTreeMap::new(),
            ready: VecDeque::new(),
            blocked: BTreeSet::new(),
            datagrams: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<FrontEvent> {
        self.events.pop_front()
    }

    pub(super) fn events_waiting(&self) -> usize {
        self.events.len()
    }

    /// Whether packets for there go by a connection, or went.
    pub(super) fn is_stream(&self, path: Path) -> bool {
        path.link == self.link
    }

    /// The connection to there.
    pub(super) fn of(&self, path: Path) -> Option<StreamId> {
        self.by_path.get(&path).copied()
    }

    /// The connection that was admitted so.
    pub(super) fn admitted(&self, nexus: NexusId) -> Option<StreamId> {
        let mut own = self.connections.iter().filter(|(_, connection)| connection.admission.nexus == nexus);
        own.next().map(|(stream, _)| *stream)
    }

    /// A connection comes, from which this was received already.
    pub(super) fn add(&mut self, stream: StreamId, (peer, admission): (SocketAddr, Admission), bytes: &[u8]) {
        let path = Path { link: self.link, peer: Peer::Udp(peer) };
        let mut deframer = Deframer::default();
        let space = deframer.space();
        let count = bytes.len().min(space.len());
        space[..count].copy_from_slice(&bytes[..count]);
        deframer.filled(count);
        self.by_path.insert(path, stream);
        self.connections.insert(stream, Connection { path, admission, deframer, out: VecDeque::new() });
    }

    /// A connection is gone; where it led.
    pub(super) fn remove(&mut self, stream: StreamId) -> Option<Path> {
        let Connection { path, admission, .. } = self.connections.remove(&stream)?;
        self.by_path.retain(|_, other| *other != stream);
        self.blocked.remove(&stream);
        // Its place in the registry is free.
        let (nexus, session) = (admission.nexus, Some(admission.session));
        self.events.push_back(FrontEvent::NexusClosed { nexus, session, is_for_good: true, end: SessionEnd::Closed });
        Some(path)
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
        loop {
            if server.is_starved_at(*path) {
                self.blocked.insert(stream);
                return;
            }
            match deframer.poll() {
                Ok(Some(packet)) => server.handle_input(*path, packet, now),
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!("{path}: {error}");
                    self.events.push_back(FrontEvent::CloseStream { stream, is_at_once: true });
                    let path = *path;
                    self.remove(stream);
                    return server.lost(path, now);
                }
            }
        }
    }

    /// A packet is to be sent.
    pub(super) fn queue(&mut self, path: Path, packet: Packet) {
        // Of one that is gone nothing is sent.
        let Some(stream) = self.of(path) else { return };
        if let Some(connection) = self.connections.get_mut(&stream) {
            if connection.out.is_empty() {
                self.ready.push_back(stream);
            }
            connection.out.push_back(packet);
        }
    }

    pub(super) fn keep_datagram(&mut self, datagram: (Path, Packet)) {
        self.datagrams.push_back(datagram);
    }

    pub(super) fn poll_datagram(&mut self) -> Option<(Path, Packet)> {
        self.datagrams.pop_front()
    }

    /// A connection that has something to send, or room for input again.
    pub(super) fn poll_ready(&mut self, server: &mut Server, now: Instant) -> Option<StreamId> {
        let connections = &self.connections;
        let has_room =
            |stream: &StreamId| connections.get(stream).is_none_or(|connection| !server.is_starved_at(connection.path));
        let freed: Vec<StreamId> = self.blocked.iter().filter(|stream| has_room(stream)).copied().collect();
        for stream in freed {
            self.blocked.remove(&stream);
            self.take_input(stream, server, now);
            self.ready.push_back(stream);
        }
        self.ready.pop_front()
    }

    /// The next packet of a connection, with its length in front.
    pub(super) fn poll_transmit(&mut self, stream: StreamId) -> Option<Packet> {
        self.connections.get_mut(&stream)?.out.pop_front().map(framed)
    }
}
