//! From a discovery to an accepted connection (HyperSCSI 5.1).

use std::collections::BTreeMap;

use sanwire_buffer::{Head, Packet};
use sanwire_core::{ClientId, Instant, NexusId, Path};

use super::connection::Connection;
use super::cookie::Asker;
use super::gate::{Passage, Standing};
use super::handshake::HalfOpen;
use super::places::Applicant;
use super::session::Session;
use super::throttle::Who;
use super::{LOOSE_MAX, LinkLimits, Offence, Server, ServerEvent};
use crate::channel::{Capacity, Channel, Setup, Sizes};
use crate::handshake::{Handshake, Misread, Responder};
use crate::keys::KeyError;
use crate::options::Agreed;
use crate::packet_base_bytes;
use crate::succession;
use crate::terms::Terms;
use crate::wire::flow::Window;
use crate::wire::offer::Offer;
use crate::wire::packet::put_checksum;
use crate::wire::setup::{AdnRequest, Discovery, Refusal, read_adn_reply, steering_word};
use crate::wire::{Header, Opcode, Prefix, Protection, RawPacket, Tag};

/// So often an id with a mark is drawn that no connection has and that steers to this shard.
const MARKED_DRAWS: u32 = 1 << 16;

/// A session that begins or goes on.
struct Opening<'a> {
    client: ClientId,
    number: u64,
    name: &'a str,
    path: Path,
    options: Agreed,
}

impl Server {
    pub(super) fn handle_discovery(&mut self, path: Path, packet: &RawPacket<'_>, now: Instant) {
        let RawPacket { prefix, body, .. } = packet;
        if !packet.checksum_holds(None) {
            self.note_offence(Offence::NotAuthentic, None, path, now);
            return;
        }
        let Ok((discovery, prologue)) = Discovery::read(body) else {
            self.counters.malformed += 1;
            return;
        };
        // Else one client could have sessions in all shards.
        if prefix.connection != steering_word(discovery.client) {
            self.counters.misdirected += 1;
            return;
        }
        if !discovery.server_name.is_empty() && discovery.server_name != self.config.name {
            return;
        }
        // A client that is not configured is ignored in silence (HyperSCSI 6.2).
        if !self.config.admission.permits(path.peer, Some(discovery.client)) {
            self.counters.not_permitted += 1;
            return;
        }
        let link = self.link(path);
        if discovery.announce_only {
            let body = AdnRequest::Announcement {
                packet_max_bytes: link.packet_max_bytes,
                instance: self.config.instance,
                server_name: &self.config.name,
            }
            .write();
            self.send_loose(path, prefix.connection, prefix.number, &body);
        } else if let Some(answer) = self.half_opens.repeat(path, (discovery.client, discovery.session), prefix.number)
        {
            let answer = answer.to_vec();
            self.send_loose(path, prefix.connection, prefix.number, &answer);
        } else if self.is_too_early(path, discovery.client, now) {
            self.note_too_early(prefix.number);
        } else if self.may_begin(path, prefix, &discovery, now)
            && self.second_step(path, prefix, &discovery, prologue, link, now).is_err()
        {
            self.note_offence(Offence::Handshake, Some(discovery.client), path, now);
        }
    }

    /// Whether a handshake begins, which is what costs most of all that a stranger can ask for.
    fn may_begin(&mut self, path: Path, prefix: &Prefix, discovery: &Discovery<'_>, now: Instant) -> bool {
        let applicant = Applicant { client: discovery.client, session: discovery.session, host: path.peer.host() };
        let asker = Asker { path, client: discovery.client, attempt: prefix.number };
        let is_listed = || self.config.admission.is_listed(discovery.client);
        let standing = || standing_of(&self.by_client, &self.sessions, applicant, is_listed);
        match self.gate.pass(asker, discovery.cookie, standing, &mut self.random, now) {
            // The client repeats itself, and the others will be done.
            Passage::Open if !self.half_opens.has_room(now) => self.counters.crowded += 1,
            Passage::Open if self.could_have_place(applicant) => return true,
            Passage::Open => self.refuse(path, prefix.connection, prefix.number, Refusal::Full),
            Passage::Cookie(cookie) => {
                self.counters.challenged += 1;
                self.send_loose(path, prefix.connection, prefix.number, &AdnRequest::Cookie(cookie).write());
            }
            Passage::Shut => self.counters.crowded += 1,
        }
        false
    }

