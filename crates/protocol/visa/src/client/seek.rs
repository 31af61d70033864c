//! How a client finds its server and proves who it is.
//!
//! Anybody on the way can answer. So several challenges are answered, each by a proof that says nothing to who lacks the password;
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
use crate::wire::Kind;
use crate::wire::header::{RawPacket, open_packet};
use crate::wire::offer::{Offer, ServerOffer, Terms};
use crate::wire::setup::{Confirm, Connect, Refusal, steering_word};

/// An attempt lasts so long; then another one begins, with new keys.
const LIFETIME: Duration = Duration::from_secs(2);

const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_millis(500);

/// Servers of one attempt that may accept us.
const CANDIDATES_MAX: usize = 4;

/// Challenges of one attempt that are answered. None of them is forgotten, see [`Third`].
const THIRDS_MAX: usize = 64;

/// Challenges of one attempt that are looked at where the server's key is not known.
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
    /// What we have said to it.
    own: Offer,
    secrets: Secrets,
    refusal_key: Arc<RefusalKey>,
    confirm: Vec<u8>,
    packet: Packet,
}

/// A server whose challenge was answered.
pub(super) struct Candidate {
    pub(super) path: Path,
    pub(super) connection: u32,
    pub(super) key: [u8; 32],
    pub(super) offer: ServerOffer,
    /// What we have said to it.
    pub(super) own: Offer,
    pub(super) guard: Guard,
    /// When its challenge came.
    pub(super) met_at: Instant,
    /// How likely it is that this is the server, and that it is there.
    rank: u8,
    refusal_key: Arc<RefusalKey>,
    confirm: Vec<u8>,
    packet: Packet,
}

/// What a challenge comes to.
pub(super) enum Challenged {
    /// It is answered by this.
    Answer(Box<Packet>),
    /// Its sender is not the server that it must be, but the one with this key.
    OtherServer {
        key: [u8; 32],
    },
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
    thirds: Vec<Third>,
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
            thirds: Vec::new(),
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
        now: Instant,
    ) -> Challenged {
        if attempt != self.attempt {
            return Challenged::Ignore;
        }
        let is_known = self.mark_key.as_ref().is_some_and(|key| key.has_marked(second));
        let said = self.thirds.iter().find(|third| third.second == second.noise).cloned();
        if said.as_ref().is_some_and(|third| (third.connection, third.mark) != (second.connection, second.mark)) {
            return Challenged::Ignore;
        }
        if let (None, false) = (&said, is_known) {
            if self.challenges >= CHALLENGES_MAX {
                return Challenged::Ignore;
            }
            self.challenges += 1;
        }
        let is_new = said.is_none();
        let third = match said {
            Some(third) => third,
            None if self.thirds.len() == THIRDS_MAX => return Challenged::Ignore,
            None => match self.answer((config, own), second, random) {
                Ok(Ok(third)) => third,
                Ok(Err(key)) => return Challenged::OtherServer { key },
                Err(_) => return Challenged::Ignore,
            },
        };
        let packet = third.packet.clone();
        let rank = 2 * u8::from(is_known) + u8::from(config.places.contains(&path));
        let drawn = is_new.then(|| random.u64() % u64::from(self.challenges.max(1)));
        match self.take_in(third, path, (rank, drawn), now) {
            true => Challenged::Answer(Box::new(packet)),
            false => Challenged::Ignore,
        }
    }

    /// Makes who has sent a challenge a candidate, if it is none and there is a place, be it that of one who is less likely the server.
    /// Of those that are no likelier than all others each has a chance, once, so that who comes first, or most often, does not keep the
    /// true one out.
    fn take_in(&mut self, third: Third, path: Path, (rank, drawn): (u8, Option<u64>), met_at: Instant) -> bool {
        if self.candidates.iter().any(|one| one.path == path && one.confirm == third.confirm) {
            return true;
        }
        if self.candidates.len() >= CANDIDATES_MAX {
            let ranks = self.candidates.iter().enumerate().map(|(place, one)| (one.rank, place));
            let (least, place) = ranks.min().unwrap_or_default();
            let is_drawn = rank == least && drawn.is_some_and(|drawn| drawn < CANDIDATES_MAX as u64);
            if rank <= least && !is_drawn {
                return false;
            }
            self.candidates.remove(place);
        }
        let Ok(ring) = third.secrets.clone().of_client() else { return false };
        let Third { connection, key, offer, own, refusal_key, confirm, packet, .. } = third;
        let guard = Guard::new(ring, Recycler::new());
        let candidate =
            Candidate { path, connection, key, offer, own, guard, met_at, rank, refusal_key, confirm, packet };
        self.candidates.push(candidate);
        true
    }

    /// The answer to a challenge; or the key of its sender, if that is not the server that it must be.
    fn answer(
        &mut self,
        (config, own): (&ClientConfig, Offer),
        second: SecondStep<'_>,
        random: &mut Randomness,
    ) -> Result<Result<Third, [u8; 32]>, KeyError> {
        let met = self.initiator.read(second)?;
        let offer = ServerOffer::read(&met.payload).map_err(|_| KeyError)?;
        if config.server_key.is_some_and(|key| key != met.server) {
            return Ok(Err(met.server));
        }
        let (key, refusal_key) = (met.server, Arc::new(met.refusal_key()));
        let (noise, secrets) = met.answer((&config.identity, &config.psk), &own.write(), random)?;
        let client = config.identity.client_id();
        let confirm = Confirm { attempt: self.attempt, client, noise: &noise }.write();
        let packet = packet(Kind::Confirm, second.connection, &confirm);
        let SecondStep { connection, mark, noise: second } = second;
        let second = second.to_vec();
        let third = Third { connection, mark, second, key, offer, own, secrets, refusal_key, confirm, packet };
        self.thirds.push(third.clone());
        Ok(Ok(third))
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

    /// TCP has lost the way there: whether a candidate was there, of whom nothing comes any more.
    pub(super) fn lost(&mut self, path: Path) -> bool {
        let before = self.candidates.len();
        self.candidates.retain(|candidate| candidate.path != path);
        self.candidates.len() < before
    }

    /// This attempt in the place of another: it goes on asking as seldom as that did.
    pub(super) fn in_place_of(self, former: &Seek) -> Seek {
        Seek { again_at: former.again_at, interval: former.interval, ..self }
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

#[cfg(test)]
mod tests;
