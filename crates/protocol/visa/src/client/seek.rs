//! How a client finds its server and proves who it is.
//!
//! Anybody on the way can answer. So several challenges are answered, each by a proof that says nothing to who lacks the password;
//! only a server that has it can seal that it accepts.

use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Path};
use sanwire_security::Cookie;
use sanwire_security::handshake::{Initiator, MarkKey, Proof, RefusalKey, SecondStep};
use sanwire_security::keys::{KeyError, Randomness};

use super::types::ClientConfig;
use crate::channel::Guard;
use crate::wire::Kind;
use crate::wire::header::{RawPacket, open_packet};
use crate::wire::offer::{Offer, ServerOffer, Terms};
use crate::wire::setup::{Confirm, Connect, Refusal, steering_word};

/// An attempt lasts so long; then another one begins, with new keys.
const LIFETIME: Duration = Duration::from_secs(2);

const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_millis(500);

/// Challenges of one attempt that are answered.
const CANDIDATES_MAX: usize = 4;

/// Challenges of one attempt that are looked at where the server's key is not known.
const CHALLENGES_MAX: u32 = 16;

/// Cookies of one attempt that are brought back.
const COOKIES_MAX: u32 = 16;

/// A server whose challenge was answered.
pub(super) struct Candidate {
    pub(super) path: Path,
    pub(super) connection: u32,
    pub(super) key: [u8; 32],
    pub(super) offer: ServerOffer,
    /// What we have said to it.
    pub(super) own: Offer,
    pub(super) guard: Guard,
    refusal_key: RefusalKey,
    confirm: Vec<u8>,
    packet: Packet,
}

/// What a challenge comes to.
pub(super) enum Challenged {
    /// It is answered by this.
    Answer(Box<Packet>),
    /// Its sender is not the server that it must be.
    OtherServer,
    Ignore,
}

/// One attempt.
pub(super) struct Seek {
    attempt: u64,
    session: u64,
    initiator: Initiator,
    mark_key: Option<MarkKey>,
    first: [u8; 32],
    connect: Packet,
    begun_at: Instant,
    again_at: Instant,
    interval: Duration,
    challenges: u32,
    cookies: u32,
    candidates: Vec<Candidate>,
}

fn packet(kind: Kind, connection: u32, payload: &[u8]) -> Packet {
    Packet::new(open_packet(kind, false, connection, payload).into(), None)
}

/// The words that a client asks with.
fn connect<'a>(config: &'a ClientConfig, attempt: u64, session: u64, noise: [u8; 32]) -> Connect<'a> {
    let (client, server_name) = (config.identity.client_id(), &config.server_name[..]);
    Connect { is_query: false, attempt, client, session, server_name, noise, cookie: None }
}

impl Seek {
    pub(super) fn new(
        config: &ClientConfig,
        session: u64,
        known: Option<[u8; 32]>,
        random: &mut Randomness,
        now: Instant,
    ) -> Result<Self, KeyError> {
        let attempt = random.u64().max(1);
        let (initiator, noise) = Initiator::new(&connect(config, attempt, session, [0; 32]).prologue(), random)?;
        let first: [u8; 32] = noise.try_into().map_err(|_| KeyError)?;
        let mark_key = known.as_ref().map(|key| initiator.mark_key(key)).transpose()?;
        let asking = connect(config, attempt, session, first);
        let word = steering_word(asking.client);
        Ok(Seek {
            attempt,
            session,
            initiator,
            mark_key,
            first,
            connect: packet(Kind::Connect, word, &asking.write()),
            begun_at: now,
            again_at: now,
            interval: AGAIN_FIRST,
            challenges: 0,
            cookies: 0,
            candidates: Vec::new(),
        })
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
        let mut packets: Vec<_> = places.iter().map(|path| (*path, self.connect.clone())).collect();
        packets.extend(self.candidates.iter().map(|candidate| (candidate.path, candidate.packet.clone())));
        packets
    }

