//! The first steps of handshakes at a server: who is there, and from the wish for a connection to the challenge.

use sanwire_buffer::Packet;
use sanwire_core::{ClientId, Instant, Path};
use sanwire_security::handshake::{Proof, Responder, SecondStep};
use sanwire_security::keys::KeyError;
use sanwire_security::{Asker, HalfOpen, Passage, Standing, Who};

use super::types::LinkLimits;
use super::{Offence, Server};
use crate::wire::Kind;
use crate::wire::header::{RawPacket, open_packet};
use crate::wire::offer::{Found, Offer, ServerOffer};
use crate::wire::setup::{Accept, Connect, Refusal, steering_word};

/// So often an id with a mark is drawn that no connection has and that steers to this shard.
const MARKED_DRAWS: u32 = 1 << 16;

impl Server {
    pub(super) fn handle_connect(&mut self, path: Path, raw: &RawPacket<'_>, now: Instant) {
        let connect = match Connect::read(raw.payload) {
            Ok(connect) if raw.is_whole() => connect,
            _ => {
                self.counters.malformed += 1;
                return;
            }
        };
        // Another server may be there already for those who seek this one.
        if self.is_closed {
            return;
        }
        // Else one client could have sessions in all shards.
        if raw.header.connection != steering_word(connect.client) {
            self.counters.misdirected += 1;
            return;
        }
        let is_meant = connect.server_name.is_empty() || connect.server_name == self.config.name;
        if !is_meant {
            return;
        }
        // Who is not permitted hears nothing.
        if !self.config.doorkeeper.permits(path.peer, Some(connect.client)) {
            return self.note_stranger(path, connect.client, now);
        }
        let word = raw.header.connection;
        if connect.is_query {
            let packet_max_bytes = self.link(path).packet_max_bytes;
            let found = Found { instance: self.config.instance, packet_max_bytes, name: self.config.name.clone() };
            return self.send_accept(path, word, &Accept::Found { attempt: connect.attempt, found });
        }
        let session = (connect.client, connect.session);
        if let Some(answer) = self.half_opens.repeat(path, session, connect.attempt, &connect.noise) {
            let answer = answer.to_vec();
            self.send_open(path, word, &answer);
        } else if self.is_accepted(session, &connect.noise) {
            // The client hears that it is accepted when it repeats its third step.
            self.counters.duplicates += 1;
        } else if self.is_too_early(path, connect.client, now) {
            self.note_too_early(connect.attempt);
        } else if self.may_begin(path, &connect, now) && self.challenge(path, &connect, now).is_err() {
            self.note_offence(Offence::Handshake, connect.client, path, now);
        }
    }

    /// Whether this first step has led to the connection that the session has now.
    fn is_accepted(&self, session: (ClientId, u64), first: &[u8; 32]) -> bool {
        let connection = self.by_client.get(&session).and_then(|nexus| self.sessions.get(nexus)?.connection);
        connection.and_then(|id| self.connections.get(&id)).is_some_and(|connection| connection.first == *first)
    }

    pub(super) fn note_stranger(&mut self, path: Path, client: ClientId, now: Instant) {
        self.counters.not_permitted += 1;
        self.strangers.note(path, client, now);
    }

    pub(super) fn who(&self, path: Path, client: ClientId) -> Who {
        let is_known = self.sessions_of(client).next().is_some() || self.config.doorkeeper.is_listed(client);
        Who { peer: path.peer, client, is_known }
    }

    pub(super) fn is_too_early(&mut self, path: Path, client: ClientId, now: Instant) -> bool {
        let who = self.who(path, client);
        self.throttle.is_too_early(who, now)
    }

    /// An attempt has to wait; it counts once, however often it comes.
    pub(super) fn note_too_early(&mut self, attempt: u64) {
        match self.throttle.is_first(attempt) {
            true => self.counters.throttled += 1,
            false => self.counters.duplicates += 1,
        }
    }

