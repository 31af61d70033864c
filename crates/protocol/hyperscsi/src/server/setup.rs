//! From a discovery to the second step of a handshake (HyperSCSI 5.1).

use std::collections::BTreeMap;

use sanwire_buffer::{Head, Packet};
use sanwire_core::{ClientId, Instant, NexusId, Path};
use sanwire_exchange::places::Applicant;
use sanwire_security::{Asker, Passage, Standing, Who};

use super::session::Session;
use super::{LinkLimits, SecurityEvent, Server};
use crate::handshake::Responder;
use crate::keys::KeyError;
use crate::options::Options;
use crate::wire::offer::Offer;
use crate::wire::packet::put_checksum;
use crate::wire::setup::{AdnRequest, Discovery, Proof, Refusal, SecondStep, steering_word};
use crate::wire::{Header, Opcode, Prefix, Protection, RawPacket, Tag};

/// So often an id with a mark is drawn that no connection has and that steers to this shard.
const MARKED_DRAWS: u32 = 1 << 16;

/// What both ends have said in a handshake so far.
pub(super) struct Said {
    /// The largest packet of the client's link, in bytes.
    pub(super) packet_max_bytes: u32,
    /// What our offer said.
    pub(super) options: Options,
}

/// A handshake after its second step.
pub(super) type HalfOpen = sanwire_security::HalfOpen<Said>;