    /// A server wants a cookie back.
    pub(super) fn bring_back(&mut self, config: &ClientConfig, attempt: u64, cookie: Cookie) -> Option<Packet> {
        if attempt != self.attempt || self.cookies == COOKIES_MAX {
            return None;
        }
        self.cookies += 1;
        let asking = Connect { cookie: Some(cookie), ..connect(config, attempt, self.session, self.first) };
        Some(packet(Kind::Connect, steering_word(asking.client), &asking.write()))
    }

    /// A server, or somebody, answers.
    pub(super) fn challenged(
        &mut self,
        (config, own): (&ClientConfig, Offer),
        path: Path,
        (attempt, second): (u64, SecondStep<'_>),
        random: &mut Randomness,
    ) -> Challenged {
        if attempt != self.attempt {
            return Challenged::Ignore;
        }
        let is_same = |one: &&Candidate| (one.path, one.connection) == (path, second.connection);
        if let Some(candidate) = self.candidates.iter().find(is_same) {
            return Challenged::Answer(Box::new(candidate.packet.clone()));
        }
        let is_known = self.mark_key.as_ref().is_some_and(|key| key.has_marked(second));
        if self.candidates.len() == CANDIDATES_MAX || !is_known && self.challenges >= CHALLENGES_MAX {
            return Challenged::Ignore;
        }
        self.challenges += u32::from(!is_known);
        match self.answer((config, own), path, second, random) {
            Ok(Some(candidate)) => {
                let packet = candidate.packet.clone();
                self.candidates.push(candidate);
                Challenged::Answer(Box::new(packet))
            }
            Ok(None) => Challenged::OtherServer,
            Err(_) => Challenged::Ignore,
        }
    }

    fn answer(
        &self,
        (config, own): (&ClientConfig, Offer),
        path: Path,
        second: SecondStep<'_>,
        random: &mut Randomness,
    ) -> Result<Option<Candidate>, KeyError> {
        let met = self.initiator.read(second)?;
        let offer = ServerOffer::read(&met.payload).map_err(|_| KeyError)?;
        if config.server_key.is_some_and(|key| key != met.server) {
            return Ok(None);
        }
        let (key, refusal_key) = (met.server, met.refusal_key());
        let (third, secrets) = met.answer((&config.identity, &config.psk), &own.write(), random)?;
        let client = config.identity.client_id();
        let confirm = Confirm { attempt: self.attempt, client, noise: &third }.write();
        let packet = packet(Kind::Confirm, second.connection, &confirm);
        let guard = Guard::new(secrets.of_client()?);
        let connection = second.connection;
        Ok(Some(Candidate { path, connection, key, offer, own, guard, refusal_key, confirm, packet }))
    }

    /// A server refuses. Whether it is one whose challenge was answered; it is no candidate any more.
    pub(super) fn refused(&mut self, (path, connection): (Path, u32), reason: Refusal, proof: Option<&Proof>) -> bool {
        let Some(proof) = proof else { return false };
        let place = self.candidates.iter().position(|candidate| {
            (candidate.path, candidate.connection) == (path, connection)
                && candidate.refusal_key.is_proven(reason as u8, &candidate.confirm, proof)
        });
        place.map(|place| self.candidates.swap_remove(place)).is_some()
    }

    /// A sealed packet that may say that a candidate accepts us: on which terms, and the candidate.
    pub(super) fn accepted(&mut self, path: Path, raw: &RawPacket<'_>, now: Instant) -> Option<(Candidate, Terms)> {
        let is_of = |one: &Candidate| (one.path, one.connection) == (path, raw.header.connection);
        let place = self.candidates.iter().position(is_of).filter(|_| raw.header.kind == Kind::Agree)?;
        let body = self.candidates[place].guard.open_control(raw, now).ok()?;
        let terms = Terms::read(&body).ok()?;
        Some((self.candidates.swap_remove(place), terms))
    }
}
