//! The world: a clock that jumps to the next event, a server that can be killed, clients, and between them some wire.

mod faults;
mod life;
mod wire;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, Principal};
use sanwire_device::{LogicalUnits, Volatility};

pub use self::wire::{Host, PlanOf, Wire};
use crate::disk::SimDisk;
use crate::executor::{Counts, derived_units, logical_units};
use crate::model::{Model, Range};
use crate::plan::Fault;
use crate::power::Records;
use crate::random::Random;
use crate::task::{Kind, Shared};
use crate::workload::{Initiator, Worker};

/// Steps of one life, at the most.
const STEPS_MAX: u64 = 3_000_000;

/// Steps at one moment: more mean that something does not move on.
const STEPS_AT_ONCE_MAX: u64 = 20_000;

/// What a run has shown.
pub type Outcome<T> = Result<T, String>;

enum Event<W: Wire> {
    Wire(W::Event),
    DiskDone { life: u64, token: u64 },
    Fault(Fault<W::Fault>),
    Heal,
}

/// One simulated world.
pub struct World<W: Wire> {
    /// What it is made of.
    pub plan: PlanOf<W>,
    /// The time.
    pub now: Instant,
    /// The clients.
    pub workers: Vec<Worker<W::Client>>,
    /// The server, while it runs.
    pub host: Option<W::Host>,
    /// What is between them.
    pub wire: W,
    /// All chance comes from this.
    pub random: Random,
    /// Executions of counting commands.
    pub counts: Counts,
    /// What the disk's blocks may hold.
    pub model: Model,
    disk: Arc<SimDisk>,
    records: Records,
    next_operation: u64,
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    events: BTreeMap<u64, Event<W>>,
    next_event: u64,
    life: u64,
    retired: Vec<Region>,
    steps: u64,
    steps_at_once: (Instant, u64),
    trace: u64,
}

impl<W: Wire> World<W> {
    /// The world of this plan and seed.
    #[must_use]
    pub fn new(plan: PlanOf<W>, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(plan.blocks, plan.disk, random.fork());
        let mut world = World {
            now: Instant::from_nanos(1_000_000),
            workers: Vec::new(),
            host: None,
            wire: W::new(&plan, &mut random),
            counts: Counts::new(),
            disk,
            records: Records::default(),
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
            world.schedule_event(world.now + after, Event::Fault(fault));
        }
        world.schedule_event(world.now + world.plan.healed_after, Event::Heal);
        W::prepare(&mut world);
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
        self.life += 1;
        self.host = Some(W::make_host(self)?);
        Ok(())
    }

    fn make_worker(&mut self, client: usize) -> Outcome<Worker<W::Client>> {
        let machine = W::make_client(self, client)?;
        let memory = Region::new(self.plan.client_memory_bytes).map_err(|error| error.to_string())?;
        let mut worker = Worker::new(client, machine, memory, self.plan.work, self.random.fork());
        worker.is_driven = self.plan.is_driven;
        worker.read_only_since = self.wire.read_only_since(client);
        worker.standing = self.plan.derived.map(|plan| plan.standing(client, self.plan.clients)).unwrap_or_default();
        Ok(worker)
    }

    /// A new client takes the place of one that has left.
    ///
    /// # Errors
    /// What the machine refuses.
    pub fn replace_client(&mut self, client: usize) -> Outcome<()> {
        let worker = self.make_worker(client)?;
        let old = std::mem::replace(&mut self.workers[client], worker);
        self.retired.push(old.memory);
        W::drain_client(self, client)
    }

    /// Runs until `is_done`, at the longest until `end`.
    ///
    /// # Errors
    /// When a promise is broken, or time is over.
    pub fn run_until(&mut self, end: Instant, is_done: impl Fn(&World<W>) -> bool) -> Outcome<()> {
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
        while self.advance(end)? {}
        Ok(())
    }

