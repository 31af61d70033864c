//! The server's end: discovery, handshakes, connections and sessions of one shard.
//!
//! It does no I/O and reads no clock. After every `handle_*`, `reply` or `managed`: drain [`Server::poll_event`],
//! then [`Server::poll_transmit`], then read [`Server::poll_timeout`].

mod acceptance;
mod accounts;
mod admission;
mod changes;
mod connection;
mod hoard;
mod intake;
mod leave;
mod links;
mod places;
mod requests;
mod room;
mod security_events;
mod session;
mod setup;
mod sharing;
mod status;
mod tally;
mod timeouts;
mod turns;
mod types;
mod weights;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sanwire_buffer::{Packet, Recycler};
use sanwire_core::{ClientId, Deadlines, Instant, Lun, NexusId, Path, SessionEnd};
use sanwire_exchange::places::Places;
use sanwire_security::{Gate, HalfOpens, Marks, Offences, Strangers, Throttle};

use self::accounts::Accounts;
pub use self::admission::Admission;
use self::connection::Connection;
pub use self::security_events::SecurityEvent;
use self::session::Session;
use self::setup::Said;
pub(crate) use self::setup::loose_packet;
use self::sharing::Sharing;
pub use self::status::ConnectionStatus;
use self::tally::Tally;
pub use self::tally::{Handshakes, LinkTally};
pub use self::types::{CommandHandle, Compressible, ProtectionLookup, ServerConfig, ServerEvent};
use crate::counters::Counters;
use crate::keys::Randomness;
use crate::option_exchange::Former;
pub use crate::wire::links::LinkLimits;
use crate::wire::live::LiveRequest;
use crate::wire::{Opcode, Protection, RawPacket, live};

/// The server's end of HyperSCSI, for one shard.
pub struct Server {
    config: ServerConfig,
    random: Randomness,
    gate: Gate,
    places: Places,
    accounts: Accounts,
    half_opens: HalfOpens<Said>,
    throttle: Throttle,
    connections: BTreeMap<u32, Connection>,
    sessions: BTreeMap<NexusId, Session>,
    by_client: BTreeMap<(ClientId, u64), NexusId>,
    /// What logical units demanded before they demanded more.
    former_levels: BTreeMap<Lun, Former<Protection>>,
    /// Clients that are to send nothing.
    paused: BTreeSet<ClientId>,
    /// Sessions whose commands keep too much memory.
    held_back: BTreeSet<NexusId>,
    next_nexus: u64,
    /// Connections that may have something to send.
    queue: VecDeque<u32>,
    loose: VecDeque<(Path, Packet)>,
    /// Where packets are decrypted.
    plain: Vec<u8>,
    /// Where packets are encrypted.
    sealed: Recycler,
    events: VecDeque<ServerEvent>,
    /// Connections whose clients were told that there is no room for what they send.
    starved: VecDeque<u32>,
    /// How many releases of memory there had been when the starved were last told of room.
    looked_at: Option<u64>,
    /// Until then memory is kept for those that were told of it.
    kept_until: Option<Instant>,
    /// When connections are due. One that has something to send may be due earlier: that is noted when it has sent it.
    deadlines: Deadlines<u32>,
    /// When sessions without connections are over.
    orphans: Deadlines<NexusId>,
    /// No deadline of anything else is earlier.
    next_deadline: Option<Instant>,
    /// Connections that were visited because they were due.
    #[cfg(test)]
    visits: usize,
    counters: Counters,
    tally: Tally,
    offences: Offences<SecurityEvent>,
    strangers: Strangers,
    /// Nobody is served who comes now.
    is_closed: bool,
    marks: Marks,
    sharing: Sharing,
}

