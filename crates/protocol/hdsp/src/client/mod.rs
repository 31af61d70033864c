//! The client's end: one session with one disk, through connections that come and go.

mod connect;
mod orders;
mod said;
mod seek;
mod types;

use std::collections::VecDeque;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, LinkId, Path};
use sanwire_security::keys::Randomness;

use self::orders::{Ended, Orders};
use self::said::Said;
use self::seek::Seek;
pub use self::types::{ClientConfig, ClientEvent, Command, CommandId, Order, OrderError, Outcome, ServerInfo};
use crate::channel::{Channel, Heard, Piece, Rejected, data_bytes};
use crate::counters::Counters;
use crate::wire::connection::{RELEASE, RELEASED, SessionName};
use crate::wire::discovery::Instance;
use crate::wire::offer::{Agreement, VolumeId};
use crate::wire::pcu::RawPcu;
use crate::wire::{Class, Header, PacketType};

/// A connection that lives.
struct Live {
    channel: Channel,
    agreement: Agreement,
    write_room_bytes: u32,
    transfer_max_bytes: u32,
}

/// What answers are true of: a run of a server, and a volume.
type Former = (Instance, VolumeId);

/// Somebody says that the server does not know the connection. It is asked.
struct Doubt {
    /// Until when it may answer.
    until: Instant,
    /// What had been heard of it before.
    heard: u64,
}

/// The client's end of its session.
pub struct Client {
    config: ClientConfig,
    random: Randomness,
    session: SessionName,
    /// From which it seeks its server.
    port: u16,
    /// How often that was changed by what servers say, since it has begun to seek.
    moves: u32,
    live: Option<Live>,
    seek: Option<Seek>,
    /// Since when there is no connection.
    lost_at: Instant,
    /// With whom this session had its last one.
    former: Option<Former>,
    /// The key of the server that has accepted us last.
    known_key: Option<[u8; 32]>,
    hinted_at: Option<Instant>,
    doubt: Option<Doubt>,
    said: Said,
    orders: Orders,
    loose: VecDeque<(Path, Packet)>,
    events: VecDeque<ClientEvent>,
    counters: Counters,
    is_closed: bool,
    plain: Vec<u8>,
}

impl Client {
    /// A client that begins to seek its server.
    #[must_use]
    pub fn new(config: ClientConfig, now: Instant) -> Self {
        let mut random = Randomness::new(config.seed);
        let session = SessionName { client: config.identity.client_id(), run: random.u64(), epoch: 0 };
        let port = (random.u32() as u16).max(1);
        let mut client = Client {
            config,
            random,
            session,
            port,
            moves: 0,
            live: None,
            seek: None,
            lost_at: now,
            former: None,
            known_key: None,
            hinted_at: None,
            doubt: None,
            said: Said::default(),
            orders: Orders::default(),
            loose: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            is_closed: false,
            plain: Vec::new(),
        };
        client.begin_seek(now);
        client
    }

    fn begin_seek(&mut self, now: Instant) {
        if !self.is_closed {
            // The library refuses no key that we draw; if it did, the next attempt would draw another.
            self.seek = Seek::new(&self.config, (self.session, self.port), &mut self.random, now).ok();
        }
    }

    /// Gives a command. It waits for a connection, for as long as the client has patience.
    ///
    /// # Errors
    /// [`OrderError`] for one that cannot be given.
    pub fn order(&mut self, order: Order, now: Instant) -> Result<CommandId, OrderError> {
        let id = self.orders.order(order)?;
        self.give(now);
        Ok(id)
    }

    fn give(&mut self, now: Instant) {
        let Some(live) = &mut self.live else { return };
        let said = self.said.oldest();
        let mut too_long = self.orders.take_longer(live.transfer_max_bytes);
        while let Some(pieces) = self.orders.give(live.write_room_bytes, live.agreement.data_bytes, said) {
            pieces.into_iter().for_each(|piece| live.channel.send(piece, now));
            too_long.extend(self.orders.take_longer(live.transfer_max_bytes));
        }
        self.tell(too_long);
    }

    /// The disk is the same as before the server forgot us: what may be repeated is given again, and the rest is lost.
    pub fn resume(&mut self, now: Instant) {
        let data_bytes = self.live.as_ref().map_or(512, |live| live.agreement.data_bytes);
        let (pieces, ended) = self.orders.resume(data_bytes);
        self.tell(ended);
        self.send(pieces, now);
        self.give(now);
    }

