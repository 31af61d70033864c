//! Finding a server and shaking hands with it.

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_buffer::{Packet, Recycler};
use sanwire_core::{Instant, Path};

use super::answering::{AGAIN_FIRST, Answering};
use super::chance::{Answers, Sample};
use super::{ClientConfig, ServerInfo};
use crate::channel::{Capacity, Channel, Setup, Sizes};
use crate::handshake::{Initiator, MarkKey, Met, Secrets};
use crate::keys::{Identity, KeyError, Psk, Randomness};
use crate::option_exchange::OptionExchange;
use crate::options::{DeviceOption, OptionConflict};
use crate::packet_base_bytes;
use crate::server::loose_packet;
use crate::wire::flow::Window;
use crate::wire::offer::Offer;
use crate::wire::setup::{Cookie, Discovery, SecondStep, steering_word, write_adn_reply};
use crate::wire::{Opcode, Prefix, RawPacket};

const AGAIN_MAX: Duration = Duration::from_secs(1);

/// Discoveries with one ephemeral key before a new attempt is made.
const TRIES_MAX: u32 = 4;

/// An attempt lasts no longer, whatever was answered: servers forget theirs after 5 s.
const ATTEMPT_MAX: Duration = Duration::from_secs(4);

/// Answers to one discovery that want a cookie brought back: one for each way to the server.
const COOKIES_MAX: u32 = 8;

/// In a flood of second steps the next discovery is not put off for longer: the more true ones come, the sooner one is read.
const AGAIN_IN_FLOOD: Duration = Duration::from_millis(100);

/// Servers that may be the one that is sought; the one that has answered first makes room.
const ANSWERING_MAX: usize = 64;

/// Third steps of one attempt that can be said again: more than are answered in its time by who is not in a flood.
const THIRDS_MAX: usize = 2 * ANSWERING_MAX;

/// The third step after a second one, and what it leads to. Whenever this second step comes again, by whatever path, so does the third:
/// another one would be sealed with the same key and number.
#[derive(Clone)]
struct Third {
    second: Vec<u8>,
    message: Vec<u8>,
    secrets: Secrets,
    offer: Offer,
}

/// Looking for the server: a discovery that is repeated.
pub(super) struct Seeking {
    path: Path,
    attempt: u64,
    initiator: Initiator,
    packet: Packet,
    /// The same with cookies of servers that have asked for them, and where it goes.
    proofs: VecDeque<(Path, Packet)>,
    /// Cookies that were taken since the last discovery without one.
    cookies: u32,
    tries: u32,
    /// By what second steps of the server whose key we know are told from others.
    mark_key: Option<MarkKey>,
    /// Of the other second steps since the last discovery.
    sample: Sample,
    /// And of its own: an impostor that relays what the server sends can send many.
    marked: Sample,
    /// Not all servers that have answered since then have a third step.
    is_crowded: bool,
    /// Who has made a second step that verifies, which anybody can: who accepts us is the server.
    answering: VecDeque<Answering>,
    thirds: VecDeque<Third>,
    begun_at: Instant,
    wait: Duration,
    again_at: Instant,
    /// No fresh attempt before this: the server has had no time to answer.
    held_until: Instant,
}

impl Seeking {
    /// A fresh attempt to find the server on this path, whose key may be known; `wait` is how long the one before waited.
    pub(super) fn new(
        config: &ClientConfig,
        (path, known): (Path, Option<[u8; 32]>),
        session: u64,
        random: &mut Randomness,
        wait: Option<Duration>,
        now: Instant,
    ) -> Result<Self, KeyError> {
        let client = config.identity.client_id();
        let mut discovery = Discovery {
            announce_only: false,
            client,
            session,
            packet_max_bytes: config.link.packet_max_bytes,
            server_name: &config.server_name,
            noise: &[],
            cookie: None,
        };
        let (initiator, first) = Initiator::new(&discovery.prologue(), random)?;
        let mark_key = known.and_then(|server| initiator.mark_key(&server).ok());
        discovery.noise = &first;
        let attempt = random.u64();
        let packet = loose_packet(Opcode::DeviceDiscovery, steering_word(client), attempt, &discovery.write());
        Ok(Seeking {
            path,
            attempt,
            initiator,
            packet,
            proofs: VecDeque::new(),
            cookies: 0,
            tries: 0,
            mark_key,
            sample: Sample::default(),
            marked: Sample::default(),
            is_crowded: false,
            answering: VecDeque::new(),
            thirds: VecDeque::new(),
            begun_at: now,
            wait: wait.unwrap_or(AGAIN_FIRST),
            again_at: now,
            held_until: now,
        })
    }

