//! Strangers at the server's door, while the clients work: they flood it with first steps under addresses that nobody has, bring back
//! cookies to begin handshakes without end, and guess at the password. Or they know it, and begin one session after the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use sanwire_core::{LinkId, MacAddress, Path, Peer};
use sanwire_hyperscsi::wire::setup::{AdnRequest, Cookie, Discovery, steering_word};
use sanwire_hyperscsi::wire::{Header, Opcode, Prefix, Protection, RawPacket, Tag};
use sanwire_hyperscsi::{Client, ClientConfig, Identity};

use super::attacker::loose;
use super::participants::{PASSWORD, client_peer, server_peer};
use super::plan::Medium;
use super::wire::{Event, World};
use crate::random::Random;
use crate::world::Outcome;

/// How long a packet of theirs is on its way, and one to them.
const WAY: Duration = Duration::from_micros(100);

/// First steps that they have computed before.
const FIRST_STEPS: usize = 64;

/// How often each of those who guess begins anew.
const GUESS_EVERY: Duration = Duration::from_millis(20);

/// Who stands at the door.
#[derive(Clone, Debug)]
pub struct StrangersPlan {
    /// First steps in a second under addresses that nobody has.
    pub forged_per_second: u64,
    /// First steps in a second of hosts that bring back the cookies that they get.
    pub begun_per_second: u64,
    /// So many of those there are.
    pub hosts: u64,
    /// How many guess at the password, each as fast as it can.
    pub guessers: u64,
    /// Whether each of these keeps its key; otherwise it has another one for each guess.
    pub keep_keys: bool,
    /// How many know the password, and begin sessions as fast as they can, each with one key.
    pub greedy: u64,
    /// Whether those with addresses of their own share that of the first client, as far as the medium lets them.
    pub are_next_door: bool,
    /// Whether first steps are in the names of the clients.
    pub know_names: bool,
    /// Whether the server lists its clients; if not, it takes every client that knows the password.
    pub are_clients_listed: bool,
}

/// What one of them does next.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// A first step under a forged address.
    Forge,
    /// One under an address at which the answer is heard.
    Begin,
    /// A guess.
    Guess(u64),
    /// Another session.
    Greed(u64),
}

/// The strangers of a world.
pub(super) struct Strangers {
    plan: StrangersPlan,
    random: Random,
    /// First steps that somebody has computed before: of clients, if they know their names.
    first_steps: Vec<Vec<u8>>,
    /// Those who go on with a handshake, and whether that is a guess.
    machines: BTreeMap<Peer, (Client, bool)>,
    /// Second steps that they have got.
    pub(super) handshakes: u64,
}

impl Strangers {
    pub(super) fn new(plan: StrangersPlan, random: Random) -> Self {
        Strangers { plan, random, first_steps: Vec::new(), machines: BTreeMap::new(), handshakes: 0 }
    }

    /// Whether a peer is one of them.
    pub(super) fn has(&self, peer: Peer) -> bool {
        match peer {
            Peer::Ethernet(mac) => mac.0[2] == 1,
            Peer::Udp(address) => address.port() >= 50_000,
        }
    }
}

/// The address of a stranger: of one of so many, or of one who shares the first client's.
fn stranger(medium: Medium, number: u64, is_next_door: bool) -> Peer {
    let [.., third, second, first] = number.to_be_bytes();
    match (medium, client_peer(medium, 0, 0)) {
        (Medium::Ethernet, _) => Peer::Ethernet(MacAddress([2, 0, 1, third, second, first])),
        (Medium::Udp, Peer::Udp(address)) if is_next_door => {
            Peer::Udp(SocketAddr::new(address.ip(), 50_000 + (number % 10_000) as u16))
        }
        (Medium::Udp, _) => Peer::Udp(([11, third, second, first], 50_000).into()),
    }
}