    /// The disk is another one: all commands are lost.
    pub fn abandon(&mut self) {
        let ended = self.orders.fail();
        self.tell(ended);
    }

    fn send(&mut self, pieces: Vec<Piece>, now: Instant) {
        if let Some(live) = &mut self.live {
            pieces.into_iter().for_each(|piece| live.channel.send(piece, now));
        }
    }

    fn tell(&mut self, ended: Vec<Ended>) {
        let event = |(id, outcome, data, data_bytes)| ClientEvent::Ended { id, outcome, data, data_bytes };
        let events = ended.into_iter().map(event);
        self.events.extend(events);
    }

    /// The disk is another one: the commands that are held for that are lost. Others wait still for [`Client::resume`].
    pub fn abandon_held(&mut self) {
        let ended = self.orders.fail_held();
        self.tell(ended);
    }

    /// This command is lost, if it is held.
    pub fn withdraw(&mut self, id: CommandId) {
        let ended = self.orders.withdraw(id);
        self.tell(ended.into_iter().collect());
    }

    /// Commands that are not answered.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.orders.len()
    }

    /// Whether commands that are no probes are held, until it is known whether the disk is the same.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.orders.is_held
    }

    /// Releases the connection. All commands are lost.
    pub fn close(&mut self) {
        self.farewell(RELEASE);
        (self.is_closed, self.live, self.seek) = (true, None, None);
        self.abandon();
    }

    fn farewell(&mut self, operation: u8) {
        let Some(live) = &mut self.live else { return };
        if let Some(packet) = live.channel.seal(Class::Connection, &[operation]) {
            self.loose.push_back((live.channel.path, packet));
        }
    }

    /// A packet has come.
    pub fn handle_input(&mut self, path: Path, packet: &[u8], now: Instant) {
        match Header::read(packet) {
            Ok(header) if !header.from_server || !self.has_port(header.client_port) => self.counters.malformed += 1,
            Ok(header) if header.packet_type == PacketType::Pdu => self.handle_pdu(path, header, packet, now),
            Ok(header) => match RawPcu::read(packet) {
                Ok(raw) if raw.pcu.is_sealed => self.handle_sealed(path, &raw, now),
                Ok(raw) if raw.is_whole() && raw.pcu.class == Class::Connection => {
                    self.handle_open(path, header, &raw, now);
                }
                _ => self.counters.malformed += 1,
            },
            Err(_) => self.counters.malformed += 1,
        }
    }

    fn has_port(&self, port: u16) -> bool {
        port == self.port || self.live.as_ref().is_some_and(|live| live.channel.client_port() == port)
    }

    fn handle_pdu(&mut self, path: Path, header: Header, packet: &[u8], now: Instant) {
        let Some(live) = self.live.as_mut().filter(|live| live.channel.is_of(path, &header)) else {
            self.counters.unknown_connection += 1;
            return;
        };
        let (mut plain, orders) = (std::mem::take(&mut self.plain), &mut self.orders);
        let opened = live.channel.open(packet, &mut plain, move |pdu| orders.vacancy(pdu), now);
        let taken = opened.and_then(|(pdu, opened)| {
            // First, so that no command ends of which nobody is told.
            if live.channel.took(&pdu, now) { self.orders.take(&pdu, &opened) } else { Err(Rejected::Violation) }
        });
        self.plain = plain;
        match taken {
            Ok(ended) => {
                self.tell(ended.into_iter().collect());
                self.give(now);
            }
            Err(rejected) => self.reject(rejected, now),
        }
    }

    fn reject(&mut self, rejected: Rejected, now: Instant) {
        match rejected {
            Rejected::Malformed => self.counters.malformed += 1,
            Rejected::NotAuthentic => self.counters.not_authentic += 1,
            Rejected::Duplicate => self.counters.duplicates += 1,
            Rejected::NoMemory => self.counters.no_memory += 1,
            Rejected::Violation => {
                self.counters.violations += 1;
                self.lose(now);
            }
        }
    }

    /// There is no connection any more.
    fn lose(&mut self, now: Instant) {
        self.drop_live(now);
        if self.seek.is_none() {
            self.begin_seek(now);
        }
    }

    fn drop_live(&mut self, now: Instant) {
        self.doubt = None;
        if self.live.take().is_some() {
            self.lost_at = now;
            self.events.push_back(ClientEvent::Disconnected);
        }
    }

    fn handle_sealed(&mut self, path: Path, raw: &RawPcu<'_>, now: Instant) {
        let header = raw.pcu.header;
        if let Some(live) = self.live.as_mut().filter(|live| live.channel.is_of(path, &header)) {
            match live.channel.handle_control(raw, now) {
                Ok(Heard::Release) => {
                    self.farewell(RELEASED);
                    self.lose(now);
                }
                // It says again that we are accepted: our proof has come twice.
                Ok(Heard::Answer(_) | Heard::Nothing | Heard::Arrived(_) | Heard::Accepted(_) | Heard::Released) => {}
                Err(rejected) => self.reject(rejected, now),
            }
            return;
        }
        match self.seek.as_mut().and_then(|seek| seek.accepted(path, raw, now)) {
            Some((candidate, agreement)) if !self.can_keep(&candidate, &agreement) => self.counters.violations += 1,
            Some((candidate, agreement)) => self.connected(candidate, agreement, now),
            None => self.counters.unknown_connection += 1,
        }
    }

    /// What there is to tell.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// The next packet, and where it goes.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        if let Some(loose) = self.loose.pop_front() {
            return Some(loose);
        }
        if let Some(seek) = &mut self.seek {
            self.loose.extend(seek.poll(&self.config.places, now));
        }
        if let Some(loose) = self.loose.pop_front() {
            return Some(loose);
        }
        let live = self.live.as_mut()?;
        let packet = live.channel.poll_transmit(now)?;
        Some((live.channel.path, packet))
    }

    /// When [`Client::handle_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let live = self.live.as_ref().and_then(|live| live.channel.poll_timeout());
        let seek = self.seek.as_ref().map(Seek::poll_timeout);
        let doubt = self.doubt.as_ref().map(|doubt| doubt.until);
        live.into_iter().chain(seek).chain(doubt).chain(self.said.poll_timeout()).chain(self.impatient_at()).min()
    }

    fn impatient_at(&self) -> Option<Instant> {
        let waits = self.live.is_none() && !self.orders.is_empty();
        waits.then_some(self.lost_at + self.config.patience)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.settle_doubt(now);
        if self.said.expire(now) {
            self.give(now);
        }
        if let Some(live) = &mut self.live {
            let is_alive = live.channel.handle_timeout(now);
            let is_worn = live.channel.is_worn();
            if !is_alive {
                self.lose(now);
            } else if is_worn && self.seek.is_none() {
                self.begin_seek(now);
            }
        }
        if self.impatient_at().is_some_and(|at| at <= now) {
            self.lost_at = now;
            self.begin_anew(now);
        }
        if let Some(seek) = self.seek.as_ref().filter(|seek| seek.is_over(now)) {
            // A hint that was wrong: the server goes on.
            let goes_on = |live: &Live| live.channel.heard_at() > seek.begun_at && !live.channel.is_worn();
            match self.live.as_ref().is_some_and(goes_on) {
                true => self.seek = None,
                false => {
                    if seek.is_without_volume && self.live.is_none() {
                        self.events.push_back(ClientEvent::VolumeGone);
                    }
                    self.moves = 0;
                    self.begin_seek(now);
                }
            }
            self.give(now);
        }
    }

    /// What a link takes may have changed: a connection whose packets are too large for it gives way to another one.
    pub fn set_link(&mut self, link: LinkId, packet_max_bytes: u16, now: Instant) {
        let Some(known) = self.config.links.get_mut(usize::from(link.0)) else { return };
        known.packet_max_bytes = packet_max_bytes;
        let is_too_large = |live: &&Live| {
            live.channel.path.link == link
                && live.agreement.data_bytes > data_bytes(packet_max_bytes, live.agreement.disk_type)
        };
        if self.live.as_ref().filter(is_too_large).is_some() {
            self.lose(now);
        }
    }

    /// What was dropped.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// As if the server took as much as was agreed, whatever it says.
    #[cfg(test)]
    pub(crate) fn ignore_room(&mut self, now: Instant) {
        self.live.iter_mut().for_each(|live| live.channel.ignore_room(now));
    }

    /// Whether there is a connection.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.live.is_some()
    }
}

#[cfg(test)]
mod tests;