impl Server {
    /// A server without connections.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        let accounts = Accounts::new(config.commands_max);
        let marks = Marks::new(&config.identity.key_for(b"sanwire hyperscsi connection"));
        Server {
            random: Randomness::new(config.seed),
            next_nexus: u64::from(config.shard),
            config,
            gate: Gate::default(),
            places: Places::default(),
            accounts,
            half_opens: HalfOpens::default(),
            throttle: Throttle::default(),
            connections: BTreeMap::new(),
            sessions: BTreeMap::new(),
            by_client: BTreeMap::new(),
            former_levels: BTreeMap::new(),
            paused: BTreeSet::new(),
            held_back: BTreeSet::new(),
            queue: VecDeque::new(),
            loose: VecDeque::new(),
            plain: Vec::new(),
            sealed: Recycler::new(),
            events: VecDeque::new(),
            starved: VecDeque::new(),
            looked_at: None,
            kept_until: None,
            deadlines: Deadlines::default(),
            orphans: Deadlines::default(),
            next_deadline: None,
            #[cfg(test)]
            visits: 0,
            counters: Counters::default(),
            tally: Tally::default(),
            offences: Offences::default(),
            strangers: Strangers::default(),
            is_closed: false,
            marks,
            sharing: Sharing::default(),
        }
    }

    /// What was dropped so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Connections now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// A packet has arrived.
    pub fn handle_input(&mut self, path: Path, bytes: &[u8], now: Instant) {
        let Ok(packet) = RawPacket::read(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        if !self.steers_here(packet.prefix.connection) {
            self.counters.misdirected += 1;
            return;
        }
        match (packet.prefix.header.opcode, packet.prefix.protection) {
            (Opcode::DeviceDiscovery, Protection::Checksum) => {
                self.handle_discovery(path, &packet, now);
            }
            (Opcode::AdnReply, Protection::Checksum) => {
                self.handle_third_step(path, &packet, now);
            }
            (Opcode::HcbeRequest, _) | (Opcode::LocalRequest, Protection::Aes256Gcm) => {
                self.handle_data(path, &packet, now);
            }
            (Opcode::AddrReport, Protection::Aes256Gcm) => self.handle_report(path, &packet, now),
            (opcode, Protection::Aes256Gcm) => self.handle_control(path, opcode, &packet, now),
            _ => self.handle_unsealed(path, packet.prefix.connection, now),
        }
    }

    /// Whether packets with this connection, or steering word, belong to this shard. Others come while the ports of all shards are
    /// not there yet, or not there again: taken here they would give their client a session in each of two shards, which
    /// know nothing of what the other has executed.
    fn steers_here(&self, connection: u32) -> bool {
        connection % self.config.shards.max(1) == self.config.shard
    }

    /// A packet in the open that is none of those that may come so.
    fn handle_unsealed(&mut self, path: Path, id: u32, now: Instant) {
        let connection = self.connections.get(&id).filter(|connection| connection.channel.link_of(path).is_some());
        match connection.map(|connection| connection.nexus) {
            Some(nexus) => self.note_offence_of(nexus, SecurityEvent::Unsealed, path, now),
            // It may be meant for a client of this host.
            None => self.counters.malformed += 1,
        }
    }

    fn handle_data(&mut self, path: Path, packet: &RawPacket<'_>, now: Instant) {
        let prefix = &packet.prefix;
        let Some(connection) =
            self.connections.get_mut(&prefix.connection).filter(|c| c.channel.link_of(path).is_some())
        else {
            self.unknown_connection(path, prefix.connection, now);
            return;
        };
        connection.received_packets += 1;
        let counters = (&mut self.counters, &mut self.accounts.incoming);
        let request = connection.handle_data(packet, &mut self.plain, counters, now);
        let nexus = connection.nexus;
        if connection.wants_room() {
            if !self.starved.contains(&prefix.connection) {
                self.starved.push_back(prefix.connection);
            }
            // What it wants may be another request now, or less.
            self.looked_at = None;
        }
        self.deliver(prefix.connection);
        self.touch(prefix.connection);
        match request {
            Ok(Some(request)) => self.handle_request(nexus, path, request, now),
            Ok(None) => {}
            Err(offence) => self.note_offence_of(nexus, offence, path, now),
        }
    }

    fn handle_control(&mut self, path: Path, opcode: Opcode, packet: &RawPacket<'_>, now: Instant) {
        let prefix = &packet.prefix;
        let known =
            self.connections.get_mut(&prefix.connection).and_then(|c| c.channel.link_of(path).map(|at| (c, at)));
        let Some((connection, at)) = known else {
            self.unknown_connection(path, prefix.connection, now);
            return;
        };
        connection.received_packets += 1;
        let nexus = connection.nexus;
        let Some(plain) = connection.channel.open(packet, now) else {
            self.note_offence_of(nexus, SecurityEvent::NotAuthentic, path, now);
            return;
        };
        if opcode == Opcode::Disconnect {
            if live::read_disconnect(&plain).is_ok() {
                self.close_session(nexus, SessionEnd::Closed);
                self.drop_connection(prefix.connection, now);
                self.settle_shares(now);
            }
            return;
        }
        let was_held = connection.channel.is_held();
        let offence = connection.handle_control(opcode, &plain, (packet.length_bytes(), at), now).err();
        if connection.channel.is_held() != was_held {
            self.events.push_back(ServerEvent::Held { nexus, is_held: !was_held });
        }
        if let Some(offence) = offence {
            self.note_offence_of(nexus, offence, path, now);
        }
        self.tell_news(prefix.connection, now);
        self.deliver(prefix.connection);
        self.touch(prefix.connection);
        self.settle_shares(now);
    }

    /// The connection may have something to send, and another deadline when it has sent it.
    fn touch(&mut self, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !connection.is_queued {
            connection.is_queued = true;
            self.queue.push_back(id);
        }
    }

    fn drop_connection(&mut self, id: u32, now: Instant) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        self.deadlines.forget(id, &mut connection.alarm);
        self.tally.close(&connection);
        let (nexus, taken_transfer_bytes) = (connection.nexus, connection.taken_transfer_bytes());
        let ended = connection.end();
        if let Some(session) = self.sessions.get_mut(&nexus)
            && session.connection == Some(id)
        {
            session.note_transfers(taken_transfer_bytes);
            session.disconnect(now);
            self.orphans.note(nexus, &mut session.alarm, now + self.config.session_idle_max);
            let client = session.client;
            self.sharing.note(client);
            self.events.extend(ended);
            self.events.push_back(ServerEvent::Disconnected { nexus });
            self.bound_slots(client);
        }
    }

    fn close_session(&mut self, nexus: NexusId, end: SessionEnd) {
        if let Some(mut session) = self.sessions.remove(&nexus) {
            self.orphans.forget(nexus, &mut session.alarm);
            self.by_client.remove(&(session.client, session.number));
            self.places.count(&mut session, None);
            self.sharing.note(session.client);
            self.events.push_back(ServerEvent::SessionClosed { nexus, end });
        }
    }

    /// Takes no more clients, and none back: whoever comes now is to find the server that follows this one.
    pub fn admit_no_more(&mut self) {
        self.is_closed = true;
    }

    /// Tells every client that the server stops. Drain the transmits afterwards.
    pub fn shut_down(&mut self) {
        let ids: Vec<u32> = self.connections.keys().copied().collect();
        for id in ids {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.channel.send_control(Opcode::AdnRequest, LiveRequest::Farewell.write());
            }
            self.touch(id);
        }
    }

    /// Whether every answer given so far has been acknowledged.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.connections.values().all(|connection| connection.channel.is_drained())
    }

    /// The next thing that the layer above must know.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// The next packet to send.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        if let Some(loose) = self.loose.pop_front() {
            return Some(loose);
        }
        self.tell_of_room(now);
        while let Some(&id) = self.queue.front() {
            let Some(connection) = self.connections.get_mut(&id) else {
                self.queue.pop_front();
                continue;
            };
            if connection.turn.is_over() {
                self.queue.rotate_left(1);
                continue;
            }
            if let Some(sent) = connection.channel.poll_transmit(now) {
                connection.sent_packets += 1;
                connection.turn.sent(sent.1.length_bytes());
                return Some(sent);
            }
            connection.is_queued = false;
            connection.turn.forget();
            self.queue.pop_front();
            let at = connection.poll_timeout();
            self.deadlines.note(id, &mut connection.alarm, at);
        }
        None
    }
}

#[cfg(test)]
mod tests;