    /// A client that shakes hands with us.
    fn who(&self, path: Path, client: ClientId) -> Who {
        let has_session = self.by_client.range((client, 0)..=(client, u64::MAX)).next().is_some();
        Who { peer: path.peer, client, is_known: has_session || self.config.admission.is_listed(client) }
    }

    /// Whose wrong password it is that came in the name of a client. The key that was shown is the sender's own, whomever he names:
    /// a client waits for nobody who has only its name, and who names one that we know guesses no faster for that.
    fn guesser(&self, path: Path, client: ClientId, by: ClientId) -> Who {
        if by == client { self.who(path, client) } else { Who { peer: path.peer, client: by, is_known: false } }
    }

    fn is_too_early(&mut self, path: Path, client: ClientId, now: Instant) -> bool {
        let who = self.who(path, client);
        self.throttle.is_too_early(who, now)
    }

    /// Something comes too soon after a wrong password. The client repeats itself; that is one attempt.
    fn note_too_early(&mut self, attempt: u64) {
        match self.throttle.is_first(attempt) {
            true => self.counters.throttled += 1,
            false => self.counters.duplicates += 1,
        }
    }

    fn second_step(
        &mut self,
        path: Path,
        prefix: &Prefix,
        discovery: &Discovery<'_>,
        prologue: &[u8],
        link: LinkLimits,
        now: Instant,
    ) -> Result<(), KeyError> {
        let config = &self.config;
        let psk = config.admission.psk(discovery.client).unwrap_or(config.psk);
        let offer = Offer {
            packet_max_bytes: link.packet_max_bytes,
            receive_capacity_packets: link.receive_capacity_packets,
            commands_max: config.commands_max,
            transfer_max_bytes: config.transfer_max_bytes,
            keep_alive_ms: u32::try_from(config.keep_alive.as_millis()).unwrap_or(u32::MAX),
            instance: config.instance,
            name: config.name.clone(),
            unanswered: None,
            options: self.options_for(discovery.client, self.connections_with(discovery.client, discovery.session)),
        };
        let keys = (&config.identity, &psk);
        let (responder, noise) = Responder::new(keys, prologue, discovery.noise, offer.write(), &mut self.random)?;
        let connection = self.draw_connection();
        let answer = AdnRequest::Handshake { connection, noise: &noise }.write();
        self.send_loose(path, prefix.connection, prefix.number, &answer);
        self.half_opens.insert(HalfOpen {
            connection,
            path,
            client: discovery.client,
            session: discovery.session,
            attempt: prefix.number,
            packet_max_bytes: discovery.packet_max_bytes,
            options: offer.options,
            responder,
            answer,
            begun_at: now,
            failed: Vec::new(),
        });
        self.half_opens.poll_timeout().inspect(|at| self.wake_at(*at));
        Ok(())
    }

    /// An id that no connection has, that steers to this shard and by which we know it after a restart.
    fn draw_connection(&mut self) -> u32 {
        let mut draws = 0;
        loop {
            let drawn = self.random.u32();
            // Among very many shards there may be none left.
            let id = if draws < MARKED_DRAWS { self.marks.id(drawn) } else { drawn };
            let is_free = id != 0 && !self.connections.contains_key(&id) && !self.half_opens.has(id);
            if is_free && self.steers_here(id) {
                return id;
            }
            draws += 1;
        }
    }

