//! The server's end: who has a connection, what their commands are, and what they are answered.

mod accept;
mod assembly;
mod batch;
mod commands;
mod connection;
mod flow_control;
mod half_opens;
mod handshake;
mod hoard;
mod pages;
mod proof;
mod requests;
mod session;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sanwire_buffer::{Arrival, Packet, Recycler};
use sanwire_core::quota::{HINTS, LOOSE_PACKETS, Limiter, Usage};
use sanwire_core::{Carried, ClientId, Deadlines, Instant, LinkId, NexusId, Path, SessionEnd};
use sanwire_security::keys::Randomness;
use sanwire_security::{Gate, Throttle};

pub(crate) use self::batch::sectors;
use self::commands::Executing;
use self::connection::Connection;
use self::half_opens::HalfOpens;
pub(crate) use self::handshake::loose;
use self::hoard::Favoured;
use self::session::Session;
pub use self::types::{
    Answer, CommandHandle, Directory, Disk, GivenAt, LinkLimits, Request, ServerConfig, ServerEvent, Wanted,
};
use crate::channel::data_bytes;
use crate::counters::{ConnectionStatus, Counters, Handshakes, WindowChanges};
use crate::wire::connection::RELEASE;
use crate::wire::pcu::RawPcu;
use crate::wire::{Header, PacketType};

/// What has deadlines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    Connection(u16),
    Session(NexusId),
}

/// The server's end of all its connections.
pub struct Server {
    config: ServerConfig,
    random: Randomness,
    gate: Gate,
    throttle: Throttle,
    hints: Limiter,
    half_opens: HalfOpens,
    connections: BTreeMap<u16, Connection>,
    sessions: BTreeMap<NexusId, Session>,
    /// Sessions by their clients and runs.
    names: BTreeMap<(ClientId, u64), NexusId>,
    executing: BTreeMap<CommandHandle, Executing>,
    /// Commands that sessions wait for before they begin, and those sessions.
    followed: BTreeMap<CommandHandle, Vec<NexusId>>,
    favoured: Option<Favoured>,
    deadlines: Deadlines<Key>,
    /// Connections that have something to send, perhaps.
    awake: VecDeque<u16>,
    loose: VecDeque<(Path, Packet)>,
    events: VecDeque<ServerEvent>,
    counters: Counters,
    handshakes: Handshakes,
    written: Carried,
    answered: Carried,
    windows: WindowChanges,
    next_nexus: u64,
    next_handle: u64,
    is_closed: bool,
    /// Of whom it was told that they may not connect.
    told: BTreeSet<ClientId>,
    /// Memory for what is decrypted.
    plain: Vec<u8>,
    /// Where data is encrypted.
    sealed: Recycler,
}