    /// Does what comes next, if that is no later than `end`; else it is `end`, and `false`.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn advance(&mut self, end: Instant) -> Outcome<bool> {
        let next = self.next_at().filter(|next| *next <= end);
        self.now = self.now.max(next.unwrap_or(end));
        next.map_or(Ok(false), |_| self.step().map(|()| true))
    }

    fn next_at(&self) -> Option<Instant> {
        let event = self.queue.peek().map(|Reverse((at, _))| *at);
        let server = self.host.as_ref().and_then(Host::poll_timeout);
        let timeouts = self.workers.iter().filter_map(|worker| worker.client.poll_timeout());
        let asks = self.workers.iter().filter(|worker| worker.wants_to_ask()).map(|worker| worker.next_at);
        event.into_iter().chain(server).chain(self.wire.next_at()).chain(timeouts).chain(asks).min()
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
            && host.poll_timeout().is_some_and(|at| at <= now)
        {
            host.handle_timeout(now)?;
            W::woken(self, None)?;
            return W::drain_server(self);
        }
        if W::attend(self)? {
            return Ok(());
        }
        for client in 0..self.workers.len() {
            let worker = &mut self.workers[client];
            if worker.client.poll_timeout().is_some_and(|at| at <= now) {
                worker.client.handle_timeout(now);
                W::woken(self, Some(client))?;
                return W::drain_client(self, client);
            }
            if worker.wants_to_ask() && worker.next_at <= now {
                let (worker, mut shared) = self.parts(client);
                worker.ask(&mut shared, now);
                return W::drain_client(self, client);
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

    fn handle(&mut self, event: Event<W>) -> Outcome<()> {
        match event {
            Event::Wire(event) => W::handle(self, event),
            Event::DiskDone { life, token } => match &mut self.host {
                Some(host) if life == self.life => {
                    host.disk_done(token, self.now)?;
                    self.note_loss();
                    W::drain_server(self)
                }
                _ => Ok(()),
            },
            Event::Fault(fault) => self.inflict(fault),
            Event::Heal => {
                W::heal(self)?;
                self.disk.set_plan(self.plan.disk.healed());
                self.evict();
                if self.host.is_none() { self.start_server() } else { Ok(()) }
            }
        }
    }

    /// Lets a client give just this command now. `false`: it was not taken.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn give(&mut self, client: usize, kind: Kind, range: Range) -> Outcome<bool> {
        let now = self.now;
        let (worker, mut shared) = self.parts(client);
        let is_given = worker.give(kind, range, &mut shared, now);
        W::drain_client(self, client)?;
        Ok(is_given)
    }

    /// What a server that starts is told of its disk's unflushed writes.
    pub fn open_records(&mut self) -> Option<Volatility> {
        self.plan.is_verified.then(|| self.records.open())
    }

    /// The units of a server that starts.
    ///
    /// # Errors
    /// What the device refuses.
    pub fn make_units(&mut self) -> Outcome<Arc<LogicalUnits>> {
        let (disk, write_cache) = (Arc::clone(&self.disk), self.plan.write_cache);
        if let Some(derived) = self.plan.derived {
            return derived_units(disk, write_cache, (derived, &self.principals()?));
        }
        let volatility = self.open_records();
        logical_units(disk, write_cache, volatility)
    }

    /// Who the clients are, in their order.
    ///
    /// # Errors
    /// When one has no name.
    pub fn principals(&self) -> Outcome<Vec<Principal>> {
        (0..self.plan.clients).map(|client| W::principal(self, client)).collect()
    }

    /// A number that no operation had before.
    pub fn draw_operation(&mut self) -> u64 {
        self.next_operation += 1;
        self.next_operation - 1
    }

    /// The disk, to change how it behaves.
    #[must_use]
    pub fn disk(&self) -> &Arc<SimDisk> {
        &self.disk
    }

    /// Deals with what all clients have to say.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn drain_clients(&mut self) -> Outcome<()> {
        (0..self.workers.len()).try_for_each(|client| W::drain_client(self, client))
    }

    /// Handles what the protocol machine of a client tells.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn drain_told(&mut self, client: usize) -> Outcome<()> {
        let now = self.now;
        let (worker, mut shared) = self.parts(client);
        worker.drain_events(&mut shared, now).map_err(|what| format!("client {client}: {what}"))
    }

    fn parts(&mut self, client: usize) -> (&mut Worker<W::Client>, Shared<'_>) {
        let shared = Shared {
            model: &mut self.model,
            counts: &self.counts,
            blocks: self.plan.blocks,
            next_operation: &mut self.next_operation,
            failed_flushes: self.disk.failed_flushes(),
            is_lossy: self.plan.disk.loss_per_million > 0,
            is_forsaken_for_good: self.plan.work.patience.is_some() && self.plan.clients == 1,
        };
        (&mut self.workers[client], shared)
    }

    /// Notes when the disk will have done what it was asked.
    pub fn expect_disk(&mut self, scheduled: Vec<(Instant, u64)>) {
        for (at, token) in scheduled {
            self.schedule_event(at, Event::DiskDone { life: self.life, token });
        }
    }

    /// Something happens on the wire, later.
    pub fn schedule(&mut self, at: Instant, event: W::Event) {
        self.schedule_event(at, Event::Wire(event));
    }

    fn schedule_event(&mut self, at: Instant, event: Event<W>) {
        self.queue.push(Reverse((at, self.next_event)));
        self.events.insert(self.next_event, event);
        self.next_event += 1;
    }

    /// Mixes something that was sent into the trace.
    pub fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what ^ self.now.as_nanos()).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    }
}
