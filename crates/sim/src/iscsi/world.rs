//! The world: a clock that jumps to the next event, streams, a server that can be killed, clients.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::Instant;
use sanwire_iscsi::{Client, ClientConfig, ConnectionId, Isid, ServerConfig};

use super::desk::{Desk, client_credential, client_name, portal, target_credential, target_name};
use super::host::Host;
use super::plan::{Fault, Plan};
use super::wires::{Traffic, Wire};
use super::worker::Worker;
use crate::disk::{DiskPlan, SimDisk};
use crate::model::{Model, Range};
use crate::random::Random;
use crate::runner::Counts;
use crate::task::{Kind, Shared};
use crate::world::Outcome;

/// Steps of one life, at the most.
const STEPS_MAX: u64 = 1_000_000;

/// Steps at one moment: more mean that something does not move on.
const STEPS_AT_ONCE_MAX: u64 = 20_000;

#[derive(Debug)]
pub(super) enum Event {
    Open { client: usize, connection: ConnectionId },
    DiskDone { life: u64, token: u64 },
    Fault(Fault),
    Heal,
}

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
    /// What was sent, and what is to happen to it.
    pub traffic: Traffic,
    pub(super) random: Random,
    pub(super) desk: Arc<Desk>,
    pub(super) counts: Counts,
    /// By their numbers at the server.
    pub(super) wires: BTreeMap<ConnectionId, Wire>,
    pub(super) next_wire: u64,
    /// Until when nothing passes for a client.
    pub(super) stalled: BTreeMap<usize, Instant>,
    disk: Arc<SimDisk>,
    model: Model,
    next_operation: u64,
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    events: BTreeMap<u64, Event>,
    next_event: u64,
    life: u64,
    retired: Vec<Region>,
    steps: u64,
    steps_at_once: (Instant, u64),
    trace: u64,
}

impl World {
    /// The world of this plan and seed.
    #[must_use]
    pub fn new(plan: Plan, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(plan.blocks, plan.disk, random.fork());
        let mut world = World {
            now: Instant::from_nanos(1_000_000),
            workers: Vec::new(),
            host: None,
            traffic: Traffic::default(),
            desk: Arc::new(Desk { has_chap: plan.has_chap }),
            counts: Counts::new(),
            wires: BTreeMap::new(),
            next_wire: 0,
            stalled: BTreeMap::new(),
            disk,
            model: Model::new(plan.blocks),
            next_operation: 1,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            life: 0,
            retired: Vec::new(),
            steps: 0,
            steps_at_once: (Instant::ZERO, 0),
            trace: seed,
            plan,
            random,
        };
        for (after, fault) in world.plan.faults.clone() {
            world.schedule(world.now + after, Event::Fault(fault));
        }
        world.schedule(world.now + world.plan.healed_after, Event::Heal);
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
        self.drain_clients()
    }

    fn start_server(&mut self) -> Outcome<()> {
        let config = ServerConfig {
            memory: Region::new(self.plan.server_memory_bytes).map_err(|error| error.to_string())?,
            directory: Arc::clone(&self.desk) as Arc<_>,
            commands_max: self.plan.commands_max,
            transfer_max_bytes: 1 << 20,
        };
        self.life += 1;
        self.host = Some(Host::new(config, Arc::clone(&self.disk), self.plan.write_cache)?);
        Ok(())
    }

    fn make_worker(&mut self, client: usize) -> Outcome<Worker> {
        let has_chap = self.plan.has_chap;
        let config = ClientConfig {
            initiator: client_name(client)?,
            isid: Isid([0x80, 0, 0, 0, 0, client as u8]),
            target: Some(target_name()?),
            portals: vec![portal().address],
            credential: has_chap.then(client_credential).transpose()?,
            target_credential: has_chap.then(target_credential).transpose()?,
            wishes: self.plan.wishes,
            commands_max: 32,
            connect_patience: Duration::from_secs(120),
            reconnect_patience: None,
            command_patience: self.plan.command_patience,
            seed: self.random.seed(),
        };
        let memory = Region::new(self.plan.client_memory_bytes).map_err(|error| error.to_string())?;
        Ok(Worker::new(Client::new(config, self.now), memory, self.plan.work, self.random.fork()))
    }

