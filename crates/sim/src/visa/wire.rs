//! The network of a world of VISA, with both ends and an attacker.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Principal};
use sanwire_visa::{Client, Mode};

use super::attacker::Attacker;
use super::host::Host;
use super::participants::{client_at, client_path, principal, server_path};
use super::plan::{LinkFault, PacketPlan, Plan};
use crate::hyperscsi::link::Link;
use crate::random::Random;
use crate::task::{Asked, Kind};
use crate::world::{self, Outcome, Wire};

/// A world of VISA.
pub type World = world::World<Network>;

/// Packets and events of one machine between two timeouts.
const DRAIN_MAX: usize = 20_000;

/// How long an idle world is watched, and the packets that it may send for each client and second.
const IDLE: Duration = Duration::from_secs(10);
const IDLE_PACKETS_MAX: u64 = 4;

/// How long it takes until a client learns that the server has closed its connection over TCP, behind all that was sent there.
const CLOSING: Duration = Duration::from_millis(100);

/// Something on its way.
#[derive(Debug)]
pub enum Event {
    /// A packet arrives.
    Arrives {
        /// Between the server and this client.
        client: usize,
        /// At the server.
        to_server: bool,
        /// Of which program of the client, or which of its connections of TCP.
        round: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// The same, of a program that was killed.
    ArrivesLate {
        /// Whose.
        client: usize,
        /// Of which of its programs.
        round: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// The server reads on what has come over TCP.
    Reads {
        /// From whom.
        client: usize,
        /// By which of its connections.
        round: u64,
    },
    /// A chance for the attacker.
    Attack,
}

/// What carries the packets.
pub struct Network {
    there: Vec<Link>,
    back: Vec<Link>,
    /// Programs and connections of TCP that each client has had.
    rounds: Vec<u64>,
    /// The server takes nothing from connections of TCP before this one: they are closed.
    open_from: Vec<u64>,
    /// Those of killed programs, with how much longer what they have sent is on its way.
    killed: BTreeMap<(usize, u64), Duration>,
    /// What has come over TCP and the server has not read, for want of memory.
    unread: BTreeMap<(usize, u64), VecDeque<Vec<u8>>>,
    /// What killed programs have asked, until the next one of their client is connected.
    left: Vec<Vec<Asked>>,
    attacker: Attacker,
    /// Packets that were sent.
    pub packets: u64,
    /// How many of the connections that clients had were classic, and how many not.
    pub modes: [u64; 2],
}

impl Wire for Network {
    type Plan = PacketPlan;
    type Fault = LinkFault;
    type Event = Event;
    type Client = Client;
    type Host = Host;

    const RECOVERY_MAX: Duration = Duration::from_secs(90);
    const STOPPING_MAX_US: u64 = 0;

    fn new(plan: &Plan, random: &mut Random) -> Self {
        let links = || (0..plan.clients).map(|_| Link::new(plan.wire.link)).collect();
        let attacker = Attacker::new(random.fork());
        Network {
            there: links(),
            back: links(),
            rounds: vec![0; plan.clients],
            open_from: vec![0; plan.clients],
            killed: BTreeMap::new(),
            unread: BTreeMap::new(),
            left: vec![Vec::new(); plan.clients],
            attacker,
            packets: 0,
            modes: [0; 2],
        }
    }

    fn prepare(world: &mut World) {
        for _ in 0..world.plan.wire.attacks {
            let after = world.random.micros(0..=world.plan.healed_after.as_micros() as u64);
            world.schedule(world.now + after, Event::Attack);
        }
    }

    fn make_host(world: &mut World) -> Outcome<Host> {
        world.make_server()
    }

    fn make_client(world: &mut World, client: usize) -> Outcome<Client> {
        world.make_machine(client)
    }

    fn principal(_world: &World, client: usize) -> Outcome<Principal> {
        principal(client)
    }

    fn handle(world: &mut World, event: Event) -> Outcome<()> {
        match event {
            Event::Arrives { client, to_server: true, round, bytes } => {
                match world.wire.killed.get(&(client, round)).map(|later| world.now + *later) {
                    Some(at) => world.schedule(at, Event::ArrivesLate { client, round, bytes }),
                    None => world.arrive((client, round), &bytes)?,
                }
                Ok(())
            }
            Event::ArrivesLate { client, round, bytes } => world.arrive((client, round), &bytes),
            Event::Reads { client, round } => {
                while let Some(host) = &mut world.host
                    && !host.server.is_starved_at(client_path((client, round)))
                    && let Some(bytes) = world.wire.unread.get_mut(&(client, round)).and_then(VecDeque::pop_front)
                {
                    host.server.handle_input(client_path((client, round)), &bytes, world.now);
                }
                world.wire.unread.retain(|_, unread| !unread.is_empty());
                Self::drain_server(world)
            }
            // Nobody is there any more.
            Event::Arrives { client, round, .. } if world.wire.rounds[client] != round => Ok(()),
            // The end of the connection.
            Event::Arrives { client, bytes, .. } if world.plan.wire.is_stream && bytes.is_empty() => {
                world.wire.rounds[client] += 1;
                world.workers[client].client.lost(server_path(), world.now);
                Self::drain_client(world, client)
            }
            Event::Arrives { client, to_server: false, bytes, .. } => {
                world.workers[client].client.handle_input(server_path(), &bytes, world.now);
                Self::drain_client(world, client)
            }
            Event::Attack => {
                let Some((client, to_server, bytes)) = world.wire.attacker.strike() else { return Ok(()) };
                let round = world.wire.rounds[client];
                Self::handle(world, Event::Arrives { client, to_server, round, bytes })
            }
        }
    }

    fn fault(world: &mut World, fault: LinkFault) -> Outcome<()> {
        match fault {
            LinkFault::Cut { client, there, back } => {
                world.wire.there[client].is_cut |= there;
                world.wire.back[client].is_cut |= back;
                world.sever(client)?;
            }
            LinkFault::Mend(client) => {
                (world.wire.there[client].is_cut, world.wire.back[client].is_cut) = (false, false);
            }
            LinkFault::Replace(client) => {
                let now = world.now;
                world.workers[client].close(now);
                Self::drain_client(world, client)?;
                world.wire.rounds[client] += 1;
                world.replace_client(client)?;
            }
            LinkFault::Rerun(client, later) => {
                let Network { rounds, killed, left, .. } = &mut world.wire;
                killed.insert((client, rounds[client]), later);
                rounds[client] += 1;
                left[client].extend(world.workers[client].kill());
                world.replace_client(client)?;
            }
        }
        Ok(())
    }

    fn heal(world: &mut World) -> Outcome<()> {
        for link in world.wire.there.iter_mut().chain(&mut world.wire.back) {
            link.is_cut = false;
            link.plan = link.plan.healed();
        }
        Ok(())
    }

    fn killed(world: &mut World) {
        world.wire.unread.clear();
        if world.plan.wire.is_stream {
            for client in 0..world.plan.clients {
                world.wire.rounds[client] += 1;
                world.wire.open_from[client] = world.wire.rounds[client];
                world.workers[client].client.lost(server_path(), world.now);
            }
        }
    }

    fn drain_server(world: &mut World) -> Outcome<()> {
        let Some(host) = &mut world.host else { return Ok(()) };
        host.drain_events(&mut world.counts, world.now)?;
        let mut packets = host.transmits(world.now, DRAIN_MAX)?;
        // Frames may have been given back: answers were acknowledged.
        host.feed_starved(world.now)?;
        host.drain_events(&mut world.counts, world.now)?;
        packets.extend(host.transmits(world.now, DRAIN_MAX)?);
        host.drain_events(&mut world.counts, world.now)?;
        let (scheduled, notes) = (host.take_scheduled(), std::mem::take(&mut host.notes));
        let hangups = std::mem::take(&mut host.hangups);
        notes.into_iter().for_each(|note| world.note(note));
        world.expect_disk(scheduled);
        for (path, packet) in packets {
            let (client, round) = client_at(path).ok_or_else(|| format!("the server sends to {path}"))?;
            world.transmit((client, round), false, &packet)?;
        }
        for path in hangups {
            let (client, round) = client_at(path).ok_or_else(|| format!("the server hangs up {path}"))?;
            world.wire.open_from[client] = world.wire.open_from[client].max(round + 1);
            let end = Event::Arrives { client, to_server: false, round, bytes: Vec::new() };
            world.schedule(world.now + CLOSING, end);
        }
        world.read_on();
        Ok(())
    }

    fn drain_client(world: &mut World, client: usize) -> Outcome<()> {
        let before = world.workers[client].sessions;
        world.drain_told(client)?;
        if world.workers[client].sessions > before
            && let Some(server) = world.workers[client].client.server()
        {
            world.wire.modes[usize::from(server.terms.mode == Mode::Modern)] += 1;
            world.settle_left(client);
        }
        let (now, mut packets) = (world.now, Vec::new());
        while let Some((_, packet)) = world.workers[client].client.poll_transmit(now) {
            packets.push(packet);
            if packets.len() > DRAIN_MAX {
                return Err(format!("client {client} transmits without end"));
            }
        }
        let round = world.wire.rounds[client];
        packets.iter().try_for_each(|packet| world.transmit((client, round), true, packet))
    }

    fn idle(world: &mut World) -> Outcome<()> {
        let standstills = world.host.as_ref().map_or(0, |host| host.server.counters().standstills);
        if standstills > 0 {
            return Err(format!("{standstills} honest connections stood still: {}", world.describe()));
        }
        world.run_for(Duration::from_secs(5))?;
        let before = world.wire.packets;
        world.run_for(IDLE)?;
        let packets = world.wire.packets - before;
        if packets > world.plan.clients as u64 * IDLE.as_secs() * IDLE_PACKETS_MAX {
            return Err(format!("{packets} packets in {IDLE:?} of idleness: {}", world.describe()));
        }
        Ok(())
    }

    fn forgotten_after(plan: &PacketPlan) -> Duration {
        plan.session_idle_max + Duration::from_secs(10)
    }

    fn describe_client(client: &Client) -> String {
        format!("{:?}, {:?}, {:?}", client.server().map(|server| server.terms), client.traffic(), client.counters())
    }

    fn describe(&self) -> String {
        format!("{} packets, modes {:?}", self.packets, self.modes)
    }
}

impl World {
    fn arrive(&mut self, (client, round): (usize, u64), bytes: &[u8]) -> Outcome<()> {
        let is_closed = self.plan.wire.is_stream && round < self.wire.open_from[client];
        let Some(host) = self.host.as_mut().filter(|_| !is_closed) else { return Ok(()) };
        let path = client_path((client, round));
        if let Some(unread) = self.wire.unread.get_mut(&(client, round)) {
            unread.push_back(bytes.to_vec());
            return Ok(());
        }
        if host.server.is_starved_at(path) {
            self.wire.unread.insert((client, round), VecDeque::from([bytes.to_vec()]));
            return Ok(());
        }
        host.server.handle_input(path, bytes, self.now);
        Network::drain_server(self)
    }

    /// Those from which nothing was read are read again, as far as there is memory.
    fn read_on(&mut self) {
        let Some(host) = &self.host else { return };
        let open_from = &self.wire.open_from;
        self.wire.unread.retain(|(client, round), _| *round >= open_from[*client]);
        let is_read = |(client, round): &&(usize, u64)| !host.server.is_starved_at(client_path((*client, *round)));
        let read: Vec<(usize, u64)> = self.wire.unread.keys().filter(is_read).copied().collect();
        read.into_iter().for_each(|(client, round)| self.schedule(self.now, Event::Reads { client, round }));
    }

    /// What killed programs have asked does not land any more once the next one is connected.
    fn settle_left(&mut self, client: usize) {
        for Asked { operation, kind, range, .. } in self.wire.left[client].drain(..) {
            if matches!(kind, Kind::Write { .. } | Kind::Unmap) {
                self.model.end_write(operation, range);
            }
        }
    }

    /// Over TCP a cut ends the connection, and both ends learn it.
    fn sever(&mut self, client: usize) -> Outcome<()> {
        if !self.plan.wire.is_stream {
            return Ok(());
        }
        let round = self.wire.rounds[client];
        if let Some(host) = &mut self.host {
            let open = self.wire.open_from[client]..=round;
            open.for_each(|round| host.server.lost(client_path((client, round)), self.now));
            Network::drain_server(self)?;
        }
        (self.wire.rounds[client], self.wire.open_from[client]) = (round + 1, round + 1);
        self.workers[client].client.lost(server_path(), self.now);
        Network::drain_client(self, client)
    }

    fn transmit(&mut self, (client, round): (usize, u64), to_server: bool, packet: &Packet) -> Outcome<()> {
        let bytes = packet.to_vec();
        self.note(bytes.len() as u64 ^ u64::from(bytes[bytes.len() - 1]) << 32);
        self.wire.packets += 1;
        if self.plan.wire.attacks > 0 {
            self.wire.attacker.hear((client, to_server, bytes.clone()));
        }
        let wire = &mut self.wire;
        let link = if to_server { &mut wire.there[client] } else { &mut wire.back[client] };
        let passed: Vec<(Instant, Vec<u8>)> = link.pass(&bytes, &mut self.random, self.now);
        for (at, bytes) in passed {
            self.schedule(at, Event::Arrives { client, to_server, round, bytes });
        }
        Ok(())
    }
}
