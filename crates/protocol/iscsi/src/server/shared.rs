//! What all sessions of a shard share: memory, events, and who has something to send.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use sanwire_buffer::{Packet, Region};
use sanwire_core::{Deadlines, Instant, NexusId};

use super::ServerConfig;
use super::connection::Connection;
use super::event::ServerEvent;
use super::hoard::Delivery;
use super::movement::Movements;
use super::tally::Tally;
use super::usages::Usages;
use super::withheld::Unit;
use crate::ConnectionId;
use crate::datamover::Datamover;

/// What the connections of a shard may have together, of each of some sorts, outside the memory for data; and what each of them may
/// have, however many they are.
const HEAP_SHARED_BYTES: u64 = 64 << 20;
const HEAP_LEAST_BYTES: u64 = 8 << 10;

/// Who waits for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Starved {
    /// A connection, of which a header has arrived and its data has no place yet.
    Connection(ConnectionId),
    /// A command of which the data is not asked for yet.
    Command(NexusId, u64),
}

/// What is still to be sent on a connection that no session has any more.
pub(super) struct Leaving {
    pub(super) mover: Box<dyn Datamover>,
    pub(super) delivery: Delivery,
    /// Its session, and whose share of the memory it takes.
    pub(super) nexus: NexusId,
    pub(super) memory: Option<Region>,
}

impl Leaving {
    /// The next bytes to send.
    pub(super) fn pop(&mut self) -> Option<Packet> {
        let packet = self.mover.pop();
        self.delivery.took(packet.as_ref());
        packet
    }
}

/// What is common to all sessions.
pub(super) struct Shared {
    pub(super) config: ServerConfig,
    pub(super) events: VecDeque<ServerEvent>,
    /// Connections that have something to send, or may be read from again.
    pub(super) ready: VecDeque<ConnectionId>,
    /// The session of each connection.
    pub(super) homes: FxHashMap<ConnectionId, NexusId>,
    /// What is still to be sent on connections that no session has any more.
    pub(super) closing: FxHashMap<ConnectionId, Leaving>,
    /// In the order in which they came, which holds for what is of one session.
    pub(super) starved: VecDeque<Starved>,
    /// How many releases of memory there had been when these were last tried.
    pub(super) fed_at: u64,
    /// Logical units whose commands wait for their stores, and keep too much of the memory.
    pub(super) held_back: BTreeSet<Unit>,
    pub(super) is_shutting_down: bool,
    /// Connections that were dropped because they kept memory from others.
    pub(super) hoards_dropped: u64,
    pub(super) tally: Tally,
    /// What has come on connections that are gone.
    pub(super) movements: Movements,
    /// Connections that are to be looked at: something has arrived that was not looked at, because too much was to be sent, or something
    /// could not be sent and they are over.
    pub(super) relieved: VecDeque<ConnectionId>,
    /// How sessions and connections that are gone have used their quotas.
    pub(super) usages: Usages,
    /// When sessions are due.
    pub(super) deadlines: Deadlines<NexusId>,
    /// Until then initiators may acknowledge what is kept for them, while others wait for memory.
    pub(super) look_at: Option<Instant>,
    /// Sessions that were visited because they were due.
    #[cfg(test)]
    pub(super) visits: usize,
}

impl Shared {
    pub(super) fn new(config: ServerConfig) -> Self {
        Shared {
            config,
            events: VecDeque::new(),
            ready: VecDeque::new(),
            homes: FxHashMap::default(),
            closing: FxHashMap::default(),
            starved: VecDeque::new(),
            fed_at: 0,
            held_back: BTreeSet::new(),
            is_shutting_down: false,
            hoards_dropped: 0,
            tally: Tally::default(),
            movements: Movements::default(),
            relieved: VecDeque::new(),
            usages: Usages::default(),
            deadlines: Deadlines::default(),
            look_at: None,
            #[cfg(test)]
            visits: 0,
        }
    }

    /// What a connection may have now outside the memory for data: the more there are, the less.
    pub(super) fn heap_share_bytes(&self) -> u64 {
        (HEAP_SHARED_BYTES / self.homes.len().max(1) as u64).max(HEAP_LEAST_BYTES)
    }

    /// The session that waits so, if it is still there.
    pub(super) fn session_of(&self, starved: Starved) -> Option<NexusId> {
        match starved {
            Starved::Connection(connection) => self.homes.get(&connection).copied(),
            Starved::Command(nexus, _) => Some(nexus),
        }
    }

    /// Sends what is still to be sent on a connection, and has it closed.
    pub(super) fn close(&mut self, connection: ConnectionId, leaving: Leaving) {
        self.homes.remove(&connection);
        self.closing.insert(connection, leaving);
        self.ready.push_back(connection);
        self.events.push_back(ServerEvent::Close { connection });
    }

    /// Nothing is due earlier.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next_at().into_iter().chain(self.look_at).min()
    }

    /// What is not acknowledged at this moment is given to those who wait for memory.
    pub(super) fn look_for_memory_at(&mut self, at: Instant) {
        self.look_at = Some(self.look_at.map_or(at, |next| next.min(at)));
    }

    /// The connection has something to send, or may be read from again.
    pub(super) fn wake(&mut self, connection: &mut Connection) {
        if !connection.is_ready {
            connection.is_ready = true;
            self.ready.push_back(connection.id);
        }
    }
}