impl World {
    pub(super) fn prepare_strangers(&mut self) {
        let Some(Strangers { plan, .. }) = &self.wire.strangers_at_door else { return };
        let guessers = (0..plan.guessers).map(Move::Guess).chain((0..plan.greedy).map(Move::Greed));
        let floods = [(plan.forged_per_second, Move::Forge), (plan.begun_per_second, Move::Begin)];
        let floods = floods.into_iter().filter(|(rate, _)| *rate > 0).map(|(_, flood)| flood);
        for first in floods.chain(guessers).collect::<Vec<_>>() {
            let after = self.random.micros(0..=20_000);
            self.schedule(self.now + after, Event::Stranger(first));
        }
    }

    /// A stranger does something, and will again until the world is healed.
    pub(super) fn intrude(&mut self, step: Move) -> Outcome<()> {
        let Some(strangers) = &self.wire.strangers_at_door else { return Ok(()) };
        if self.wire.healed_at.is_some() {
            return Ok(());
        }
        let StrangersPlan { forged_per_second, begun_per_second, hosts, are_next_door, .. } = strangers.plan;
        let every = |rate: u64| Duration::from_nanos(1_000_000_000 / rate.max(1));
        let medium = self.plan.wire.medium;
        let pause = match step {
            Move::Forge => {
                let forged = self.random.range(1 << 16..=(1 << 24) - 1);
                let made_up = self.random.chance(500_000).then_some((self.random.u64(), [7; 16]));
                self.first_step(stranger(medium, forged, false), made_up)?;
                every(forged_per_second)
            }
            Move::Begin => {
                let host = self.random.range(0..=hosts.max(1) - 1);
                self.first_step(stranger(medium, host, are_next_door), None)?;
                every(begun_per_second)
            }
            Move::Guess(number) => {
                let seed = self.random.seed();
                let key = if self.guessers_keep_keys() { [100 + number as u8; 32] } else { seed };
                let config = ClientConfig { psk: seed, ..self.config_of_stranger(key)? };
                self.come(stranger(medium, 1000 + number, are_next_door), config);
                GUESS_EVERY
            }
            Move::Greed(number) => {
                let config = self.config_of_stranger([200 + number as u8; 32])?;
                self.come(stranger(medium, 2000 + number, are_next_door), config);
                GUESS_EVERY
            }
        };
        self.schedule(self.now + pause, Event::Stranger(step));
        Ok(())
    }

    fn guessers_keep_keys(&self) -> bool {
        self.wire.strangers_at_door.as_ref().is_some_and(|strangers| strangers.plan.keep_keys)
    }

    /// A first step that was computed before, as a new attempt; or as that attempt again, with the cookie that it needs.
    fn first_step(&mut self, from: Peer, again: Option<(u64, Cookie)>) -> Outcome<()> {
        let Some(strangers) = &mut self.wire.strangers_at_door else { return Ok(()) };
        let (attempt, cookie) = match again {
            Some((attempt, cookie)) => (attempt, Some(cookie)),
            None => (strangers.random.u64(), None),
        };
        // By the attempt it is known again.
        let body = &strangers.first_steps[attempt as usize % strangers.first_steps.len()];
        let (discovery, _) = Discovery::read(body).map_err(|error| error.to_string())?;
        let header = Header::single(Opcode::DeviceDiscovery, Tag::default());
        let (connection, number) = (steering_word(discovery.client), attempt);
        let prefix = Prefix { header, protection: Protection::Checksum, epoch: 0, connection, number };
        let bytes = loose(prefix, &Discovery { cookie: cookie.as_ref(), ..discovery }.write());
        self.send_as(from, bytes);
        Ok(())
    }

    /// Somebody who knows the password, with this key.
    fn config_of_stranger(&mut self, key: [u8; 32]) -> Outcome<ClientConfig> {
        let identity = Identity::from_private(key).map_err(|error| error.to_string())?;
        Ok(ClientConfig { identity, ..self.client_config(0)? })
    }