    /// Runs until `is_done`, at the longest until `end`.
    ///
    /// # Errors
    /// When a promise is broken, or time is over.
    pub fn run_until(&mut self, end: Instant, is_done: impl Fn(&World) -> bool) -> Outcome<()> {
        while !is_done(self) {
            let Some(next) = self.next_at().filter(|next| *next <= end) else {
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
        let wires = self.wires.values().filter_map(Wire::next_at);
        let timeouts = self.workers.iter().filter_map(|worker| worker.client.poll_timeout());
        let asks = self.workers.iter().filter(|worker| worker.wants_to_ask()).map(|worker| worker.next_at);
        event.into_iter().chain(server).chain(wires).chain(timeouts).chain(asks).min()
    }

    fn step(&mut self) -> Outcome<()> {
        let now = self.now;
        self.count_step()?;
        if self.queue.peek().is_some_and(|Reverse((at, _))| *at <= now)
            && let Some(Reverse((_, id))) = self.queue.pop()
        {
            let event = self.events.remove(&id);
            return event.map_or(Ok(()), |event| self.handle(event));
        }
        if let Some(host) = &mut self.host
            && host.server.poll_timeout().is_some_and(|at| at <= now)
        {
            host.server.handle_timeout(now);
            return self.drain_server();
        }
        let due = self.wires.iter().find(|(_, wire)| wire.next_at().is_some_and(|at| at <= now)).map(|(id, _)| *id);
        if let Some(wire) = due {
            return self.attend(wire);
        }
        for client in 0..self.workers.len() {
            let worker = &mut self.workers[client];
            if worker.client.poll_timeout().is_some_and(|at| at <= now) {
                worker.client.handle_timeout(now);
                return self.drain_client(client);
            }
            if worker.wants_to_ask() && worker.next_at <= now {
                let (worker, mut shared) = self.parts(client);
                worker.ask(&mut shared, now);
                return self.drain_client(client);
            }
        }
        Ok(())
    }

    /// A world that does not come to rest would take all of a processor.
    fn count_step(&mut self) -> Outcome<()> {
        if self.steps_at_once.0 != self.now {
            self.steps_at_once = (self.now, 0);
        }
        self.steps += 1;
        self.steps_at_once.1 += 1;
        if self.steps > STEPS_MAX || self.steps_at_once.1 > STEPS_AT_ONCE_MAX {
            return Err(format!("{} steps, no rest at {:?}: {}", self.steps, self.now, self.describe()));
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Outcome<()> {
        match event {
            Event::Open { client, connection } => self.open(client, connection),
            Event::DiskDone { life, token } => match &mut self.host {
                Some(host) if life == self.life => {
                    host.disk_done(token, self.now)?;
                    self.drain_server()
                }
                _ => Ok(()),
            },
            Event::Fault(fault) => self.fault(fault),
            Event::Heal => self.heal(),
        }
    }

    fn fault(&mut self, fault: Fault) -> Outcome<()> {
        match fault {
            Fault::Cut => self.cut_one(true, true),
            Fault::CutUnnoticedByServer => self.cut_one(false, true),
            Fault::CutUnnoticedByClient => self.cut_one(true, false),
            Fault::Stall(duration) => {
                let client = self.random.range(0..=self.plan.clients as u64 - 1) as usize;
                self.stall(client, self.now + duration);
            }
            Fault::Kill => self.kill(),
            Fault::LosePower => {
                self.kill();
                self.disk.lose_power(&mut self.random);
                self.model.lose_power();
            }
            Fault::ShutDown => {
                if let Some(host) = &mut self.host {
                    host.server.shut_down(self.now);
                    self.drain_server()?;
                    let after = self.random.micros(0..=100_000);
                    self.schedule(self.now + after, Event::Fault(Fault::Kill));
                }
            }
            Fault::Start if self.host.is_none() => self.start_server()?,
            Fault::Start => {}
        }
        Ok(())
    }

    fn kill(&mut self) {
        if let Some(host) = self.host.take() {
            self.retired.push(host.memory.clone());
            host.kill(&mut self.random);
            self.sever_all();
        }
    }

    fn heal(&mut self) -> Outcome<()> {
        self.plan.stream.damage_per_million = 0;
        self.disk.set_plan(DiskPlan { slow_per_million: 0, error_per_million: 0, ..self.plan.disk });
        if self.host.is_none() { self.start_server() } else { Ok(()) }
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

    pub(super) fn parts(&mut self, client: usize) -> (&mut Worker, Shared<'_>) {
        let shared = Shared {
            model: &mut self.model,
            counts: &self.counts,
            blocks: self.plan.blocks,
            next_operation: &mut self.next_operation,
        };
        (&mut self.workers[client], shared)
    }

    /// Notes when the disk will have done what it was asked.
    pub(super) fn expect_disk(&mut self, scheduled: Vec<(Instant, u64)>) {
        for (at, token) in scheduled {
            self.schedule(at, Event::DiskDone { life: self.life, token });
        }
    }

    pub(super) fn schedule(&mut self, at: Instant, event: Event) {
        self.queue.push(Reverse((at, self.next_event)));
        self.events.insert(self.next_event, event);
        self.next_event += 1;
    }

    pub(super) fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what ^ self.now.as_nanos()).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    }

    pub(super) fn regions(&self) -> impl Iterator<Item = (&'static str, &Region)> {
        let clients = self.workers.iter().map(|worker| ("a client", &worker.memory));
        let server = self.host.iter().map(|host| ("the server", &host.memory));
        clients.chain(server).chain(self.retired.iter().map(|memory| ("a past server", memory)))
    }
}
