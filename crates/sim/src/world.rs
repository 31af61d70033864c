//! The world: a clock that jumps to the next event, links, a server that can be killed, clients, an attacker.

mod cast;
mod faults;
mod verdict;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::{Packet, Region};
use sanwire_core::{Instant, LinkId, Path};
use sanwire_hyperscsi::Psk;

use self::cast::{client_peer, server_peer};
use crate::attacker::Attacker;
use crate::disk::SimDisk;
use crate::host::Host;
use crate::link::{Link, Queue};
use crate::model::{Model, Range};
use crate::plan::{Fault, Plan};
use crate::random::Random;
use crate::runner::Counts;
use crate::stats::Stats;
use crate::task::{Kind, Shared};
use crate::workload::Worker;

/// Steps after which a world is not quiet for another reason than having work.
const STEPS_MAX: u64 = 3_000_000;

/// Timeouts of one machine at one moment: more mean that it does not move on.
const TIMEOUTS_AT_ONCE_MAX: u32 = 8;

/// Packets and events of one machine between two timeouts.
const DRAIN_MAX: u32 = 20_000;

#[derive(Debug)]
enum Event {
    ToServer { from: usize, bytes: Vec<u8> },
    ToClient { client: usize, bytes: Vec<u8> },
    DiskDone { life: u64, token: u64 },
    Fault(Fault),
    Heal,
    Attack,
}

/// What a run has shown.
pub type Outcome<T> = Result<T, String>;

/// One simulated world.
pub struct World {
    /// What it is made of.
    pub plan: Plan,
    /// The time.
    pub now: Instant,
    /// The clients.
    pub workers: Vec<Worker>,
    /// The server, while it runs.
    pub host: Option<Host>,
    /// What was counted.
    pub stats: Stats,
    /// Passwords of the clients, where they differ from the server's.
    pub passwords: BTreeMap<usize, Psk>,
    /// Clients that are not on the server's allow list.
    pub strangers: Vec<usize>,
    random: Random,
    disk: Arc<SimDisk>,
    model: Model,
    counts: Counts,
    next_operation: u64,
    there: Vec<Link>,
    back: Vec<Link>,
    /// The bottlenecks to the server and from it.
    queues: [Option<Queue>; 2],
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    events: BTreeMap<u64, Event>,
    next_event: u64,
    life: u64,
    retired: Vec<Region>,
    attacker: Attacker,
    timeouts: (Instant, BTreeMap<usize, u32>),
    trace: u64,
    steps: u64,
}

impl World {
    /// The world of this plan and seed.
    #[must_use]
    pub fn new(plan: Plan, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let link = || Link::new(plan.link);
        let clients = plan.clients;
        let disk = SimDisk::new(plan.blocks, plan.disk, random.fork());
        let mut world = World {
            now: Instant::from_nanos(1_000_000),
            workers: Vec::new(),
            host: None,
            stats: Stats::default(),
            passwords: BTreeMap::new(),
            strangers: Vec::new(),
            attacker: Attacker::new(random.fork()),
            disk,
            model: Model::new(plan.blocks),
            counts: Counts::new(),
            next_operation: 1,
            there: (0..clients).map(|_| link()).collect(),
            back: (0..clients).map(|_| link()).collect(),
            queues: [(); 2].map(|()| plan.bottleneck.map(Queue::new)),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            life: 0,
            retired: Vec::new(),
            timeouts: (Instant::ZERO, BTreeMap::new()),
            trace: seed,
            steps: 0,
            plan,
            random,
        };
        for (after, fault) in world.plan.faults.clone() {
            world.schedule(world.now + after, Event::Fault(fault));
        }
        world.schedule(world.now + world.plan.healed_after, Event::Heal);
        for _ in 0..world.plan.attacks {
            let after = world.random.micros(0..=world.plan.healed_after.as_micros() as u64);
            world.schedule(world.now + after, Event::Attack);
        }
        world
    }

    /// A number that differs when anything at all went differently.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Starts the server and the clients.
    ///
    /// # Errors
    /// What the machines refuse.
    pub fn start(&mut self) -> Outcome<()> {
        self.start_server()?;
        for client in 0..self.plan.clients {
            let worker = self.make_worker(client)?;
            self.workers.push(worker);
        }
        (0..self.plan.clients).try_for_each(|client| self.drain_client(client))
    }

