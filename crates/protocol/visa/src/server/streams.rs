//! Connections of TCP: what goes by each waits until that takes it, and nothing more is taken from one while there is no memory for what
//! has come on it.

use std::collections::{BTreeMap, VecDeque};

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Path};

use super::{Server, ServerEvent};

/// Packets outside VISA's connections that wait for one of TCP: who takes none is answered no more.
const LOOSE_MAX: usize = 8;

/// A connection of TCP.
#[derive(Default)]
pub(super) struct Stream {
    /// VISA's on it: mostly one.
    connections: Vec<u32>,
    /// Those that may have something to send.
    queue: VecDeque<u32>,
    loose: VecDeque<Packet>,
    /// How many of VISA's connections wait for memory.
    starved: usize,
    /// It is among those that have something to send, perhaps, or take input again.
    is_ready: bool,
}

/// All of them, by where they lead.
#[derive(Default)]
pub(super) struct Streams {
    by_path: BTreeMap<Path, Stream>,
    ready: VecDeque<Path>,
}

impl Streams {
    /// Does something with a connection, which is looked at then.
    fn stir(&mut self, path: Path, what: impl FnOnce(&mut Stream)) {
        let stream = self.by_path.entry(path).or_default();
        what(stream);
        if !std::mem::replace(&mut stream.is_ready, true) {
            self.ready.push_back(path);
        }
    }

    /// A packet outside VISA's connections goes there, unless too many wait.
    pub(super) fn send_loose(&mut self, path: Path, packet: Packet) {
        self.stir(path, |stream| {
            if stream.loose.len() < LOOSE_MAX {
                stream.loose.push_back(packet);
            }
        });
    }

    /// One of VISA's connections may have something to send.
    pub(super) fn send_of(&mut self, path: Path, id: u32) {
        self.stir(path, |stream| stream.queue.push_back(id));
    }

    pub(super) fn add(&mut self, path: Path, id: u32) {
        self.by_path.entry(path).or_default().connections.push(id);
    }

    /// One of VISA's connections is over: whether it was the last one there.
    pub(super) fn remove(&mut self, path: Path, id: u32) -> bool {
        let Some(stream) = self.by_path.get_mut(&path) else { return false };
        stream.connections.retain(|other| *other != id);
        stream.connections.is_empty()
    }

    /// One of VISA's connections waits for memory, or does not any more.
    pub(super) fn note_starved(&mut self, path: Path, is_starved: bool) {
        match is_starved {
            true => self.by_path.entry(path).or_default().starved += 1,
            false => self.stir(path, |stream| stream.starved = stream.starved.saturating_sub(1)),
        }
    }

    fn of(&self, path: Path) -> &[u32] {
        self.by_path.get(&path).map_or(&[], |stream| &stream.connections)
    }
}

impl Server {
    /// A connection of TCP that has something to send, perhaps, or from which input is taken again.
    pub fn poll_stream(&mut self, now: Instant) -> Option<Path> {
        self.feed(now);
        let path = self.streams.ready.pop_front()?;
        if let Some(stream) = self.streams.by_path.get_mut(&path) {
            stream.is_ready = false;
        }
        // Whether or not it takes anything now, what is due then is due.
        for id in self.streams.of(path).to_vec() {
            self.note_deadline(id);
        }
        Some(path)
    }

    /// The next packet for a connection of TCP. To be asked for when that takes one: what is not taken out keeps nothing but its source.
    pub fn poll_transmit_on(&mut self, path: Path, now: Instant) -> Option<Packet> {
        let stream = self.streams.by_path.get_mut(&path)?;
        if let Some(packet) = stream.loose.pop_front() {
            return Some(packet);
        }
        while let Some(id) = self.streams.by_path.get_mut(&path)?.queue.pop_front() {
            if let Some((_, packet)) = self.next_packet(id, now) {
                self.streams.by_path.get_mut(&path)?.queue.push_back(id);
                return Some(packet);
            }
        }
        None
    }

    /// Of what was taken out for a connection of TCP, it has not taken so many bytes. To be told when that has changed.
    pub fn note_unsent(&mut self, path: Path, unsent_bytes: usize, now: Instant) {
        for id in self.streams.of(path) {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.channel.note_unsent(unsent_bytes, now);
            }
        }
    }

    /// Whether something came on a connection of TCP for which there is no memory: nothing more is taken from it meanwhile.
    #[must_use]
    pub fn is_starved_at(&self, path: Path) -> bool {
        self.streams.by_path.get(&path).is_some_and(|stream| stream.starved > 0)
    }

    /// Whether a connection of TCP carries one of VISA's.
    #[must_use]
    pub fn has_connection_at(&self, path: Path) -> bool {
        !self.streams.of(path).is_empty()
    }

    /// TCP has lost a connection: nothing more comes of what is there.
    pub fn lost(&mut self, path: Path, now: Instant) {
        for id in self.streams.of(path).to_vec() {
            self.drop_connection(id, now);
        }
        self.streams.by_path.remove(&path);
    }

    /// VISA's last connection on one of TCP is over.
    pub(super) fn leave_stream(&mut self, path: Path, id: u32) {
        if self.streams.remove(path, id) {
            self.events.push_back(ServerEvent::Hangup { path });
        }
    }
}