    /// When there is something to do.
    pub(super) fn again_at(&self) -> Instant {
        let own = match (self.is_worn(), self.is_answered()) {
            (true, true) => self.again_at.max(self.begun_at + ATTEMPT_MAX),
            (true, false) => self.again_at.max(self.held_until),
            (false, _) => self.again_at,
        };
        self.answering.iter().map(Answering::again_at).fold(own, Instant::min)
    }

    /// How long the next discovery is waited for.
    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    /// Whether somebody has made a second step.
    pub(super) fn is_answered(&self) -> bool {
        !self.answering.is_empty()
    }

    fn is_worn(&self) -> bool {
        self.tries >= TRIES_MAX
    }

    /// Time has passed; whether a fresh attempt is to be made.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let was_answered = self.is_answered();
        self.answering.retain(|answering| !answering.is_over(now));
        if was_answered && !self.is_answered() {
            // The server may have begun anew.
            self.again_at = self.again_at.min(now);
        }
        let is_late = now.saturating_since(self.begun_at) >= ATTEMPT_MAX;
        self.is_worn() && self.again_at.max(self.held_until) <= now && (is_late || !self.is_answered())
    }

    /// A server wants the discovery again, with this cookie. Anybody may have said so: of each discovery no more than a few
    /// become.
    pub(super) fn take_cookie(&mut self, path: Path, cookie: &Cookie, now: Instant) {
        let Ok(packet) = RawPacket::read(&self.packet.head) else { return };
        let Ok((discovery, _)) = Discovery::read(packet.body) else { return };
        if self.cookies < COOKIES_MAX {
            self.cookies += 1;
            let Prefix { connection, number, .. } = packet.prefix;
            let body = Discovery { cookie: Some(cookie), ..discovery }.write();
            self.proofs.push_back((path, loose_packet(Opcode::DeviceDiscovery, connection, number, &body)));
            // Its second step takes as long again, or a little longer.
            let later = now + now.saturating_since(self.begun_at) * 2;
            self.held_until = self.held_until.max(later.min(self.begun_at + ATTEMPT_MAX));
        }
    }

    /// The discovery, when it is due, and where it goes.
    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        if let Some(proof) = self.proofs.pop_front() {
            return Some(proof);
        }
        if let Some(third) = self.answering.iter_mut().find_map(|answering| answering.poll_transmit(now)) {
            return Some(third);
        }
        if self.again_at > now || self.is_worn() {
            return None;
        }
        self.tries += 1;
        let is_flooded = self.sample.is_flooded() || self.marked.is_flooded() || self.is_crowded;
        self.wait = if is_flooded { AGAIN_IN_FLOOD } else { self.wait };
        (self.cookies, self.sample, self.marked, self.is_crowded) = (0, Sample::default(), Sample::default(), false);
        self.again_at = now + self.wait;
        self.wait = (self.wait * 2).min(AGAIN_MAX);
        Some((self.path, self.packet.clone()))
    }

    /// Whether an answer belongs to this attempt.
    pub(super) fn is_answered_by(&self, prefix: &Prefix) -> bool {
        prefix.number == self.attempt
    }

    /// A second step has arrived. Anybody can send one: the attempt goes on, and the true one may still come.
    pub(super) fn second_step(
        &mut self,
        config: &ClientConfig,
        (path, second): (Path, SecondStep<'_>),
        offer: Offer,
        (answers, random): (&mut Answers, &mut Randomness),
        now: Instant,
    ) -> Result<(), Rejection> {
        let SecondStep { connection, noise, .. } = second;
        let (met, is_marked) = self.meet(path, second, random)?;
        if config.server_key.is_some_and(|pinned| pinned != met.server) {
            return Err(Rejection::OtherServer { key: met.server });
        }
        let is_known = self.answering.iter().any(|answering| answering.is_of(&met.server));
        if !is_marked && !answers.may_have_one((self.attempt, self.tries), random, now) {
            self.is_crowded = true;
            return Err(Rejection::TooMany);
        }
        let (public_key, refusal_key) = (met.server, met.refusal_key());
        let server = Offer::read(&met.payload).map_err(|_| KeyError)?;
        let transfer_max_bytes = server.transfer_max_bytes.min(config.transfer_max_bytes);
        let own = (&config.identity, &config.psk);
        let Third { message, secrets, offer, .. } = self.third_step(noise, met, own, offer, random)?;
        let terms = OptionExchange::new(offer.options, server.options, transfer_max_bytes)?;
        let agreed = terms.agreed().clone();
        let packet = loose_packet(Opcode::AdnReply, connection, self.attempt, &write_adn_reply(&message));
        let limit = config.link.packet_max_bytes.min(server.packet_max_bytes) as usize;
        let mut channel = Channel::new(Setup {
            path,
            connection,
            ring: secrets.of_client()?,
            floor: agreed.protection_min,
            data_opcode: Opcode::HcbeRequest,
            window: Window::fitting(1),
            recovery: config.recovery,
            sizes: Sizes { packet_base_bytes: packet_base_bytes(path.peer).min(limit), packet_limit_bytes: limit },
            capacity: Capacity { ours: config.link.receive_capacity_packets, theirs: server.receive_capacity_packets },
            memory: Recycler::new(),
            now,
        });
        channel.apply(&agreed);
        let info = ServerInfo {
            name: server.name,
            path,
            packet_max_bytes: channel.packet_max_bytes() as u32,
            commands_max: server.commands_max.min(config.commands_max),
            transfer_max_bytes: terms.transfer_max_bytes(),
            transfer_limit_bytes: terms.transfer_limit_bytes(),
            keep_alive: Duration::from_millis(u64::from(server.keep_alive_ms).max(100)),
            instance: server.instance,
            public_key,
            options: agreed,
        };
        let round_trip = now.saturating_since(self.begun_at);
        let mut answering = Answering::new((channel, info, terms), (noise, packet), refusal_key, round_trip, now);
        if self.answering.is_empty() {
            // In truth there is one server, which is to have the time to accept us.
            self.again_at = self.again_at.max(now + answering.hint_grace());
        }
        if is_known {
            // It accepts us before, unless what it has said at first was to somebody else, who has only passed it on.
            answering.put_off();
        }
        if self.answering.len() == ANSWERING_MAX {
            self.answering.pop_front();
        }
        self.answering.push_back(answering);
        Ok(())
    }

    /// Who has made a second step, and whether it is known to be the server; but few are read of many.
    fn meet(&mut self, path: Path, second: SecondStep<'_>, random: &mut Randomness) -> Result<(Met, bool), Rejection> {
        if self.answering.iter().any(|answering| answering.has_said(path, second.noise)) {
            return Err(Rejection::TooMany);
        }
        let is_marked = self.mark_key.as_ref().is_some_and(|key| key.has_marked(second));
        let is_repeated = self.answering.iter().any(|answering| answering.second() == second.noise);
        let sample = if is_marked && !is_repeated { &mut self.marked } else { &mut self.sample };
        if !sample.takes(random) {
            return Err(Rejection::TooMany);
        }
        Ok((self.initiator.read(second)?, is_marked))
    }

    /// What follows this second step.
    fn third_step(
        &mut self,
        second: &[u8],
        met: Met,
        own: (&Identity, &Psk),
        offer: Offer,
        random: &mut Randomness,
    ) -> Result<Third, KeyError> {
        if let Some(said) = self.thirds.iter().find(|third| third.second == second) {
            return Ok(said.clone());
        }
        let (message, secrets) = met.answer(own, &offer.write(), random)?;
        let third = Third { second: second.to_vec(), message, secrets, offer };
        if self.thirds.len() == THIRDS_MAX {
            self.thirds.pop_front();
        }
        self.thirds.push_back(third.clone());
        Ok(third)
    }

    /// Those whose packets these may be.
    pub(super) fn answering(&mut self, path: Path, connection: u32) -> impl Iterator<Item = (usize, &mut Answering)> {
        let all = self.answering.iter_mut().enumerate();
        all.filter(move |(_, answering)| answering.may_be(path, connection))
    }

    /// One of them.
    pub(super) fn answering_mut(&mut self, index: usize) -> Option<&mut Answering> {
        self.answering.get_mut(index)
    }

    /// The one that accepts us.
    pub(super) fn take(&mut self, index: usize) -> Option<Answering> {
        self.answering.remove(index)
    }
}

/// Why a second step leads nowhere.
pub(super) enum Rejection {
    /// It was read before, or is not even read: too many came that lead nowhere.
    TooMany,
    /// It does not verify.
    NotAuthentic,
    /// It is that of a server with another key than the one that is pinned.
    OtherServer { key: [u8; 32] },
    /// One end enforces an option that the other does not support.
    Option(DeviceOption),
}

impl From<OptionConflict> for Rejection {
    fn from(OptionConflict(option): OptionConflict) -> Self {
        Rejection::Option(option)
    }
}

impl From<KeyError> for Rejection {
    fn from(_: KeyError) -> Self {
        Rejection::NotAuthentic
    }
}

/// A discovery that asks only who is there: see [`super::announcement`].
#[must_use]
pub fn discovery(config: &ClientConfig, number: u64) -> Packet {
    let client = config.identity.client_id();
    let body = Discovery {
        announce_only: true,
        client,
        session: 0,
        packet_max_bytes: config.link.packet_max_bytes,
        server_name: &config.server_name,
        noise: &[],
        cookie: None,
    };
    loose_packet(Opcode::DeviceDiscovery, steering_word(client), number, &body.write())
}