    pub(super) fn handle_third_step(&mut self, path: Path, packet: &RawPacket<'_>, now: Instant) {
        let RawPacket { prefix, body, .. } = packet;
        if !packet.checksum_holds(None) {
            self.note_offence(Offence::NotAuthentic, None, path, now);
            return;
        }
        if let Some(connection) = self.connections.get_mut(&prefix.connection).filter(|c| c.channel.path() == path) {
            self.counters.duplicates += 1;
            connection.accept_again(now);
            self.touch(prefix.connection);
            return;
        }
        let Some(half_open) = self.half_opens.get_mut(prefix.connection, path, now) else {
            self.unknown_connection(path, prefix.connection, now);
            return;
        };
        if half_open.is_repeated(body) {
            self.counters.duplicates += 1;
            self.refuse(path, prefix.connection, prefix.number, Refusal::NotAuthentic);
            return;
        }
        let client = half_open.client;
        // Handshakes that were begun before the wrong password are no way around the wait.
        if self.is_too_early(path, client, now) {
            self.note_too_early(prefix.number);
            return;
        }
        let Some((half_open, handshake, offer)) = self.verify(path, prefix, body, now) else { return };
        self.throttle.forgive(path.peer, client);
        if !self.config.admission.permits(path.peer, Some(client)) {
            self.counters.not_permitted += 1;
        } else if !self.make_place(Applicant { client, session: half_open.session, host: path.peer.host() }) {
            self.refuse(path, prefix.connection, prefix.number, Refusal::Full);
        } else {
            match Terms::new(half_open.options.clone(), offer.options.clone(), self.config.transfer_max_bytes) {
                Err(_) => {
                    self.note_offence(Offence::Conflict, Some(client), path, now);
                    self.refuse(path, prefix.connection, prefix.number, Refusal::Options);
                }
                Ok(terms) => match self.establish(half_open, handshake, &offer, terms, now) {
                    Ok(()) => self.share_windows(now),
                    Err(_) => self.note_offence(Offence::Handshake, Some(client), path, now),
                },
            }
        }
    }

    /// Reads a third step. When it verifies, its handshake is no longer under way.
    fn verify(
        &mut self,
        path: Path,
        prefix: &Prefix,
        body: &[u8],
        now: Instant,
    ) -> Option<(HalfOpen, Handshake, Offer)> {
        let half_open = self.half_opens.get_mut(prefix.connection, path, now)?;
        let client = half_open.client;
        let noise = read_adn_reply(body).map_err(|_| Misread::Garbage);
        let read = noise.and_then(|noise| half_open.responder.read(&self.config.identity, client, noise));
        let offer = read.and_then(|(payload, handshake)| {
            Offer::read(&payload).map(|offer| (handshake, offer)).map_err(|_| Misread::Garbage)
        });
        let misread = match offer {
            Ok((handshake, offer)) => {
                return self.half_opens.establish(prefix.connection).map(|half_open| (half_open, handshake, offer));
            }
            Err(misread) => misread,
        };
        half_open.failed = body.to_vec();
        if half_open.responder.is_worn() {
            self.half_opens.take(prefix.connection);
        }
        let mut offence = Offence::Handshake;
        if let Misread::Guess { by } = misread {
            offence = Offence::WrongPassword;
            let who = self.guesser(path, client, by);
            if self.throttle.is_too_early(who, now) {
                self.note_too_early(prefix.number);
                return None;
            }
            self.throttle.failed(who, now);
        }
        self.note_offence(offence, Some(client), path, now);
        self.refuse(path, prefix.connection, prefix.number, Refusal::NotAuthentic);
        None
    }

    /// The client hears that it is accepted when it gets its share.
    fn establish(
        &mut self,
        half_open: HalfOpen,
        handshake: Handshake,
        offer: &Offer,
        mut terms: Terms,
        now: Instant,
    ) -> Result<(), KeyError> {
        let path = half_open.path;
        let link = self.link(path);
        let client = half_open.client;
        let session = half_open.session;
        let ring = handshake.finish()?;
        let capacity = Capacity { ours: link.receive_capacity_packets, theirs: offer.receive_capacity_packets };
        let limit = link.packet_max_bytes.min(offer.packet_max_bytes).min(half_open.packet_max_bytes) as usize;
        let agreed = terms.agreed().clone();
        let mut channel = Channel::new(Setup {
            path,
            connection: half_open.connection,
            ring,
            floor: agreed.protection_min,
            data_opcode: Opcode::HcbeReply,
            window: Window::fitting(1),
            recovery: self.config.recovery,
            sizes: Sizes { packet_base_bytes: packet_base_bytes(path.peer).min(limit), packet_limit_bytes: limit },
            capacity,
            now,
        });
        channel.apply(&agreed);
        let opening = Opening { client, number: session, name: &offer.name, path, options: agreed };
        let (nexus, resumed) = self.resume_or_open(opening, half_open.connection, now);
        if let Some(session) = self.sessions.get_mut(&nexus) {
            terms.keep_transfer_limit(session.transfer_limit_bytes);
            if let Some(unanswered) = &offer.unanswered {
                session.keep_only(unanswered);
            }
        }
        let Some(memory) = self.sessions.get(&nexus).map(|session| session.memory.clone()) else { return Ok(()) };
        let timers = (self.config.keep_alive, self.config.rekey_interval);
        let mut connection = Connection::new(channel, nexus, memory, terms, timers, now);
        // Before the acceptance: with that the client begins to send.
        if self.is_paused(client, nexus) {
            connection.channel.pause(true, now);
        }
        connection.admit(resumed, now);
        self.connections.insert(half_open.connection, connection);
        self.touch(half_open.connection);
        Ok(())
    }

