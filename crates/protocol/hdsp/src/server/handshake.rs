//! Handshakes under way at a server, from the request to the proof.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::quota::{HALF_OPENS, HALF_OPENS_OF_SESSION};
use sanwire_core::{ClientId, Instant, Path};
use sanwire_security::handshake::{Misread, Proof, Responder, Secrets};
use sanwire_security::keys::KeyError;
use sanwire_security::{Asker, Passage, Standing, Who};

use super::types::LinkLimits;
use super::{Server, Wanted};
use crate::wire::connection::{Request, SessionName, Step};
use crate::wire::discovery::Discovery;
use crate::wire::offer::{ClientOffer, ServerOffer, Terms};
use crate::wire::pcu::RawPcu;
use crate::wire::{Class, DiskType, ErrorCode, Header, PacketType, Pcu};

/// How long the proof may take.
const LIFETIME: Duration = Duration::from_secs(5);

/// When there are too many, one that had so long makes room.
const GRACE: Duration = Duration::from_secs(1);

/// A handshake after its challenge.
pub(super) struct HalfOpen {
    path: Path,
    client_port: u16,
    pub(super) session: SessionName,
    attempt: u64,
    responder: Responder,
    first: [u8; 32],
    challenge: Packet,
    begun_at: Instant,
    /// A proof that was a wrong guess at the password; its client has no other one.
    refused: Option<(Vec<u8>, Proof)>,
}

/// All of them, by the server's port.
#[derive(Default)]
pub(super) struct HalfOpens(BTreeMap<u16, HalfOpen>);

impl HalfOpens {
    pub(super) fn has(&self, port: u16) -> bool {
        self.0.contains_key(&port)
    }

    fn repeat(&self, path: Path, header: &Header, request: &Request<'_>) -> Option<Packet> {
        let is_same = |half: &&HalfOpen| {
            half.path == path
                && half.client_port == header.client_port
                && (half.attempt, half.first) == (request.attempt, request.noise)
        };
        self.0.values().find(is_same).map(|half| half.challenge.clone())
    }

    /// Whether there is room for another one. One that had its time makes room, or the oldest of the same session and path.
    fn make_room(&mut self, session: SessionName, path: Path, now: Instant) -> bool {
        self.expire(now);
        let own = |half: &HalfOpen| half.session.client == session.client && half.path == path;
        let of_session: Vec<(Instant, u16)> =
            self.0.iter().filter(|(_, half)| own(half)).map(|(port, half)| (half.begun_at, *port)).collect();
        if of_session.len() as u64 >= HALF_OPENS_OF_SESSION.limit {
            of_session.iter().min().inspect(|(_, port)| drop(self.0.remove(port)));
        }
        if (self.0.len() as u64) < HALF_OPENS.limit {
            return true;
        }
        let oldest = self.0.iter().map(|(port, half)| (half.begun_at, *port)).min();
        let oldest = oldest.filter(|(begun_at, _)| now.saturating_since(*begun_at) >= GRACE);
        oldest.is_some_and(|(_, port)| self.0.remove(&port).is_some())
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|_, half| now.saturating_since(half.begun_at) < LIFETIME);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.values().map(|half| half.begun_at + LIFETIME).min()
    }

    /// Takes out the one that has led to a connection, and those of its session that began before: none of them may replace it.
    fn establish(&mut self, port: u16) {
        let Some(done) = self.0.remove(&port) else { return };
        let is_former = |half: &HalfOpen| {
            let is_of_session = (half.session.client, half.session.run) == (done.session.client, done.session.run);
            // An attempt goes out on several links: whatever comes of the others later is of this one.
            is_of_session && (half.begun_at <= done.begun_at || half.first == done.first)
        };
        self.0.retain(|_, half| !is_former(half));
    }
}