    /// A stranger begins a handshake, and forgets those that it began before.
    fn come(&mut self, from: Peer, config: ClientConfig) {
        let is_guess = config.psk != PASSWORD;
        let mut machine = Client::new(config, self.now);
        self.let_speak(from, &mut machine);
        if let Some(strangers) = &mut self.wire.strangers_at_door {
            strangers.machines.insert(from, (machine, is_guess));
        }
    }

    fn let_speak(&mut self, from: Peer, machine: &mut Client) {
        while let Some((_, packet)) = machine.poll_transmit(self.now) {
            self.send_as(from, packet.head.to_vec());
        }
    }

    fn send_as(&mut self, from: Peer, bytes: Vec<u8>) {
        self.schedule(self.now + WAY, Event::FromStranger { from, bytes });
    }

    /// The server answers a stranger.
    pub(super) fn answer_stranger(&mut self, to: Peer, bytes: Vec<u8>) {
        self.schedule(self.now + WAY, Event::ToStranger { to, bytes });
    }

    /// A stranger hears something; under a forged address nobody does.
    pub(super) fn be_heard(&mut self, to: Peer, bytes: &[u8]) -> Outcome<()> {
        let Some(strangers) = self.wire.strangers_at_door.as_mut().filter(|_| self.wire.healed_at.is_none()) else {
            return Ok(());
        };
        if let Some((mut machine, is_guess)) = strangers.machines.remove(&to) {
            let path = Path { link: LinkId(0), peer: server_peer(self.plan.wire.medium, 0) };
            machine.handle_input(path, bytes, self.now);
            if is_guess && machine.server().is_some() {
                return Err(format!("a stranger is let in with a wrong password: {}", self.describe()));
            }
            self.let_speak(to, &mut machine);
            if let Some(strangers) = &mut self.wire.strangers_at_door {
                strangers.machines.insert(to, (machine, is_guess));
            }
            return Ok(());
        }
        let hosts = strangers.plan.hosts;
        let is_there = (0..hosts).any(|host| stranger(self.plan.wire.medium, host, strangers.plan.are_next_door) == to);
        let packet = RawPacket::read(bytes).map_err(|error| error.to_string())?;
        match AdnRequest::read(packet.body) {
            Ok(AdnRequest::Cookie(cookie)) if is_there => self.first_step(to, Some((packet.prefix.number, cookie))),
            _ => Ok(()),
        }
    }

    /// They compute their first steps, once.
    pub(super) fn arm_strangers(&mut self) -> Outcome<()> {
        let Some(Strangers { plan, first_steps, .. }) = &self.wire.strangers_at_door else { return Ok(()) };
        let know_names = plan.know_names;
        if !first_steps.is_empty() {
            return Ok(());
        }
        let mut steps = Vec::new();
        for number in 0..FIRST_STEPS {
            let mut config = self.client_config(number % self.plan.clients)?;
            if !know_names {
                config.identity = Identity::from_private(config.seed).map_err(|error| error.to_string())?;
            }
            let mut somebody = Client::new(config, self.now);
            let (_, packet) = somebody.poll_transmit(self.now).ok_or("a client says nothing")?;
            let packet = RawPacket::read(&packet.head).map_err(|error| error.to_string())?;
            steps.push(packet.body.to_vec());
        }
        if let Some(strangers) = &mut self.wire.strangers_at_door {
            strangers.first_steps = steps;
        }
        Ok(())
    }

    /// Second steps that the server has made for strangers.
    #[must_use]
    pub fn begun_by_strangers(&self) -> u64 {
        self.wire.strangers_at_door.as_ref().map_or(0, |strangers| strangers.handshakes)
    }

    /// Wrong passwords that the server has read since it started.
    #[must_use]
    pub fn guesses_read(&self) -> u64 {
        let shards = self.host.as_ref().map(|host| host.shards.iter()).into_iter().flatten();
        shards.map(|shard| shard.server.counters().not_authentic).sum()
    }
}
