//! The last step of a handshake at a server: the proof, and whether its client gets a connection.

use sanwire_core::{ClientId, Instant, NexusId, Path, SessionEnd};
use sanwire_security::Who;
use sanwire_security::handshake::{Misread, Proof, Secrets};

use super::Server;
use super::handshake::answering;
use super::types::{Disk, ServerEvent, Wanted};
use crate::wire::connection::{SessionName, Step};
use crate::wire::offer::ClientOffer;
use crate::wire::{Class, DiskType, ErrorCode, Header};

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
    pub(super) fn handle_proof(
        &mut self,
        path: Path,
        header: Header,
        (attempt, client): (u64, ClientId),
        noise: &[u8],
        now: Instant,
    ) {
        let port = header.server_port;
        if self.connections.contains_key(&port) {
            return self.accept_again(path, &header, noise);
        }
        // Rules may have changed since it began.
        if !self.permits(path, client) {
            return;
        }
        let half = self.half_opens.get_mut(port).filter(|half| half.is_of((path, header.client_port), attempt, client));
        let Some(half) = half else {
            self.counters.unknown_connection += 1;
            return;
        };
        if let Some(refused) = half.refused.clone() {
            // Another one is not read: this handshake has had its answer.
            match refused.noise == noise {
                true => self.refuse(path, header, attempt, refused.reason, refused.proof),
                false => self.counters.duplicates += 1,
            }
        } else if self.is_too_early(path, client, now) {
            // Handshakes that were begun before a wrong password are no way around the wait.
            self.note_too_early(attempt);
        } else {
            self.read_proof(path, header, (attempt, client), noise, now);
        }
    }

    /// The client repeats its proof: it has not heard that it is accepted. Once it has, whoever repeats the proof is somebody else.
    fn accept_again(&mut self, path: Path, header: &Header, noise: &[u8]) {
        let Some(connection) = self.connections.get_mut(&header.server_port) else { return };
        if connection.channel.is_of(path, header) && connection.proof == noise && !connection.channel.is_heard() {
            let agreement = connection.agreement.write();
            connection.channel.control(Class::Connection, agreement);
            self.wake(header.server_port);
        } else {
            self.counters.duplicates += 1;
        }
    }

    fn read_proof(
        &mut self,
        path: Path,
        header: Header,
        (attempt, client): (u64, ClientId),
        noise: &[u8],
        now: Instant,
    ) {
        let Some(half) = self.half_opens.get_mut(header.server_port) else { return };
        match half.responder.read(client, noise) {
            Err(Misread::Garbage) => self.counters.not_authentic += 1,
            Err(Misread::Guess { by }) => {
                let refused = half.refuse(ErrorCode::NotAuthentic, noise);
                let who = self.guesser(path, client, by);
                if self.throttle.is_too_early(who, now) {
                    return self.note_too_early(attempt);
                }
                self.throttle.failed(who, now);
                self.handshakes.wrong_password += 1;
                self.events.push_back(ServerEvent::WrongPassword { client: by, path });
                self.counters.not_authentic += 1;
                self.refuse(path, header, attempt, ErrorCode::NotAuthentic, refused);
            }
            Ok((payload, secrets)) => {
                let (session, first) = (half.session, half.first);
                self.throttle.forgive(path.peer, client);
                let Ok(offer) = ClientOffer::read(&payload) else {
                    self.counters.malformed += 1;
                    self.half_opens.remove(header.server_port);
                    return;
                };
                let proven = Proven { path, header, session, first, proof: noise.to_vec(), offer, secrets };
                self.admit(proven, attempt, now);
            }
        }
    }

    /// Whose wrong password it is that came in the name of a client. The key that was shown is the sender's own, whomever he names:
    /// a client waits for nobody who has only its name, and who names one that we know guesses no faster for that.
    fn guesser(&self, path: Path, client: ClientId, by: ClientId) -> Who {
        if by == client { self.who(path, client) } else { Who { peer: path.peer, client: by, is_known: false } }
    }

    /// Accepts a client that has proved who it is, or says why not.
    fn admit(&mut self, proven: Proven, attempt: u64, now: Instant) {
        let (path, header, port) = (proven.path, proven.header, proven.header.server_port);
        self.make_place(&proven.session);
        match self.find_disk(&proven) {
            Ok(disk) => {
                self.half_opens.establish(port);
                match self.accept(proven, disk, now) {
                    Ok(()) => self.handshakes.accepted += 1,
                    Err(_) => self.counters.not_authentic += 1,
                }
            }
            Err(reason) => {
                self.handshakes.refused += 1;
                if let Some(half) = self.half_opens.get_mut(port) {
                    let proof = half.refuse(reason, &proven.proof);
                    self.refuse(path, header, attempt, reason, proof);
                }
            }
        }
    }

    fn find_disk(&self, proven: &Proven) -> Result<Disk, ErrorCode> {
        let offer = &proven.offer;
        let wanted = match &offer.volume[..] {
            "" => Wanted::At(offer.disk_address),
            name => Wanted::Named(name),
        };
        let (client, peer) = (proven.session.client, proven.path.peer);
        let disk = self.config.directory.disk(client, peer, wanted, offer.disk_type).ok_or(ErrorCode::NoSuchDisk)?;
        let has_type = offer.disk_type == DiskType::Any || offer.disk_type == disk.disk_type;
        if !has_type || disk.disk_type == DiskType::Any {
            return Err(ErrorCode::DiskType);
        }
        let own =
            self.names.get(&(proven.session.client, proven.session.run)).and_then(|nexus| self.sessions.get(nexus));
        match own {
            // A later session has taken its place: there is no way back.
            Some(session) if session.name.epoch > proven.session.epoch => Err(ErrorCode::UnknownConnection),
            None if self.is_full(proven.session.client) => Err(ErrorCode::Full),
            _ => Ok(disk),
        }
    }

    /// Makes a place for a session of a client, if need be by ending that of its sessions that has been without connection for longest and
    /// of which the disk does nothing: a program that was killed leaves such ones, and must not keep its client out.
    fn make_place(&mut self, name: &SessionName) {
        if self.names.contains_key(&(name.client, name.run)) || !self.is_full(name.client) {
            return;
        }
        let own = self.names.range((name.client, 0)..=(name.client, u64::MAX)).map(|(_, nexus)| *nexus);
        let away = own.filter_map(|nexus| Some((nexus, self.sessions.get(&nexus)?)));
        let idle = away.filter(|(nexus, session)| session.connection.is_none() && !self.executes_for(*nexus));
        if let Some((nexus, _)) = idle.min_by_key(|(_, session)| session.orphaned_at) {
            self.close_session(nexus, SessionEnd::Lost);
        }
    }

    fn executes_for(&self, nexus: NexusId) -> bool {
        self.executing.values().any(|executing| executing.nexus() == nexus)
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
}
