//! The first steps of handshakes at a server: who is there, and from the request to the challenge.

use sanwire_buffer::Packet;
use sanwire_core::{ClientId, Instant, Path};
use sanwire_security::handshake::Responder;
use sanwire_security::keys::KeyError;
use sanwire_security::{Asker, Passage, Standing, Who};

use super::Server;
use super::half_opens::HalfOpen;
use super::types::{LinkLimits, ServerEvent};
use crate::wire::connection::{Home, Request, Step};
use crate::wire::discovery::Discovery;
use crate::wire::offer::{ServerOffer, Terms};
use crate::wire::pcu::RawPcu;
use crate::wire::{Class, ErrorCode, Header, PacketType, Pcu};

/// Clients of which it is remembered that it was told that they may not connect.
const TOLD_MAX: usize = 1024;

impl Server {
    /// An open packet outside any connection.
    pub(super) fn handle_open(&mut self, path: Path, raw: &RawPcu<'_>, now: Instant) {
        if !raw.is_whole() || raw.pcu.header.error.is_some() {
            self.counters.not_authentic += 1;
            return;
        }
        let header = raw.pcu.header;
        match raw.pcu.class {
            Class::Discovery => match Discovery::read(raw.operation) {
                Ok(Discovery::Query { client, server_name }) => self.handle_query(path, header, client, server_name),
                _ => self.counters.malformed += 1,
            },
            Class::Connection => match Step::read(raw.operation) {
                Ok(Step::Request(request)) => self.handle_request(path, header, &request, now),
                Ok(Step::Proof { attempt, client, noise }) => {
                    self.handle_proof(path, header, (attempt, client), noise, now);
                }
                _ => self.counters.malformed += 1,
            },
            _ => self.counters.malformed += 1,
        }
    }

    /// Whether somebody may connect: who may not gets no answer at all.
    pub(super) fn permits(&mut self, path: Path, client: ClientId) -> bool {
        let permits = !self.is_closed && self.config.directory.permits(path.peer, Some(client));
        if !permits && !self.is_closed {
            self.counters.not_permitted += 1;
            if self.told.len() < TOLD_MAX && self.told.insert(client) {
                self.events.push_back(ServerEvent::NotAllowed { client, path });
            }
        }
        permits
    }

    fn handle_query(&mut self, path: Path, header: Header, client: ClientId, server_name: &str) {
        if !(server_name.is_empty() || server_name == self.config.name) || !self.permits(path, client) {
            return;
        }
        let packet_max_bytes = self.link(path).packet_max_bytes;
        let answer =
            Discovery::Answer { instance: self.config.instance, packet_max_bytes, server_name: &self.config.name };
        let operation = answer.write();
        self.send_loose(path, answering(header, 0), Class::Discovery, &operation);
    }

    fn handle_request(&mut self, path: Path, header: Header, request: &Request<'_>, now: Instant) {
        let is_meant = request.server_name.is_empty() || request.server_name == self.config.name;
        let client = request.session.client;
        if !is_meant || !self.permits(path, client) {
            return;
        }
        let home = Home::of(client, self.config.shards);
        if u32::from(home.shard) != self.config.shard {
            // What its sessions leave under way, and what they may have, only one shard knows.
            self.counters.misdirected += 1;
            let operation = Step::Elsewhere { attempt: request.attempt, home }.write();
            return self.send_loose(path, answering(header, 0), Class::Connection, &operation);
        }
        if let Some(challenge) = self.half_opens.repeat(path, &header, request) {
            self.send_packet(path, challenge);
        } else if self.is_too_early(path, client, now) {
            self.note_too_early(request.attempt);
        } else if self.may_begin(path, header, request, now) {
            if self.connections.values().any(|connection| connection.first == request.noise) {
                // The client hears that it is accepted when it repeats its proof.
                self.counters.duplicates += 1;
            } else if self.challenge(path, header, request, now).is_err() {
                self.counters.not_authentic += 1;
            }
        }
    }