    fn resume_or_open(&mut self, opening: Opening<'_>, connection: u32, now: Instant) -> (NexusId, bool) {
        let Opening { client, number, name, path, options } = opening;
        if let Some(&nexus) = self.by_client.get(&(client, number))
            && let Some(session) = self.sessions.get_mut(&nexus)
        {
            let old = session.connection.and_then(|old| self.connections.remove(&old));
            if let Some(old) = old {
                session.note_transfers(old.terms.taken_transfer_bytes());
                if old.channel.is_held() {
                    self.events.push_back(ServerEvent::Held { nexus, is_held: false });
                }
            }
            session.connect(connection);
            session.host = path.peer.host();
            self.events.push_back(ServerEvent::SessionResumed { nexus, path, options: Box::new(options) });
            return (nexus, true);
        }
        self.end_predecessors(client, number, now);
        let nexus = NexusId(self.next_nexus);
        self.next_nexus += u64::from(self.config.shards.max(1));
        let memory = self.memory_of(client);
        let mut session = Session::new((client, number), nexus, path.peer.host(), memory.clone(), now);
        session.connect(connection);
        self.sessions.insert(nexus, session);
        self.by_client.insert((client, number), nexus);
        let (run, name) = (succession::run(number), name.to_owned());
        self.events.push_back(ServerEvent::SessionOpened { nexus, client, run, name, path, options, memory });
        (nexus, false)
    }

    pub(super) fn link(&self, path: Path) -> LinkLimits {
        let unknown = LinkLimits { packet_max_bytes: 1200, receive_capacity_packets: 8 };
        self.config.links.get(usize::from(path.link.0)).copied().unwrap_or(unknown)
    }

    /// A packet of a connection that is not known: after a restart, clients learn so that they should come again. Who has had no
    /// connection here, or may not connect, learns nothing, and nobody learns it more often than a restart needs.
    pub(super) fn unknown_connection(&mut self, path: Path, connection: u32, now: Instant) {
        self.counters.unknown_connection += 1;
        let may_hear = self.marks.is_ours(connection) && self.config.admission.permits(path.peer, None);
        if may_hear && self.hints.take(now) {
            self.refuse(path, connection, 0, Refusal::UnknownConnection);
        }
    }

    fn refuse(&mut self, path: Path, connection: u32, number: u64, reason: Refusal) {
        self.send_loose(path, connection, number, &AdnRequest::Refusal(reason).write());
    }

    fn send_loose(&mut self, path: Path, connection: u32, number: u64, body: &[u8]) {
        if self.loose.len() < LOOSE_MAX {
            self.loose.push_back((path, loose_packet(Opcode::AdnRequest, connection, number, body)));
        }
    }
}

fn standing_of(
    by_client: &BTreeMap<(ClientId, u64), NexusId>,
    sessions: &BTreeMap<NexusId, Session>,
    Applicant { client, host, .. }: Applicant,
    is_listed: impl FnOnce() -> bool,
) -> Standing {
    let mut own =
        by_client.range((client, 0)..=(client, u64::MAX)).filter_map(|(_, nexus)| sessions.get(nexus)).peekable();
    let has_session = own.peek().is_some();
    match () {
        () if own.any(|session| session.host == host) => Standing::AtHome,
        () if has_session || is_listed() => Standing::Known,
        () => Standing::Stranger,
    }
}

/// A packet outside any connection: checked, not authenticated.
pub(crate) fn loose_packet(opcode: Opcode, connection: u32, number: u64, body: &[u8]) -> Packet {
    let header = Header::single(opcode, Tag::default());
    let prefix = Prefix { header, protection: Protection::Checksum, epoch: 0, connection, number };
    let mut head = Head::new();
    head.extend(&prefix.write(body.len()));
    head.extend(body);
    put_checksum(None, &mut head, &[]);
    Packet { head, payload: None }
}