    /// Whether a handshake begins, which is what costs most of all that a stranger can ask for.
    fn may_begin(&mut self, path: Path, connect: &Connect<'_>, now: Instant) -> bool {
        let client = connect.client;
        let asker = Asker { path, client, attempt: connect.attempt };
        let is_at_home = self.sessions_of(client).any(|session| session.host == path.peer.host());
        let is_known = self.who(path, client).is_known;
        let standing = || match (is_at_home, is_known) {
            (true, _) => Standing::AtHome,
            (_, true) => Standing::Known,
            _ => Standing::Stranger,
        };
        match self.gate.pass(asker, connect.cookie.as_ref(), standing, &mut self.random, now) {
            Passage::Open if self.half_opens.has_room(now) => return true,
            // The client repeats itself, and the others will be done.
            Passage::Open | Passage::Shut => self.counters.crowded += 1,
            Passage::Cookie(cookie) => {
                self.counters.challenged += 1;
                self.send_accept(path, steering_word(client), &Accept::Cookie { attempt: connect.attempt, cookie });
            }
        }
        false
    }

    fn challenge(&mut self, path: Path, connect: &Connect<'_>, now: Instant) -> Result<(), KeyError> {
        let psk = self.config.doorkeeper.psk(connect.client).unwrap_or(self.config.psk);
        let offer = ServerOffer {
            offer: self.offer(path),
            commands_max: self.config.commands_max,
            transfer_max_bytes: self.config.transfer_max_bytes,
            keep_alive_ms: u32::try_from(self.config.keep_alive.as_millis()).unwrap_or(u32::MAX),
            instance: self.config.instance,
            name: self.config.name.clone(),
        };
        let connection = self.draw_connection();
        let said = (connection, &offer.write()[..]);
        let keys = (&self.config.identity, &psk);
        let (responder, noise, mark) =
            Responder::new(keys, &connect.prologue(), &connect.noise, said, &mut self.random)?;
        let step = SecondStep { connection, noise: &noise, mark };
        let answer = Accept::Challenge { attempt: connect.attempt, step }.write();
        self.send_open(path, steering_word(connect.client), &answer);
        self.half_opens.insert(HalfOpen {
            connection,
            path,
            client: connect.client,
            session: connect.session,
            attempt: connect.attempt,
            said: None,
            responder,
            answer,
            begun_at: now,
            refused: None,
        });
        self.handshakes_due_at = self.half_opens.poll_timeout();
        Ok(())
    }

    /// What we say of ourselves on this path.
    pub(super) fn offer(&self, path: Path) -> Offer {
        let (link, wishes) = (self.link(path), &self.config.wishes);
        Offer {
            packet_max_bytes: link.packet_max_bytes,
            window_packets: link.window_packets.max(1),
            allows_classic: wishes.classic || wishes.allows_classic,
            wants_classic: wishes.classic,
            allows_unchecked: wishes.unchecked || wishes.allows_unchecked,
            wants_unchecked: wishes.unchecked,
            classic_payload_bytes: wishes.classic_payload_bytes,
            protection_min: (self.config.levels)(None),
        }
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
        let unknown = LinkLimits { packet_max_bytes: 1232, window_packets: 8, is_stream: false };
        self.config.links.get(usize::from(path.link.0)).copied().unwrap_or(unknown)
    }

    /// A packet of a connection that is not known: after a restart, clients learn so that they should come again. Who has had no
    /// connection here, or may not connect, learns nothing, and nobody learns it more often than a restart needs.
    pub(super) fn unknown_connection(&mut self, path: Path, connection: u32, now: Instant) {
        self.counters.unknown_connection += 1;
        let may_hear = !self.is_closed && self.marks.is_ours(connection);
        if may_hear && self.config.doorkeeper.permits(path.peer, None) && self.accounts.hints.take(now) {
            self.refuse(path, connection, 0, Refusal::UnknownConnection, None);
        }
    }

    /// Refuses a step of a handshake; with a proof, if it is the third.
    pub(super) fn refuse(&mut self, path: Path, connection: u32, attempt: u64, reason: Refusal, proof: Option<Proof>) {
        self.send_accept(path, connection, &Accept::Refusal { attempt, reason, proof });
    }

    fn send_accept(&mut self, path: Path, connection: u32, accept: &Accept<'_>) {
        self.send_open(path, connection, &accept.write());
    }

    fn send_open(&mut self, path: Path, connection: u32, payload: &[u8]) {
        let head = open_packet(Kind::Accept, true, connection, payload).into();
        self.send_packet(path, Packet::new(head, None));
    }
}
