//! The server's end: who has a connection, what their commands are, and what they are answered, in one shard.

mod acceptance;
mod accounts;
mod connection;
mod entrance;
mod intake;
mod leave;
mod places;
mod requests;
mod session;
mod streams;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sanwire_buffer::{Packet, Recycler};
use sanwire_core::quota::{LOOSE_PACKETS, Usage};
use sanwire_core::{ClientId, Deadlines, Instant, LinkId, NexusId, Path};
use sanwire_exchange::places::Places;
use sanwire_security::keys::Randomness;
use sanwire_security::{Burst, Gate, HalfOpens, Marks, Offences, Strangers, Throttle};

use self::accounts::Accounts;
use self::connection::Connection;
use self::session::Session;
use self::streams::Streams;
pub use self::types::{
    CommandHandle, ConnectionStatus, Doorkeeper, LinkLimits, Offence, ProtectionLookup, ServerConfig, ServerEvent,
    Wishes,
};
use crate::counters::{Counters, Handshakes};
use crate::wire::Kind;
use crate::wire::header::RawPacket;
use crate::wire::setup::Refusal;

/// What has deadlines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    Connection(u32),
    Session(NexusId),
}

/// The server's end of all its connections.
pub struct Server {
    config: ServerConfig,
    random: Randomness,
    gate: Gate,
    throttle: Throttle,
    /// With what is said to a third step that was refused; nothing is said to who may not connect, or not now.
    half_opens: HalfOpens<Option<Refusal>>,
    /// When one of them is over, at the earliest.
    handshakes_due_at: Option<Instant>,
    strangers: Strangers,
    offences: Offences<Offence>,
    marks: Marks,
    accounts: Accounts,
    connections: BTreeMap<u32, Connection>,
    sessions: BTreeMap<NexusId, Session>,
    by_client: BTreeMap<(ClientId, u64), NexusId>,
    places: Places,
    deadlines: Deadlines<Key>,
    /// Connections over UDP that may have something to send.
    queue: VecDeque<u32>,
    loose: VecDeque<(Path, Packet)>,
    streams: Streams,
    events: VecDeque<ServerEvent>,
    /// Connections that have what no memory was free for.
    starved: BTreeSet<u32>,
    /// How many releases of memory there had been when the starved were last looked at.
    looked_at: Option<u64>,
    /// What all connections keep that came too early, in bytes.
    held_bytes: usize,
    counters: Counters,
    handshakes: Handshakes,
    next_nexus: u64,
    /// Nobody is served who comes now.
    is_closed: bool,
    /// Memory for what is decrypted.
    plain: Vec<u8>,
    /// The same for what is sealed.
    sealed: Recycler,
}