/// A client that has proved who it is.
pub(super) struct Proven {
    pub(super) path: Path,
    pub(super) header: Header,
    pub(super) session: SessionName,
    pub(super) first: [u8; 32],
    pub(super) proof: Vec<u8>,
    pub(super) offer: ClientOffer,
    pub(super) secrets: Secrets,
}

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
    fn permits(&mut self, path: Path, client: ClientId) -> bool {
        let permits = !self.is_closed && self.config.directory.permits(path.peer, Some(client));
        self.counters.not_permitted += u64::from(!permits);
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
        if !is_meant || !self.permits(path, request.session.client) {
            return;
        }
        if let Some(challenge) = self.half_opens.repeat(path, &header, request) {
            self.send_packet(path, challenge);
        } else if self.is_too_early(path, request.session.client, now) {
            match self.throttle.is_first(request.attempt) {
                true => self.counters.throttled += 1,
                false => self.counters.duplicates += 1,
            }
        } else if self.may_begin(path, header, request, now) {
            if self.connections.values().any(|connection| connection.first == request.noise) {
                // The client hears that it is accepted when it repeats its proof.
                self.counters.duplicates += 1;
            } else if self.challenge(path, header, request, now).is_err() {
                self.counters.not_authentic += 1;
            }
        }
    }

    fn who(&self, path: Path, client: ClientId) -> Who {
        let has_session = self.names.range((client, 0)..=(client, u64::MAX)).next().is_some();
        Who { peer: path.peer, client, is_known: has_session || self.config.directory.is_listed(client) }
    }

    fn is_too_early(&mut self, path: Path, client: ClientId, now: Instant) -> bool {
        let who = self.who(path, client);
        self.throttle.is_too_early(who, now)
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
        let Some(port) = self.draw_port() else { return Ok(()) };
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
        self.half_opens.0.insert(port, half_open);
        Ok(())
    }

    /// A port that nobody has. With so many that none is found soon, the client comes again.
    fn draw_port(&mut self) -> Option<u16> {
        let is_free = |port: &u16| *port != 0 && !self.connections.contains_key(port) && !self.half_opens.has(*port);
        (0..1000).map(|_| self.random.u32() as u16).find(is_free)
    }

    pub(super) fn terms(&self, path: Path) -> Terms {
        let LinkLimits { packet_max_bytes, window_packets } = self.link(path);
        Terms { packet_max_bytes, window_packets, group_packets: self.config.group_packets }
    }

    pub(super) fn link(&self, path: Path) -> LinkLimits {
        let unknown = LinkLimits { packet_max_bytes: 1500, window_packets: 32 };
        self.config.links.get(usize::from(path.link.0)).copied().unwrap_or(unknown)
    }

    fn handle_proof(
        &mut self,
        path: Path,
        header: Header,
        (attempt, client): (u64, ClientId),
        noise: &[u8],
        now: Instant,
    ) {
        if let Some(connection) = self.connections.get_mut(&header.server_port) {
            if connection.channel.is_of(path, &header) && connection.proof == noise {
                let agreement = connection.agreement.write();
                connection.channel.control(Class::Connection, agreement);
                self.wake(header.server_port);
            }
            return;
        }
        // Rules may have changed since it began.
        if !self.permits(path, client) {
            return;
        }
        let half = self.half_opens.0.get_mut(&header.server_port);
        let is_of = |half: &&mut HalfOpen| {
            (half.path, half.client_port, half.attempt, half.session.client)
                == (path, header.client_port, attempt, client)
        };
        let Some(half) = half.filter(is_of) else {
            self.counters.unknown_connection += 1;
            return;
        };
        if let Some((_, proof)) = half.refused.as_ref().filter(|(refused, _)| refused == noise) {
            let proof = *proof;
            return self.refuse(path, header, attempt, ErrorCode::NotAuthentic, proof);
        }
        match half.responder.read(client, noise) {
            Err(Misread::Garbage) => self.counters.not_authentic += 1,
            Err(Misread::Guess { by }) => {
                let proof = half.responder.refusal_key().prove(ErrorCode::NotAuthentic as u8, noise);
                half.refused = Some((noise.to_vec(), proof));
                let who = self.who(path, by);
                self.throttle.failed(who, now);
                self.counters.not_authentic += 1;
                self.refuse(path, header, attempt, ErrorCode::NotAuthentic, proof);
            }
            Ok((payload, secrets)) => {
                let (session, first) = (half.session, half.first);
                let Ok(offer) = ClientOffer::read(&payload) else {
                    self.counters.malformed += 1;
                    self.half_opens.0.remove(&header.server_port);
                    return;
                };
                let proven = Proven { path, header, session, first, proof: noise.to_vec(), offer, secrets };
                self.admit(proven, attempt, now);
            }
        }
    }

    /// Accepts a client that has proved who it is, or says why not.
    fn admit(&mut self, proven: Proven, attempt: u64, now: Instant) {
        let (path, header, noise) = (proven.path, proven.header, proven.proof.clone());
        let port = header.server_port;
        match self.find_disk(&proven) {
            Ok(disk) => {
                self.half_opens.establish(port);
                if self.accept(proven, disk, now).is_err() {
                    self.counters.not_authentic += 1;
                }
            }
            Err(reason) => {
                let half = self.half_opens.0.get(&port);
                let proof = half.map(|half| half.responder.refusal_key().prove(reason as u8, &noise));
                if let Some(proof) = proof {
                    self.refuse(path, header, attempt, reason, proof);
                }
            }
        }
    }

    fn find_disk(&self, proven: &Proven) -> Result<super::Disk, ErrorCode> {
        let offer = &proven.offer;
        let wanted = match &offer.volume[..] {
            "" => Wanted::At(offer.disk_address),
            name => Wanted::Named(name),
        };
        let disk = self.config.directory.disk(proven.session.client, wanted).ok_or(ErrorCode::NoSuchDisk)?;
        let has_type = offer.disk_type == DiskType::Any || offer.disk_type == disk.disk_type;
        if !has_type || disk.disk_type == DiskType::Any {
            return Err(ErrorCode::DiskType);
        }
        let own =
            self.names.get(&(proven.session.client, proven.session.run)).and_then(|nexus| self.sessions.get(nexus));
        match own {
            // A later session has taken its place: there is no way back.
            Some(session) if session.name.epoch > proven.session.epoch => Err(ErrorCode::UnknownConnection),
            // What it remembers is of another disk.
            Some(session) if session.name.epoch == proven.session.epoch && session.disk.address != disk.address => {
                Err(ErrorCode::NoSuchDisk)
            }
            None if self.is_full(proven.session.client) => Err(ErrorCode::Full),
            _ => Ok(disk),
        }
    }

    /// Whether there is no place for another session, of this client.
    fn is_full(&self, client: ClientId) -> bool {
        let own = self.names.range((client, 0)..=(client, u64::MAX)).count();
        self.sessions.len() >= self.config.sessions_max || own >= self.config.sessions_of_client_max
    }

    fn refuse(&mut self, path: Path, header: Header, attempt: u64, reason: ErrorCode, proof: Proof) {
        let header = Header { error: Some(reason), ..answering(header, header.server_port) };
        let operation = Step::Refusal { attempt, proof: Some(proof) }.write();
        self.send_loose(path, header, Class::Connection, &operation);
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

    fn send_loose(&mut self, path: Path, header: Header, class: Class, operation: &[u8]) {
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
    Packet { head: pcu.open_packet(operation).into(), payload: None }
}
