//! The last step of a handshake at a server: the proof, and whether its client gets a connection.

use sanwire_core::{ClientId, Instant, Path};
use sanwire_security::handshake::{Misread, Proof, Secrets};

use super::handshake::answering;
use super::types::{Disk, Wanted};
use super::{Server, half_opens::HalfOpen};
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
        let half = self.half_opens.get_mut(header.server_port);
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
                    self.half_opens.remove(header.server_port);
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
                let half = self.half_opens.get_mut(port);
                let proof = half.map(|half| half.responder.refusal_key().prove(reason as u8, &noise));
                if let Some(proof) = proof {
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
}