impl Server {
    /// A server without clients.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Server {
            random: Randomness::new(config.seed),
            next_nexus: config.nexus_base + u64::from(config.shard),
            marks: Marks::new(&config.identity.key_for(b"sanwire visa connection")),
            accounts: Accounts::new(config.commands_max),
            config,
            gate: Gate::default(),
            throttle: Throttle::default(),
            half_opens: HalfOpens::default(),
            handshakes_due_at: None,
            strangers: Strangers::default(),
            offences: Offences::default(),
            connections: BTreeMap::new(),
            sessions: BTreeMap::new(),
            by_client: BTreeMap::new(),
            places: Places::default(),
            deadlines: Deadlines::default(),
            queue: VecDeque::new(),
            loose: VecDeque::new(),
            streams: Streams::default(),
            events: VecDeque::new(),
            starved: BTreeSet::new(),
            looked_at: None,
            held_bytes: 0,
            counters: Counters::default(),
            handshakes: Handshakes::default(),
            is_closed: false,
            plain: Vec::new(),
            sealed: Recycler::new(),
        }
    }

    /// A packet has come.
    pub fn handle_input(&mut self, path: Path, packet: &[u8], now: Instant) {
        match RawPacket::read(packet) {
            // What servers send is for clients.
            Ok(raw) if raw.header.from_device => self.counters.malformed += 1,
            Ok(raw) if !self.steers_here(raw.header.connection) => self.counters.misdirected += 1,
            Ok(raw) => match raw.header.kind {
                Kind::Connect => self.handle_connect(path, &raw, now),
                Kind::Confirm => self.handle_confirm(path, &raw, now),
                Kind::Accept => self.counters.malformed += 1,
                Kind::Data => self.handle_data(path, &raw, now),
                Kind::Ack | Kind::Nak | Kind::Ping | Kind::Close | Kind::Agree => self.handle_control(path, &raw, now),
            },
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// Whether packets with this connection, or steering word, belong to this shard. Taken elsewhere they would give their client a
    /// session in each of two shards, which know nothing of what the other has executed.
    fn steers_here(&self, connection: u32) -> bool {
        connection % self.config.shards.max(1) == self.config.shard
    }

    /// What a link can take has changed; connections stay as they are.
    pub fn set_link(&mut self, link: LinkId, packet_max_bytes: u16) {
        if let Some(known) = self.config.links.get_mut(usize::from(link.0)) {
            known.packet_max_bytes = packet_max_bytes;
        }
    }

    /// Takes no more clients, and none back: whoever comes now is to find the server that follows this one.
    pub fn admit_no_more(&mut self) {
        self.is_closed = true;
    }

    /// Whether every answer given so far has been acknowledged.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.connections.values().all(|connection| connection.channel.is_idle())
    }

    /// Whether a session has a connection.
    #[must_use]
    pub fn is_connected(&self, nexus: NexusId) -> bool {
        self.sessions.get(&nexus).is_some_and(|session| session.connection.is_some())
    }

    /// How many sessions there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// All connections.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionStatus> + '_ {
        self.connections.values().map(|connection| ConnectionStatus {
            nexus: connection.nexus,
            path: connection.channel.path(),
            terms: connection.terms,
            is_stream: self.link(connection.channel.path()).is_stream,
            traffic: connection.channel.traffic(),
        })
    }

    fn send_packet(&mut self, path: Path, packet: Packet) {
        if self.link(path).is_stream {
            self.streams.send_loose(path, packet);
        } else if (self.loose.len() as u64) < LOOSE_PACKETS.limit {
            self.loose.push_back((path, packet));
        }
    }

    /// The connection may have something to send, and another deadline when it has sent it.
    fn touch(&mut self, id: u32) {
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| !connection.is_queued) else { return };
        connection.is_queued = true;
        let path = connection.channel.path();
        match self.link(path).is_stream {
            true => self.streams.send_of(path, id),
            false => self.queue.push_back(id),
        }
    }

    /// The next packet of a connection that was among those that may have one, and is again if it had.
    fn next_packet(&mut self, id: u32, now: Instant) -> Option<(Path, Packet)> {
        let connection = self.connections.get_mut(&id)?;
        let packet = connection.channel.poll_transmit(now);
        connection.is_queued = packet.is_some();
        let path = connection.channel.path();
        if packet.is_none() {
            self.note_deadline(id);
        }
        packet.map(|packet| (path, packet))
    }

    fn note_deadline(&mut self, id: u32) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let at = connection.poll_timeout();
            self.deadlines.note(Key::Connection(id), &mut connection.alarm, at);
        }
    }

    /// The next thing that the layer above must know.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// How many events wait.
    #[must_use]
    pub fn events_waiting(&self) -> usize {
        self.events.len()
    }

    /// The next packet over UDP, and where it goes. Connections take turns. Over TCP see [`Server::poll_stream`].
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        if let Some(loose) = self.loose.pop_front() {
            return Some(loose);
        }
        self.feed(now);
        while let Some(id) = self.queue.pop_front() {
            let packet = self.next_packet(id, now);
            if packet.is_some() {
                self.queue.push_back(id);
                return packet;
            }
        }
        None
    }

    /// When [`Server::handle_timeout`] is to be called. It may come early, never late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let of_offences = self.offences.poll_timeout();
        let others = [self.deadlines.next_at(), self.handshakes_due_at, self.strangers.poll_timeout(), of_offences];
        others.into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.half_opens.expire(now);
        self.handshakes_due_at = self.half_opens.poll_timeout();
        while let Some((path, client, packets)) = self.strangers.poll(now) {
            self.events.push_back(ServerEvent::NotAllowed { client, path, packets });
        }
        while let Some(Burst { offence, client, path, count, .. }) = self.offences.poll(now) {
            self.events.push_back(ServerEvent::Refused { offence, client, path, count });
        }
        for (key, at) in self.deadlines.take_due(now) {
            match key {
                Key::Connection(id) => self.tend_connection(id, at, now),
                Key::Session(nexus) => self.tend_session(nexus, at, now),
            }
        }
    }

    /// What was dropped.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How handshakes have ended.
    #[must_use]
    pub fn handshakes(&self) -> Handshakes {
        self.handshakes
    }

    /// How its quotas are used.
    pub fn quotas(&self) -> impl Iterator<Item = Usage> {
        let of_strangers = self.gate.usages().into_iter().chain(self.throttle.usages());
        let of_sessions = self.places.usages().into_iter().chain(self.accounts.usages());
        of_strangers.chain(self.half_opens.usages()).chain(of_sessions)
    }
}
