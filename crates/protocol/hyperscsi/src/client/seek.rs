//! Finding a server and shaking hands with it.

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Path};

use super::{ClientConfig, ServerInfo};
use crate::channel::{Capacity, Channel, Setup, Sizes};
use crate::handshake::{Initiator, RefusalKey};
use crate::keys::{KeyError, Randomness};
use crate::options::{DeviceOption, OptionConflict};
use crate::packet_base_bytes;
use crate::server::loose_packet;
use crate::terms::Terms;
use crate::wire::flow::Window;
use crate::wire::offer::Offer;
use crate::wire::setup::{Cookie, Discovery, Proof, Refusal, steering_word, write_adn_reply};
use crate::wire::{Opcode, Prefix, RawPacket};

const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// Discoveries with one ephemeral key before a new attempt is made.
const TRIES_MAX: u32 = 4;

/// Answers to one discovery that want a cookie brought back: one for each way to the server.
const COOKIES_MAX: u32 = 8;

/// Third steps before the search starts anew.
const THIRD_STEPS_MAX: u32 = 8;

/// Second steps that are read in any case after each discovery; of more, few are, but any of them may be.
const READ_SURELY: u64 = 16;

/// In a flood of second steps the next discovery is not put off for longer: the more true ones come, the sooner one is read.
const AGAIN_IN_FLOOD: Duration = Duration::from_millis(100);

/// Which of many are looked at, when nobody knows how many will come: each has the same chance, or nearly, so that who comes first
/// takes no place from who comes last, and a flood does not take the processor. Of n they are about 16 (1 + ln(n / 16)).
#[derive(Default)]
struct Sample(u64);

impl Sample {
    fn takes(&mut self, random: &mut Randomness) -> bool {
        self.0 += 1;
        self.0 <= READ_SURELY || random.u64() % self.0 < READ_SURELY
    }
}

/// After a hint that the server does not know the handshake, it has this long to accept it, or two round trips.
const HINT_GRACE: Duration = Duration::from_millis(50);

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
    /// Of the second steps since the last discovery.
    sample: Sample,
    begun_at: Instant,
    wait: Duration,
    again_at: Instant,
}

