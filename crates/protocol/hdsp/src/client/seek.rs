//! How a client finds its server and proves who it is.
//!
//! Anybody on the link can answer. So several challenges are answered, each by a proof that says nothing to who lacks the password;
//! only a server that has it can seal that it accepts.

use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::{Packet, Recycler};
use sanwire_core::{Instant, Path};
use sanwire_security::Cookie;
use sanwire_security::handshake::{Initiator, Mark, MarkKey, Proof, RefusalKey, SecondStep, Secrets};
use sanwire_security::keys::{KeyError, Randomness};

use super::types::ClientConfig;
use crate::channel::Guard;
use crate::server::loose;
use crate::wire::connection::{Request, SessionName, Step};
use crate::wire::offer::{Agreement, ClientOffer, ServerOffer};
use crate::wire::pcu::RawPcu;
use crate::wire::{Class, DiskType, ErrorCode, Header, PacketType};

/// An attempt lasts so long; then another one begins, with new keys.
const LIFETIME: Duration = Duration::from_secs(2);

const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_millis(500);

/// Servers of one attempt that may accept us.
const CANDIDATES_MAX: usize = 4;

/// Challenges of one attempt that are answered. None of them is forgotten, see [`Third`].
const THIRDS_MAX: usize = 64;

/// Challenges of one attempt that are looked at where the server's key is not known, or where they are not of the server that has it.
const CHALLENGES_MAX: u32 = 16;

/// Cookies of one attempt that are brought back.
const COOKIES_MAX: u32 = 16;

/// The answer to a challenge, and what that leads to. Whenever the challenge comes again in the same attempt, wherever from and whatever
/// became of it, the same is said: another answer would be sealed with the same key and number.
#[derive(Clone)]
struct Third {
    connection: u32,
    mark: Mark,
    second: Vec<u8>,
    key: [u8; 32],
    offer: ServerOffer,
    secrets: Secrets,
    refusal_key: Arc<RefusalKey>,
    noise: Vec<u8>,
}

/// A server whose challenge was answered.
pub(super) struct Candidate {
    pub(super) path: Path,
    pub(super) header: Header,
    pub(super) key: [u8; 32],
    pub(super) offer: ServerOffer,
    pub(super) guard: Guard,
    refusal_key: Arc<RefusalKey>,
    third: Vec<u8>,
    proof: Packet,
}

/// Whether a proof is the first one of its candidate, or the same again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IsNew {
    Yes,
    No,
}

/// What a challenge comes to.
pub(super) enum Challenged {
    /// It is answered by this proof.
    Proof(Box<Packet>, IsNew),
    /// Its sender is not the server that it must be, but the one with this key.
    OtherServer {
        key: [u8; 32],
    },
    Ignore,
}

/// One attempt.
pub(super) struct Seek {
    attempt: u64,
    session: SessionName,
    initiator: Initiator,
    mark_key: Option<MarkKey>,
    request: Vec<u8>,
    first: [u8; 32],
    client_port: u16,
    pub(super) begun_at: Instant,
    again_at: Instant,
    interval: Duration,
    challenges: u32,
    cookies: u32,
    pub(super) candidates: Vec<Candidate>,
    /// The server that had the volume has said that it has it no more.
    pub(super) is_without_volume: bool,
    thirds: Vec<Third>,
}

fn header(client_port: u16, server_port: u16) -> Header {
    Header {
        from_server: false,
        error: None,
        packet_type: PacketType::Pcu,
        disk_type: DiskType::Any,
        disk_address: 0,
        server_port,
        client_port,
    }
}

impl Seek {
    pub(super) fn new(
        config: &ClientConfig,
        (session, client_port): (SessionName, u16),
        random: &mut Randomness,
        now: Instant,
    ) -> Result<Self, KeyError> {
        let attempt = random.u64().max(1);
        let mut request = Request { attempt, session, server_name: &config.server_name, noise: [0; 32], cookie: None };
        let (initiator, noise) = Initiator::new(&request.prologue(client_port), random)?;
        let first: [u8; 32] = noise.try_into().map_err(|_| KeyError)?;
        request.noise = first;
        let mark_key = config.server_key.as_ref().map(|key| initiator.mark_key(key)).transpose()?;
        Ok(Seek {
            attempt,
            session,
            initiator,
            mark_key,
            request: Step::Request(request).write(),
            first,
            client_port,
            begun_at: now,
            again_at: now,
            interval: AGAIN_FIRST,
            challenges: 0,
            cookies: 0,
            candidates: Vec::new(),
            is_without_volume: false,
            thirds: Vec::new(),
        })
    }

    pub(super) fn is_of(&self, attempt: u64) -> bool {
        self.attempt == attempt
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        now.saturating_since(self.begun_at) >= LIFETIME
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.again_at.min(self.begun_at + LIFETIME)
    }

    /// What is to be sent now.
    pub(super) fn poll(&mut self, places: &[Path], now: Instant) -> Vec<(Path, Packet)> {
        if self.again_at > now {
            return Vec::new();
        }
        self.again_at = now + self.interval;
        self.interval = (self.interval * 2).min(AGAIN_MAX);
        let request = loose(header(self.client_port, 0), Class::Connection, &self.request);
        let mut packets: Vec<_> = places.iter().map(|path| (*path, request.clone())).collect();
        packets.extend(self.candidates.iter().map(|candidate| (candidate.path, candidate.proof.clone())));
        packets
    }