    pub(super) fn who(&self, path: Path, client: ClientId) -> Who {
        let has_session = self.names.range((client, 0)..=(client, u64::MAX)).next().is_some();
        Who { peer: path.peer, client, is_known: has_session || self.config.directory.is_listed(client) }
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
    fn may_begin(&mut self, path: Path, header: Header, request: &Request<'_>, now: Instant) -> bool {
        let client = request.session.client;
        let is_known = self.who(path, client).is_known;
        let of_client =
            self.names.range((client, 0)..=(client, u64::MAX)).filter_map(|(_, nexus)| self.sessions.get(nexus));
        let mut ports = of_client.filter_map(|session| session.connection);
        let is_home = ports.any(|port| self.connections.get(&port).is_some_and(|other| other.channel.path == path));
        let standing = || match (is_home, is_known) {
            (true, _) => Standing::AtHome,
            (_, true) => Standing::Known,
            _ => Standing::Stranger,
        };
        let asker = Asker { path, client, attempt: request.attempt };
        match self.gate.pass(asker, request.cookie.as_ref(), standing, &mut self.random, now) {
            Passage::Open if self.half_opens.make_room(request.session, path, now) => return true,
            Passage::Open | Passage::Shut => self.counters.crowded += 1,
            Passage::Cookie(cookie) => {
                self.counters.challenged += 1;
                let operation = Step::Cookie { attempt: request.attempt, cookie }.write();
                self.send_loose(path, answering(header, 0), Class::Connection, &operation);
            }
        }
        false
    }

    fn challenge(&mut self, path: Path, header: Header, request: &Request<'_>, now: Instant) -> Result<(), KeyError> {
        let Some(port) = self.draw_port(header) else { return Ok(()) };
        let config = &self.config;
        let psk = config.directory.psk(request.session.client).unwrap_or(config.psk);
        let offer = ServerOffer {
            terms: self.terms(path),
            write_room_bytes: config.write_room_bytes,
            transfer_max_bytes: config.transfer_max_bytes,
            keep_alive_ms: u32::try_from(config.keep_alive.as_millis()).unwrap_or(u32::MAX),
            instance: config.instance,
            name: config.name.clone(),
        };
        let answer = answering(header, port);
        let said = (answer.connection(), &offer.write()[..]);
        let prologue = request.prologue(header.client_port);
        let keys = (&config.identity, &psk);
        let (responder, noise, mark) = Responder::new(keys, &prologue, &request.noise, said, &mut self.random)?;
        let operation = Step::Challenge { attempt: request.attempt, mark, noise: &noise }.write();
        let challenge = loose(answer, Class::Connection, &operation);
        self.send_packet(path, challenge.clone());
        let half_open = HalfOpen {
            path,
            client_port: header.client_port,
            session: request.session,
            attempt: request.attempt,
            responder,
            first: request.noise,
            challenge,
            begun_at: now,
            refused: None,
        };
        self.half_opens.insert(port, half_open);
        Ok(())
    }

    /// A port that nobody has, and that steers what the client sends to this shard. With so many that none is found soon, the client comes
    /// again.
    fn draw_port(&mut self, header: Header) -> Option<u16> {
        let is_free = |server: &Server, port: u16| {
            let is_unused = !server.connections.contains_key(&port) && !server.half_opens.has(port);
            port != 0 && is_unused && server.steers_here(answering(header, port).connection())
        };
        (0..1000).find_map(|_| Some(self.random.u32() as u16).filter(|port| is_free(self, *port)))
    }

    pub(super) fn terms(&self, path: Path) -> Terms {
        let LinkLimits { packet_max_bytes, window_packets } = self.link(path);
        Terms { packet_max_bytes, window_packets, group_packets: self.config.group_packets }
    }

    pub(super) fn link(&self, path: Path) -> LinkLimits {
        let unknown = LinkLimits { packet_max_bytes: 1500, window_packets: 32 };
        self.config.links.get(usize::from(path.link.0)).copied().unwrap_or(unknown)
    }

    /// Of a connection that is not known: after a restart, clients learn so that they should come again. Who may not connect learns
    /// nothing, and nobody learns it more often than a restart needs.
    pub(super) fn unknown_connection(&mut self, path: Path, header: Header, now: Instant) {
        self.counters.unknown_connection += 1;
        if !self.is_closed && self.config.directory.permits(path.peer, None) && self.hints.take(now) {
            let header = Header { error: Some(ErrorCode::UnknownConnection), ..answering(header, header.server_port) };
            let operation = Step::Refusal { attempt: 0, proof: None }.write();
            self.send_loose(path, header, Class::Connection, &operation);
        }
    }

    pub(super) fn send_loose(&mut self, path: Path, header: Header, class: Class, operation: &[u8]) {
        self.send_packet(path, loose(header, class, operation));
    }
}

/// The header of an answer, from this port.
pub(super) fn answering(header: Header, server_port: u16) -> Header {
    Header { from_server: true, error: None, packet_type: PacketType::Pcu, server_port, ..header }
}

/// An open packet.
pub(crate) fn loose(header: Header, class: Class, operation: &[u8]) -> Packet {
    let pcu = Pcu { header, class, is_sealed: false, number: 0 };
    Packet::new(pcu.open_packet(operation).into(), None)
}