    /// Runs until `is_done`, at the longest until `end`.
    ///
    /// # Errors
    /// When a promise is broken, or time is over.
    pub fn run_until(&mut self, end: Instant, is_done: impl Fn(&World) -> bool) -> Outcome<()> {
        while !is_done(self) {
            let next = self.next_at().filter(|next| *next <= end);
            let Some(next) = next else {
                return Err(format!("not quiet at {} s: {}", end.as_nanos() as f64 / 1e9, self.describe()));
            };
            self.now = self.now.max(next);
            self.step()?;
        }
        Ok(())
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn run_for(&mut self, duration: Duration) -> Outcome<()> {
        let end = self.now + duration;
        while let Some(next) = self.next_at().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.step()?;
        }
        self.now = end;
        Ok(())
    }

    fn next_at(&self) -> Option<Instant> {
        let event = self.queue.peek().map(|Reverse((at, _))| *at);
        let server = self.host.as_ref().and_then(|host| host.server.poll_timeout());
        let timeouts = self.workers.iter().filter_map(|worker| worker.client.poll_timeout());
        let asks = self.workers.iter().filter(|worker| worker.wants_to_ask()).map(|worker| worker.next_at);
        event.into_iter().chain(server).chain(timeouts).chain(asks).min()
    }

    fn step(&mut self) -> Outcome<()> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(format!("more than {STEPS_MAX} steps: {}", self.describe()));
        }
        let due = self.queue.peek().is_some_and(|Reverse((at, _))| *at <= self.now);
        if due && let Some(Reverse((_, id))) = self.queue.pop() {
            let event = self.events.remove(&id);
            return event.map_or(Ok(()), |event| self.handle(event));
        }
        let now = self.now;
        if let Some(host) = &mut self.host
            && host.server.poll_timeout().is_some_and(|at| at <= now)
        {
            host.server.handle_timeout(now);
            self.count_timeout(usize::MAX)?;
            return self.drain_server();
        }
        for client in 0..self.workers.len() {
            let worker = &mut self.workers[client];
            if worker.client.poll_timeout().is_some_and(|at| at <= now) {
                worker.client.handle_timeout(now);
                self.count_timeout(client)?;
                return self.drain_client(client);
            }
            if worker.wants_to_ask() && worker.next_at <= now {
                let (worker, mut shared) = self.parts(client);
                worker.ask(&mut shared, now);
                if worker.next_at <= now {
                    worker.next_at = now + Duration::from_micros(1);
                }
                return self.drain_client(client);
            }
        }
        Ok(())
    }

    /// Lets a client give just this command now. `false`: it was not taken.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn give(&mut self, client: usize, kind: Kind, range: Range) -> Outcome<bool> {
        let now = self.now;
        let (worker, mut shared) = self.parts(client);
        let is_given = worker.give(kind, range, &mut shared, now);
        self.drain_client(client)?;
        Ok(is_given)
    }

    /// The disk, to change how it behaves.
    #[must_use]
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    fn parts(&mut self, client: usize) -> (&mut Worker, Shared<'_>) {
        let shared = Shared {
            model: &mut self.model,
            counts: &self.counts,
            blocks: self.plan.blocks,
            next_operation: &mut self.next_operation,
        };
        (&mut self.workers[client], shared)
    }

    /// A machine whose timeout comes again and again at one moment would take all of a processor.
    fn count_timeout(&mut self, machine: usize) -> Outcome<()> {
        if self.timeouts.0 != self.now {
            self.timeouts = (self.now, BTreeMap::new());
        }
        let count = self.timeouts.1.entry(machine).or_default();
        *count += 1;
        self.stats.timeouts += 1;
        if *count > TIMEOUTS_AT_ONCE_MAX {
            return Err(format!("machine {machine} does not move on at {:?}", self.now));
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Outcome<()> {
        match event {
            Event::ToServer { from, bytes } => {
                let path = Path { link: LinkId(0), peer: client_peer(self.plan.wire, from) };
                let Some(host) = &mut self.host else { return Ok(()) };
                host.server.handle_input(path, &bytes, self.now);
                self.drain_server()
            }
            Event::ToClient { client, bytes } => {
                let path = Path { link: LinkId(0), peer: server_peer(self.plan.wire) };
                self.workers[client].client.handle_input(path, &bytes, self.now);
                self.drain_client(client)
            }
            Event::DiskDone { life, token } => match &mut self.host {
                Some(host) if life == self.life => {
                    host.disk_done(token, self.now)?;
                    self.drain_server()
                }
                _ => Ok(()),
            },
            Event::Fault(fault) => self.inflict(fault),
            Event::Heal => self.heal(),
            Event::Attack => {
                if let Some((client, to_server, bytes)) = self.attacker.strike() {
                    let event = match to_server {
                        true => Event::ToServer { from: client, bytes },
                        false => Event::ToClient { client, bytes },
                    };
                    self.schedule(self.now, event);
                }
                Ok(())
            }
        }
    }

    fn drain_server(&mut self) -> Outcome<()> {
        let Some(host) = &mut self.host else { return Ok(()) };
        host.drain_events(&mut self.counts, self.now)?;
        let mut packets = Vec::new();
        while let Some(packet) = host.server.poll_transmit(self.now) {
            packets.push(packet);
            if packets.len() > DRAIN_MAX as usize {
                return Err("the server transmits without end".to_owned());
            }
        }
        // Frames may have come home: answers were acknowledged.
        host.feed_starved(self.now)?;
        host.drain_events(&mut self.counts, self.now)?;
        while let Some(packet) = host.server.poll_transmit(self.now) {
            packets.push(packet);
        }
        let scheduled = std::mem::take(&mut host.runner.scheduled);
        let notes = std::mem::take(&mut host.notes);
        notes.into_iter().for_each(|note| self.note(note));
        for (at, token) in scheduled {
            self.schedule(at, Event::DiskDone { life: self.life, token });
        }
        for (path, packet) in packets {
            let Some(client) = (0..self.plan.clients).find(|c| client_peer(self.plan.wire, *c) == path.peer) else {
                return Err(format!("the server sends to {path}"));
            };
            self.transmit(client, false, &packet);
        }
        Ok(())
    }

    /// Sends what the clients have to say after they were told something.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn flush_clients(&mut self) -> Outcome<()> {
        (0..self.workers.len()).try_for_each(|client| self.drain_client(client))
    }

    fn drain_client(&mut self, client: usize) -> Outcome<()> {
        let now = self.now;
        let (worker, mut shared) = self.parts(client);
        worker.drain_events(&mut shared, now).map_err(|what| format!("client {client}: {what}"))?;
        let mut packets = Vec::new();
        while let Some((_, packet)) = worker.client.poll_transmit(now) {
            packets.push(packet);
            if packets.len() > DRAIN_MAX as usize {
                return Err(format!("client {client} transmits without end"));
            }
        }
        packets.iter().for_each(|packet| self.transmit(client, true, packet));
        Ok(())
    }

    fn transmit(&mut self, client: usize, to_server: bool, packet: &Packet) {
        let mut bytes = packet.head.to_vec();
        bytes.extend_from_slice(packet.payload.as_deref().unwrap_or(&[]));
        self.stats.note(client, to_server, &bytes);
        self.note(bytes.len() as u64 ^ u64::from(bytes[bytes.len() - 1]) << 32);
        if self.plan.attacks > 0 {
            self.attacker.overhear(client, to_server, &bytes);
        }
        let passed_at = match &mut self.queues[usize::from(to_server)] {
            Some(queue) => queue.pass(bytes.len(), self.now),
            None => Some(self.now),
        };
        let Some(passed_at) = passed_at else { return };
        let link = if to_server { &mut self.there[client] } else { &mut self.back[client] };
        for (at, bytes) in link.pass(&bytes, &mut self.random, passed_at) {
            let event = match to_server {
                true => Event::ToServer { from: client, bytes },
                false => Event::ToClient { client, bytes },
            };
            self.schedule(at, event);
        }
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.queue.push(Reverse((at, self.next_event)));
        self.events.insert(self.next_event, event);
        self.next_event += 1;
    }

    fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what ^ self.now.as_nanos()).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    }
}