    /// A server wants a cookie back.
    pub(super) fn bring_back(&mut self, attempt: u64, cookie: Cookie, server_name: &str) -> Option<Packet> {
        if attempt != self.attempt || self.cookies == COOKIES_MAX {
            return None;
        }
        self.cookies += 1;
        let request = Request { attempt, session: self.session, server_name, noise: self.first, cookie: Some(cookie) };
        Some(loose(header(self.client_port, 0), Class::Connection, &Step::Request(request).write()))
    }

    /// A server, or somebody, answers the request.
    pub(super) fn challenged(
        &mut self,
        (config, offer): (&ClientConfig, &ClientOffer),
        (path, theirs): (Path, Header),
        (attempt, second): (u64, SecondStep<'_>),
        random: &mut Randomness,
    ) -> Challenged {
        if attempt != self.attempt || theirs.client_port != self.client_port {
            return Challenged::Ignore;
        }
        let said = self.thirds.iter().find(|third| third.second == second.noise).cloned();
        if said.as_ref().is_some_and(|third| (third.connection, third.mark) != (second.connection, second.mark)) {
            return Challenged::Ignore;
        }
        let is_said = |candidate: &&Candidate| {
            candidate.path == path && said.as_ref().is_some_and(|third| third.noise == candidate.third)
        };
        if let Some(candidate) = self.candidates.iter().find(is_said) {
            return Challenged::Proof(Box::new(candidate.proof.clone()), IsNew::No);
        }
        if self.candidates.len() == CANDIDATES_MAX {
            return Challenged::Ignore;
        }
        let (third, is_new) = match said {
            Some(third) => (third, IsNew::No),
            None => match self.look((config, offer), second, random) {
                Ok(third) => (third, IsNew::Yes),
                Err(said) => return said,
            },
        };
        let Ok(candidate) = self.candidate(config, third, (path, theirs.server_port)) else {
            return Challenged::Ignore;
        };
        let proof = Box::new(candidate.proof.clone());
        self.candidates.push(candidate);
        Challenged::Proof(proof, is_new)
    }

    /// Answers a challenge that has not come before, unless too many have; else says what it comes to.
    fn look(
        &mut self,
        (config, offer): (&ClientConfig, &ClientOffer),
        second: SecondStep<'_>,
        random: &mut Randomness,
    ) -> Result<Third, Challenged> {
        let is_known = self.mark_key.as_ref().is_some_and(|key| key.has_marked(second));
        if !is_known {
            if self.challenges == CHALLENGES_MAX {
                return Err(Challenged::Ignore);
            }
            self.challenges += 1;
        }
        if self.thirds.len() == THIRDS_MAX {
            return Err(Challenged::Ignore);
        }
        let third = match self.answer((config, offer), second, random) {
            Ok(Ok(third)) => third,
            Ok(Err(key)) => return Err(Challenged::OtherServer { key }),
            Err(_) => return Err(Challenged::Ignore),
        };
        self.thirds.push(third.clone());
        Ok(third)
    }

    fn candidate(&self, config: &ClientConfig, third: Third, at: (Path, u16)) -> Result<Candidate, KeyError> {
        let Third { key, offer, secrets, refusal_key, noise: third, .. } = third;
        let (path, header) = (at.0, header(self.client_port, at.1));
        let step = Step::Proof { attempt: self.attempt, client: self.session.client, noise: &third };
        let proof = loose(header, Class::Connection, &step.write());
        let guard = Guard::new(secrets.of_client()?, config.protection, Recycler::new());
        Ok(Candidate { path, header, key, offer, guard, refusal_key, third, proof })
    }

    /// The answer to a challenge; or the key of its sender, if that is not the server that it must be.
    fn answer(
        &self,
        (config, offer): (&ClientConfig, &ClientOffer),
        second: SecondStep<'_>,
        random: &mut Randomness,
    ) -> Result<Result<Third, [u8; 32]>, KeyError> {
        let met = self.initiator.read(second)?;
        let theirs = ServerOffer::read(&met.payload).map_err(|_| KeyError)?;
        if config.server_key.is_some_and(|key| key != met.server) {
            return Ok(Err(met.server));
        }
        let (key, refusal_key) = (met.server, Arc::new(met.refusal_key()));
        let (noise, secrets) = met.answer((&config.identity, &config.psk), &offer.write(), random)?;
        let SecondStep { connection, mark, noise: second } = second;
        let second = second.to_vec();
        Ok(Ok(Third { connection, mark, second, key, offer: theirs, secrets, refusal_key, noise }))
    }

    /// A server refuses. The reason and its key, if it is one whose challenge was answered; it is no candidate any more.
    pub(super) fn refused(
        &mut self,
        (path, theirs): (Path, Header),
        proof: Option<&Proof>,
    ) -> Option<(ErrorCode, [u8; 32])> {
        let (reason, proof) = (theirs.error?, proof?);
        let place = self.candidates.iter().position(|candidate| {
            candidate.path == path
                && candidate.header.server_port == theirs.server_port
                && candidate.refusal_key.is_proven(reason as u8, &candidate.third, proof)
        })?;
        Some((reason, self.candidates.swap_remove(place).key))
    }

    /// A sealed packet that may say that a candidate accepts us: on which terms, and the candidate. It may also be one that a server
    /// has sent after that.
    pub(super) fn accepted(&mut self, path: Path, raw: &RawPcu<'_>, now: Instant) -> Option<(Candidate, Agreement)> {
        let header = raw.pcu.header;
        for place in 0..self.candidates.len() {
            let candidate = &mut self.candidates[place];
            let is_of = candidate.path == path && candidate.header.server_port == header.server_port;
            if is_of
                && let Ok(operation) = candidate.guard.open_pcu(raw, now)
                && let Ok(agreement) = Agreement::read(&operation)
            {
                return Some((self.candidates.swap_remove(place), agreement));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