impl Server {
    /// A server without clients.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Server {
            next_nexus: config.nexus_base + u64::from(config.shard),
            random: Randomness::new(config.seed),
            config,
            gate: Gate::default(),
            throttle: Throttle::default(),
            hints: Limiter::new(&HINTS),
            half_opens: HalfOpens::default(),
            connections: BTreeMap::new(),
            sessions: BTreeMap::new(),
            names: BTreeMap::new(),
            executing: BTreeMap::new(),
            followed: BTreeMap::new(),
            favoured: None,
            deadlines: Deadlines::default(),
            awake: VecDeque::new(),
            loose: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            handshakes: Handshakes::default(),
            written: Carried::default(),
            answered: Carried::default(),
            windows: WindowChanges::default(),
            next_handle: 0,
            is_closed: false,
            told: BTreeSet::new(),
            plain: Vec::new(),
            sealed: Recycler::new(),
        }
    }

    /// A packet has come.
    pub fn handle_input(&mut self, path: Path, packet: &[u8], now: Instant) {
        self.handle_arrival(path, packet.into(), now);
    }

    /// The same, where what it brings may be kept in the memory that it came into.
    pub fn handle_arrival(&mut self, path: Path, arrival: Arrival<'_>, now: Instant) {
        let packet = arrival.bytes();
        match Header::read(packet) {
            // What servers send is for clients.
            Ok(header) if header.from_server => self.counters.malformed += 1,
            Ok(header) if !self.steers_here(header.connection()) => self.counters.misdirected += 1,
            Ok(header) if header.packet_type == PacketType::Pdu => self.handle_pdu(path, header, arrival, now),
            Ok(_) => match RawPcu::read(packet) {
                Ok(raw) if raw.pcu.is_sealed => self.handle_sealed(path, &raw, now),
                Ok(raw) => self.handle_open(path, &raw, now),
                Err(_) => self.counters.malformed += 1,
            },
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// Whether packets with these ports belong to this shard. Others come while the ports of all shards are opened, or one is away; who
    /// has their connection is another one.
    fn steers_here(&self, connection: u32) -> bool {
        connection % self.config.shards.max(1) == self.config.shard
    }

    /// What a link can take may have changed. Connections whose packets are too large for it now are released: their clients come again,
    /// and agree on smaller ones.
    pub fn set_link(&mut self, link: LinkId, packet_max_bytes: u16, now: Instant) {
        let Some(known) = self.config.links.get_mut(usize::from(link.0)) else { return };
        let before = std::mem::replace(&mut known.packet_max_bytes, packet_max_bytes);
        if packet_max_bytes >= before {
            return;
        }
        let is_too_large = |Connection { channel, agreement, .. }: &Connection| {
            channel.path.link == link && agreement.data_bytes > data_bytes(packet_max_bytes, agreement.disk_type)
        };
        let too_large = self.connections.iter().filter(|(_, connection)| is_too_large(connection));
        too_large.map(|(port, _)| *port).collect::<Vec<u16>>().into_iter().for_each(|port| self.release(port, now));
    }

    /// Ends the connection of a session, whose client comes again by another one: what was agreed on holds no longer.
    pub fn disconnect_session(&mut self, nexus: NexusId, now: Instant) {
        if let Some(port) = self.sessions.get(&nexus).and_then(|session| session.connection) {
            self.farewell(port, RELEASE);
            self.disconnect(port, now);
        }
    }

    /// Rules may have changed: who may not connect is told of anew.
    pub fn terms_changed(&mut self) {
        self.told.clear();
    }

    /// Nothing new begins from now on: commands that come are not acknowledged, and their clients give them again elsewhere, or later.
    /// Connections end by [`Server::release_idle`].
    pub fn admit_no_more(&mut self) {
        self.is_closed = true;
    }

    /// Releases the connections on which nothing is under way: their clients have all answers.
    pub fn release_idle(&mut self, now: Instant) {
        let is_idle = |connection: &Connection| {
            connection.channel.is_idle()
                && self.sessions.get(&connection.nexus).is_none_or(|session| !session.is_busy())
        };
        let idle = self.connections.iter().filter(|(_, connection)| is_idle(connection));
        for port in idle.map(|(port, _)| *port).collect::<Vec<u16>>() {
            self.farewell(port, RELEASE);
            self.disconnect(port, now);
        }
    }

    /// All connections.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionStatus> + '_ {
        self.connections.values().map(|connection| {
            let Connection { channel, nexus, agreement, .. } = connection;
            ConnectionStatus {
                nexus: *nexus,
                path: channel.path,
                protection: agreement.protection,
                window_packets: channel.room_packets(),
                traffic: channel.traffic(),
            }
        })
    }

    fn send_packet(&mut self, path: Path, packet: Packet) {
        if (self.loose.len() as u64) < LOOSE_PACKETS.limit {
            self.loose.push_back((path, packet));
        }
    }

    /// A connection has something to send, perhaps.
    fn wake(&mut self, port: u16) {
        if let Some(connection) = self.connections.get_mut(&port).filter(|connection| !connection.is_awake) {
            connection.is_awake = true;
            self.awake.push_back(port);
        }
    }

    /// Notes when something is due of a session.
    fn watch(&mut self, nexus: NexusId) {
        let Some(session) = self.sessions.get_mut(&nexus) else { return };
        let over_at = session.connection.is_none().then(|| session.orphaned_at + self.config.linger);
        if let Some(at) = session.batch.due_at().into_iter().chain(over_at).min() {
            self.deadlines.note(Key::Session(nexus), &mut session.alarm, at);
        }
    }

    /// What there is to tell.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// How many events wait.
    #[must_use]
    pub fn events_waiting(&self) -> usize {
        self.events.len()
    }

    /// The next packet, and where it goes.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        if let Some(loose) = self.loose.pop_front() {
            return Some(loose);
        }
        while let Some(port) = self.awake.pop_front() {
            let Some(connection) = self.connections.get_mut(&port) else { continue };
            connection.is_awake = false;
            if let Some(packet) = connection.channel.poll_transmit(now) {
                connection.is_awake = true;
                self.awake.push_back(port);
                return Some((connection.channel.path, packet));
            }
            if let Some(at) = connection.poll_timeout() {
                self.deadlines.note(Key::Connection(port), &mut connection.alarm, at);
            }
        }
        None
    }

    /// When [`Server::handle_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.next_at().into_iter().chain(self.half_opens.poll_timeout()).min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.half_opens.expire(now);
        for (key, at) in self.deadlines.take_due(now) {
            match key {
                Key::Connection(port) => {
                    let Some(connection) = self.connections.get_mut(&port) else { continue };
                    if !connection.alarm.rings(at) {
                        continue;
                    }
                    match connection.handle_timeout(now) {
                        true => {
                            self.tell_allowance(port, now);
                            self.wake(port);
                            self.feed(port, now);
                        }
                        false => self.release(port, now),
                    }
                }
                Key::Session(nexus) => self.session_due(nexus, at, now),
            }
        }
    }

    fn session_due(&mut self, nexus: NexusId, at: Instant, now: Instant) {
        let Some(session) = self.sessions.get_mut(&nexus) else { return };
        if !session.alarm.rings(at) {
            return;
        }
        let is_held_long = session.batch.due_at().is_some_and(|at| at <= now);
        let is_over = session.connection.is_none() && session.orphaned_at + self.config.linger <= now;
        if is_held_long {
            self.release_batch(nexus);
        }
        if is_over {
            self.close_session(nexus, SessionEnd::Lost);
        }
        self.watch(nexus);
    }

    /// What was dropped.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How the quotas for strangers are used.
    pub fn quotas(&self) -> impl Iterator<Item = Usage> {
        self.gate.usages().into_iter().chain(self.throttle.usages())
    }

    /// How handshakes have ended.
    #[must_use]
    pub fn handshakes(&self) -> Handshakes {
        self.handshakes
    }

    /// What writes have brought.
    #[must_use]
    pub fn written(&self) -> Carried {
        self.written
    }

    /// What answers have carried.
    #[must_use]
    pub fn answered(&self) -> Carried {
        self.answered
    }

    /// How often clients were told to send less, or that they may send more.
    #[must_use]
    pub fn window_changes(&self) -> WindowChanges {
        self.windows
    }

    /// How many sessions there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }
}