impl Server {
    pub(super) fn handle_discovery(&mut self, path: Path, packet: &RawPacket<'_>, now: Instant) {
        let RawPacket { prefix, body, .. } = packet;
        if !packet.checksum_holds(None) {
            self.note_offence(SecurityEvent::NotAuthentic, None, path, now);
            return;
        }
        let Ok((discovery, prologue)) = Discovery::read(body) else {
            self.counters.malformed += 1;
            return;
        };
        // Another server may be there already for those who seek this one.
        if self.is_closed {
            return;
        }
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
            return self.note_stranger(path, discovery.client, now);
        }
        let (link, session) = (self.link(path), (discovery.client, discovery.session));
        if discovery.announce_only {
            let body = AdnRequest::Announcement {
                packet_max_bytes: link.packet_max_bytes,
                instance: self.config.instance,
                server_name: &self.config.name,
            }
            .write();
            self.send_loose(path, prefix.connection, prefix.number, &body);
        } else if let Some(answer) = self.half_opens.repeat(path, session, prefix.number, discovery.noise) {
            let answer = answer.to_vec();
            self.send_loose(path, prefix.connection, prefix.number, &answer);
        } else if self.is_accepted(session, discovery.noise) {
            // What its other handshakes in this attempt say of its commands is older than the connection.
            self.counters.duplicates += 1;
        } else if self.is_too_early(path, discovery.client, now) {
            self.note_too_early(prefix.number);
        } else if self.may_begin(path, prefix, &discovery, now)
            && self.second_step(path, prefix, &discovery, prologue, link, now).is_err()
        {
            self.note_offence(SecurityEvent::Handshake, Some(discovery.client), path, now);
        }
    }

    /// Whether the connection of a session is of this attempt, or was. An attempt leads to one: the client hears that it is accepted
    /// when it repeats its third step.
    fn is_accepted(&self, session: (ClientId, u64), first: &[u8]) -> bool {
        let nexus = self.by_client.get(&session);
        nexus.and_then(|nexus| self.sessions.get(nexus)).is_some_and(|session| session.attempt == first)
    }

    /// Whether a handshake begins, which is what costs most of all that a stranger can ask for.
    fn may_begin(&mut self, path: Path, prefix: &Prefix, discovery: &Discovery<'_>, now: Instant) -> bool {
        let applicant = self.applicant((discovery.client, discovery.session), path.peer.host());
        let asker = Asker { path, client: discovery.client, attempt: prefix.number };
        let standing = || standing_of(&self.by_client, &self.sessions, applicant);
        match self.gate.pass(asker, discovery.cookie, standing, &mut self.random, now) {
            // The client repeats itself, and the others will be done.
            Passage::Open if !self.half_opens.has_room(now) => self.counters.crowded += 1,
            Passage::Open if self.could_have_place(applicant) => return true,
            Passage::Open => {
                self.tally.handshakes.full += 1;
                self.refuse(path, prefix, Refusal::Full, None);
            }
            Passage::Cookie(cookie) => {
                self.counters.challenged += 1;
                self.send_loose(path, prefix.connection, prefix.number, &AdnRequest::Cookie(cookie).write());
            }
            Passage::Shut => self.counters.crowded += 1,
        }
        false
    }

    /// A client that shakes hands with us.
    pub(super) fn who(&self, path: Path, client: ClientId) -> Who {
        let has_session = self.by_client.range((client, 0)..=(client, u64::MAX)).next().is_some();
        Who { peer: path.peer, client, is_known: has_session || self.config.admission.is_listed(client) }
    }

    pub(super) fn is_too_early(&mut self, path: Path, client: ClientId, now: Instant) -> bool {
        let who = self.who(path, client);
        self.throttle.is_too_early(who, now)
    }

    /// Something comes too soon after a wrong password. The client repeats itself; that is one attempt.
    pub(super) fn note_too_early(&mut self, attempt: u64) {
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
        let connection = self.draw_connection();
        let said = (connection, &offer.write()[..]);
        let keys = (&self.config.identity, &psk);
        let (responder, noise, mark) = Responder::new(keys, prologue, discovery.noise, said, &mut self.random)?;
        let answer = AdnRequest::Handshake(SecondStep { connection, noise: &noise, mark }).write();
        self.send_loose(path, prefix.connection, prefix.number, &answer);
        self.half_opens.insert(HalfOpen {
            connection,
            path,
            client: discovery.client,
            session: discovery.session,
            attempt: prefix.number,
            said: Said { packet_max_bytes: discovery.packet_max_bytes, options: offer.options },
            responder,
            answer,
            begun_at: now,
            refused: None,
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

    pub(super) fn link(&self, path: Path) -> LinkLimits {
        let unknown = LinkLimits { packet_max_bytes: 1200, receive_capacity_packets: 8 };
        self.config.links.get(usize::from(path.link.0)).copied().unwrap_or(unknown)
    }

    /// A packet of a connection that is not known: after a restart, clients learn so that they should come again. Who has had no
    /// connection here, or may not connect, learns nothing, and nobody learns it more often than a restart needs.
    pub(super) fn unknown_connection(&mut self, path: Path, connection: u32, now: Instant) {
        self.counters.unknown_connection += 1;
        let may_hear = self.marks.is_ours(connection) && self.config.admission.permits(path.peer, None);
        if may_hear && self.accounts.hints.take(now) {
            self.send_loose(path, connection, 0, &AdnRequest::Refusal(Refusal::UnknownConnection, None).write());
        }
    }

    /// Refuses a step of a handshake; with a proof, if it is the third.
    pub(super) fn refuse(&mut self, path: Path, prefix: &Prefix, reason: Refusal, proof: Option<Proof>) {
        self.send_loose(path, prefix.connection, prefix.number, &AdnRequest::Refusal(reason, proof).write());
    }

    fn send_loose(&mut self, path: Path, connection: u32, number: u64, body: &[u8]) {
        if self.accounts.loose.admits(self.loose.len() as u64, 1) {
            self.loose.push_back((path, loose_packet(Opcode::AdnRequest, connection, number, body)));
        }
    }
}

fn standing_of(
    by_client: &BTreeMap<(ClientId, u64), NexusId>,
    sessions: &BTreeMap<NexusId, Session>,
    Applicant { client, host, is_listed, .. }: Applicant,
) -> Standing {
    let mut own =
        by_client.range((client, 0)..=(client, u64::MAX)).filter_map(|(_, nexus)| sessions.get(nexus)).peekable();
    let has_session = own.peek().is_some();
    match () {
        () if own.any(|session| session.host == host) => Standing::AtHome,
        () if has_session || is_listed => Standing::Known,
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
    Packet::new(head, None)
}