impl Seeking {
    /// A fresh attempt; `wait` is how long the one before waited.
    pub(super) fn new(
        config: &ClientConfig,
        path: Path,
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
        let (initiator, first) = Initiator::new(&config.identity, &config.psk, &discovery.prologue(), random)?;
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
            sample: Sample::default(),
            begun_at: now,
            wait: wait.unwrap_or(AGAIN_FIRST),
            again_at: now,
        })
    }

    pub(super) fn again_at(&self) -> Instant {
        self.again_at
    }

    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    pub(super) fn is_worn(&self) -> bool {
        self.tries >= TRIES_MAX
    }

    /// A server wants the discovery again, with this cookie. Anybody may have said so: of each discovery no more than a few
    /// become.
    pub(super) fn take_cookie(&mut self, path: Path, cookie: &Cookie) {
        let Ok(packet) = RawPacket::read(&self.packet.head) else { return };
        let Ok((discovery, _)) = Discovery::read(packet.body) else { return };
        if self.cookies < COOKIES_MAX {
            self.cookies += 1;
            let Prefix { connection, number, .. } = packet.prefix;
            let body = Discovery { cookie: Some(cookie), ..discovery }.write();
            self.proofs.push_back((path, loose_packet(Opcode::DeviceDiscovery, connection, number, &body)));
        }
    }

    /// The discovery, when it is due, and where it goes.
    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        if let Some(proof) = self.proofs.pop_front() {
            return Some(proof);
        }
        if self.again_at > now || self.is_worn() {
            return None;
        }
        self.tries += 1;
        self.wait = if self.sample.0 > READ_SURELY { AGAIN_IN_FLOOD } else { self.wait };
        (self.cookies, self.sample) = (0, Sample::default());
        self.again_at = now + self.wait;
        self.wait = (self.wait * 2).min(AGAIN_MAX);
        Some((self.path, self.packet.clone()))
    }

    /// Whether an answer belongs to this attempt.
    pub(super) fn is_answered_by(&self, prefix: &Prefix) -> bool {
        prefix.number == self.attempt
    }

    /// A second step has come. Anybody can send one: on failure the attempt goes on, and the true one may still come.
    pub(super) fn second_step(
        &mut self,
        config: &ClientConfig,
        (path, connection, noise): (Path, u32, &[u8]),
        offer: Offer,
        random: &mut Randomness,
        now: Instant,
    ) -> Result<Answering, Rejection> {
        if !self.sample.takes(random) {
            return Err(Rejection::TooMany);
        }
        let (payload, mut handshake) = self.initiator.read(&config.identity, noise)?;
        let refusal_key = handshake.refusal_key();
        let public_key = handshake.remote_public().and_then(|key| key.try_into().ok()).ok_or(KeyError)?;
        if config.server_key.is_some_and(|pinned| pinned != public_key) {
            return Err(Rejection::OtherServer);
        }
        let server = Offer::read(&payload).map_err(|_| KeyError)?;
        let transfer_max_bytes = server.transfer_max_bytes.min(config.transfer_max_bytes);
        let terms = Terms::new(offer.options.clone(), server.options, transfer_max_bytes)?;
        let agreed = terms.agreed().clone();
        let third = handshake.write(&offer.write())?;
        let packet = loose_packet(Opcode::AdnReply, connection, self.attempt, &write_adn_reply(&third));
        let limit = config.link.packet_max_bytes.min(server.packet_max_bytes) as usize;
        let mut channel = Channel::new(Setup {
            path,
            connection,
            ring: handshake.finish()?,
            floor: agreed.protection_min,
            data_opcode: Opcode::HcbeRequest,
            window: Window::fitting(1),
            recovery: config.recovery,
            sizes: Sizes { packet_base_bytes: packet_base_bytes(path.peer).min(limit), packet_limit_bytes: limit },
            capacity: Capacity { ours: config.link.receive_capacity_packets, theirs: server.receive_capacity_packets },
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
        let hint_grace = (round_trip * 2).max(HINT_GRACE);
        let (tries, again_at, gives_up_at) = (0, now, None);
        Ok(Answering { channel, info, terms, packet, tries, again_at, hint_grace, gives_up_at, refusal_key })
    }
}

/// Why a second step leads nowhere.
pub(super) enum Rejection {
    /// It is not even read: too many came that lead nowhere.
    TooMany,
    /// It does not verify.
    NotAuthentic,
    /// It is that of a server with another key than the one that is pinned.
    OtherServer,
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

/// The third step is on its way; the server's windows will say that it accepts.
pub(super) struct Answering {
    pub(super) channel: Channel,
    pub(super) info: ServerInfo,
    pub(super) terms: Terms,
    packet: Packet,
    tries: u32,
    again_at: Instant,
    /// How long the server has to accept us after a hint that it does not know the handshake.
    hint_grace: Duration,
    /// When it has not done so.
    gives_up_at: Option<Instant>,
    refusal_key: RefusalKey,
}

impl Answering {
    /// When there is something to do.
    pub(super) fn again_at(&self) -> Instant {
        self.gives_up_at.map_or(self.again_at, |at| at.min(self.again_at))
    }

    /// Whether the search must begin anew.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let is_worn = self.tries >= THIRD_STEPS_MAX && self.again_at <= now;
        is_worn || self.gives_up_at.is_some_and(|at| at <= now)
    }

    /// Whether it is the server of the second step that refuses our third one.
    pub(super) fn is_proven(&self, refusal: Refusal, proof: Option<&Proof>) -> bool {
        let third = RawPacket::read(&self.packet.head).map(|packet| packet.body);
        third.is_ok_and(|third| proof.is_some_and(|proof| self.refusal_key.is_proven(refusal, third, proof)))
    }

    /// Somebody says that the server does not go on. A server that accepts us says so as soon, whoever says otherwise.
    pub(super) fn hinted(&mut self, refusal: Refusal, now: Instant) {
        if refusal == Refusal::UnknownConnection {
            self.gives_up_at.get_or_insert(now + self.hint_grace);
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        if self.again_at > now || self.tries >= THIRD_STEPS_MAX {
            return None;
        }
        self.tries += 1;
        self.again_at = now + AGAIN_FIRST * self.tries;
        Some(self.packet.clone())
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
