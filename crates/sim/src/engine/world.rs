//! The world: what happens, in the order of its time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use sanwire_core::{Instant, Lun, NexusId};
use sanwire_device::{LogicalUnit, LogicalUnits, UnitOptions};
use sanwire_engine::{Selection, Which};
use sanwire_scsi::Identity;
use sanwire_store::{Completer, Completion, ErrorKind, Patience};

use super::disks::{AtStore, DiskStore, MoodyDisk};
use super::farewell::RECOVERY;
use super::initiator::{Initiator, Kind};
use super::oracle::{Asked, Command, Oracle};
use super::plan::Plan;
use super::shard::{Begun, Shard};
use crate::post::{Post, ShardMessage};
use crate::random::Random;
use crate::world::Outcome;

/// Steps of one life, at the most.
const STEPS_MAX: u64 = 2_000_000;

pub(super) enum Event {
    /// An initiator does something.
    Act(usize),
    /// The kernel has done something for a shard.
    Done { shard: usize, token: u64 },
    /// A disk has done something itself.
    Landed(u64),
    /// And tells it, from a thread of its own.
    Told(u64),
    /// A shard has woken.
    Wake(usize),
    /// A disk is full or gone, or not any more.
    Stall { disk: usize, kind: Option<ErrorKind> },
    /// A nexus is over whose initiator has another one.
    Close { shard: usize, nexus: NexusId },
    /// Nothing goes wrong any more.
    Heal,
}

/// Who waits until commands have ended in all shards.
#[derive(Clone, Copy)]
pub(super) enum AbortedBy {
    /// A task management function.
    Function,
    /// A command, at the barrier with this number.
    Command(u64),
}

/// What is waited for.
struct Wait {
    by: AbortedBy,
    what: String,
    covered: Vec<u64>,
}

/// One world.
pub struct World {
    pub(super) plan: Plan,
    pub(super) now: Instant,
    pub(super) random: Random,
    pub(super) units: Arc<LogicalUnits>,
    pub(super) disks: Vec<Arc<MoodyDisk>>,
    pub(super) shards: Vec<Shard>,
    pub(super) initiators: Vec<Initiator>,
    post: Post<Command, u64>,
    waits: BTreeMap<u64, Wait>,
    /// What was asked and what came of it.
    pub oracle: Oracle,
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    events: BTreeMap<u64, Event>,
    /// What takes until all is healed.
    hanging: Vec<Event>,
    at_stores: BTreeMap<u64, AtStore>,
    told: BTreeMap<u64, (Option<Completer>, Completion)>,
    next_at_store: u64,
    next_event: u64,
    pub(super) next_command: u64,
    next_nexus: u64,
    next_wait: u64,
}

impl World {
    /// Runs a world to its end.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn live(plan: Plan, seed: u64) -> Outcome<World> {
        let mut world = World::new(plan, seed)?;
        let end = world.now + world.plan.healed_after + RECOVERY;
        world.run(end).and_then(|()| world.finish()).map_err(|what| format!("{what}\n{:?}", world.plan))?;
        Ok(world)
    }

    fn new(plan: Plan, seed: u64) -> Outcome<World> {
        let mut random = Random::new(seed);
        let disks: Vec<_> = (0..plan.disks).map(|number| MoodyDisk::new(number, &plan, &mut random)).collect();
        let units = Arc::new(LogicalUnits::new());
        let patience = Patience { full: plan.patience, gone: plan.patience };
        for (number, disk) in disks.iter().enumerate() {
            let name = Identity::new(&format!("disk{number}"), [number as u8 + 1; 16]);
            let options = UnitOptions { slot: number as u16, patience, ..UnitOptions::default() };
            let store = Arc::new(DiskStore(Arc::clone(disk)));
            let disk = LogicalUnit::new(name.map_err(|error| format!("{error:?}"))?, store, options);
            let lun = Lun::new(number as u16).unwrap_or_default();
            units.add(lun, disk.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
        }
        let post = Post::new(plan.shards, plan.mail_max, random.fork());
        let mut world = World {
            now: Instant::from_nanos(1_000_000),
            units,
            disks,
            shards: (0..plan.shards).map(|_| Shard::new(plan.memory_bytes, plan.kernel_depth)).collect(),
            initiators: Vec::new(),
            post,
            waits: BTreeMap::new(),
            oracle: Oracle::default(),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            hanging: Vec::new(),
            at_stores: BTreeMap::new(),
            told: BTreeMap::new(),
            next_at_store: 0,
            next_event: 0,
            next_command: 1,
            next_nexus: 1,
            next_wait: 0,
            random,
            plan,
        };
        for number in 0..world.plan.initiators {
            let ports = Initiator::ports(number);
            let (left, key) = (world.plan.commands, number as u64 + 1);
            world.initiators.push(Initiator { ports, key, nexus: NexusId(0), shard: 0, left, next_at: world.now });
            world.open(number, None);
            world.schedule(Duration::ZERO, Event::Act(number));
        }
        let healed_us = world.plan.healed_after.as_micros() as u64;
        for _ in 0..world.plan.stalls {
            let (from, disk) =
                (world.random.micros(0..=healed_us), world.random.range(0..=world.disks.len() as u64 - 1));
            let kind = world.random.choose(&[ErrorKind::Full, ErrorKind::Gone]);
            let longest = world.random.choose(&[1_000, 200_000, 3_000_000]);
            let until = from + world.random.micros(1..=longest);
            world.schedule(from, Event::Stall { disk: disk as usize, kind: Some(kind) });
            world.schedule(until, Event::Stall { disk: disk as usize, kind: None });
        }
        world.schedule(world.plan.healed_after, Event::Heal);
        Ok(world)
    }

    pub(super) fn schedule(&mut self, after: Duration, event: Event) {
        self.queue.push(Reverse((self.now + after, self.next_event)));
        self.events.insert(self.next_event, event);
        self.next_event += 1;
    }

    /// An initiator has another nexus, with this shard or any.
    pub(super) fn open(&mut self, number: usize, shard: Option<usize>) {
        let any = self.random.range(0..=self.shards.len() as u64 - 1) as usize;
        let initiator = &mut self.initiators[number];
        initiator.shard = shard.unwrap_or(any);
        initiator.nexus = NexusId(self.next_nexus);
        self.next_nexus += 1;
        self.units.nexus_established(initiator.nexus, Arc::clone(&initiator.ports));
        self.shards[initiator.shard].open(initiator.nexus);
    }

    pub(super) fn run(&mut self, end: Instant) -> Outcome<()> {
        for _ in 0..STEPS_MAX {
            if self.is_over() {
                return Ok(());
            }
            let Some(next) = self.next_at().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            self.step()?;
        }
        let waiting: Vec<Asked> = self.oracle.active().collect();
        let waits: Vec<&str> = self.waits.values().map(|wait| wait.what.as_str()).collect();
        let engines: Vec<_> = self.shards.iter().map(|shard| &shard.engine).collect();
        Err(format!("no end at {:?}: {waiting:?} {waits:?} {engines:#?} {:?}", self.now, self.post))
    }

    fn is_over(&self) -> bool {
        let is_asked = self.initiators.iter().all(|initiator| initiator.left == 0);
        is_asked && self.events.is_empty() && self.waits.is_empty() && self.oracle.active().next().is_none()
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        let event = self.queue.peek().map(|Reverse((at, _))| *at);
        let timeouts = self.shards.iter().filter_map(|shard| shard.engine.poll_timeout());
        event.into_iter().chain(self.post.next_at()).chain(timeouts).min()
    }

    pub(super) fn step(&mut self) -> Outcome<()> {
        let now = self.now;
        if self.queue.peek().is_some_and(|Reverse((at, _))| *at <= now)
            && let Some(Reverse((_, id))) = self.queue.pop()
        {
            self.events.remove(&id).map_or(Ok(()), |event| self.handle(event))?;
            self.wake();
            return Ok(());
        }
        if let Some((shard, mail)) = self.post.take(now) {
            self.read(shard, mail)?;
            self.wake();
            return Ok(());
        }
        for number in 0..self.shards.len() {
            let engine = &mut self.shards[number].engine;
            if engine.poll_timeout().is_some_and(|at| at <= now) {
                engine.handle_timeout(now);
                self.turn(number)?;
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Outcome<()> {
        match event {
            Event::Act(number) => self.act(number),
            Event::Done { shard, token } => {
                let Some((id, completion)) = self.shards[shard].land(token) else { return Ok(()) };
                self.note_written()?;
                self.shards[shard].engine.completed(id, completion, self.now);
                self.turn(shard)
            }
            Event::Landed(token) => {
                let Some(at_store) = self.at_stores.remove(&token) else { return Ok(()) };
                let silence = at_store.silence;
                self.told.insert(token, at_store.land());
                self.note_written()?;
                self.schedule(silence, Event::Told(token));
                self.wake();
                Ok(())
            }
            Event::Told(token) => {
                if let Some((Some(completer), completion)) = self.told.remove(&token) {
                    completer.complete(completion);
                }
                self.wake();
                Ok(())
            }
            Event::Wake(shard) => {
                self.shards[shard].engine.reap(self.now);
                self.shards[shard].engine.retry(self.now);
                self.turn(shard)
            }
            Event::Stall { disk, kind } => {
                self.disks[disk].stall(kind);
                Ok(())
            }
            Event::Close { shard, nexus } => self.lose(shard, nexus),
            Event::Heal => {
                self.disks.iter().for_each(|disk| disk.heal(&self.plan));
                for event in std::mem::take(&mut self.hanging) {
                    let after = self.random.micros(0..=5_000);
                    self.schedule(after, event);
                }
                Ok(())
            }
        }
    }

    fn read(&mut self, shard: usize, mail: ShardMessage<Command, u64>) -> Outcome<()> {
        match mail {
            ShardMessage::Abort(selection, barrier) => {
                self.shards[shard].engine.abort(&selection, Some(&barrier));
                self.note_ended(shard)?;
                drop(barrier);
            }
            ShardMessage::BarrierPassed(number) => {
                let Some(Wait { by, what, covered }) = self.waits.remove(&number) else {
                    return Err(format!("barrier {number} was passed twice"));
                };
                if let Some(number) = self.oracle.any_active(&covered) {
                    return Err(format!("{what} was answered before command {number} had ended"));
                }
                if let AbortedBy::Command(number) = by {
                    self.shards[shard].engine.barrier_passed(number, self.now);
                }
            }
        }
        self.turn(shard)
    }

    /// What a shard does whenever something has happened to it. Unlike a server's, it tries commands that wait for others only when it
    /// is woken for them, and those that wait for memory: else one whose end wakes nobody would go unnoticed.
    pub(super) fn turn(&mut self, number: usize) -> Outcome<()> {
        let now = self.now;
        for Begun { token, delay } in self.shards[number].submit(&self.disks, &mut self.oracle, now) {
            self.take_off(delay, Event::Done { shard: number, token });
        }
        self.note_pending(now);
        while let Some((barrier, selection)) = self.shards[number].engine.poll_abort() {
            self.abort_everywhere(number, AbortedBy::Command(barrier), selection)?;
        }
        self.note_ended(number)?;
        while self.shards[number].engine.poll_notice().is_some() {}
        self.post.collect(now);
        self.wake();
        Ok(())
    }

    fn take_off(&mut self, delay: Option<Duration>, end: Event) {
        match delay {
            Some(delay) => self.schedule(delay, end),
            None => self.hanging.push(end),
        }
    }

    /// Looks what disks have begun to do themselves.
    fn note_pending(&mut self, now: Instant) {
        let begun: Vec<_> = self.disks.iter().flat_map(|disk| disk.take_begun()).collect();
        for at_store in begun {
            self.oracle.begin_write(at_store.flight.versions(), now);
            let token = self.next_at_store;
            self.next_at_store += 1;
            self.take_off(at_store.flight.delay, Event::Landed(token));
            self.at_stores.insert(token, at_store);
        }
        self.wake();
    }

    /// Shards that stores have woken wake up, a little later.
    fn wake(&mut self) {
        for shard in 0..self.shards.len() {
            if self.shards[shard].take_woken() {
                let after = self.random.micros(0..=100);
                self.schedule(after, Event::Wake(shard));
            }
        }
    }

    fn note_written(&mut self) -> Outcome<()> {
        for disk in &self.disks {
            disk.take_journal().into_iter().try_for_each(|written| self.oracle.written(written, self.now))?;
        }
        Ok(())
    }

    pub(super) fn note_ended(&mut self, number: usize) -> Outcome<()> {
        self.note_written()?;
        while let Some((command, reply)) = self.shards[number].poll_ended(self.now) {
            self.oracle.end(command, reply.as_ref())?;
        }
        Ok(())
    }

    /// Ends commands of all shards.
    pub(super) fn abort_everywhere(
        &mut self,
        home: usize,
        by: AbortedBy,
        selection: Selection<Command>,
    ) -> Outcome<()> {
        let disks: Vec<_> = self.units.iter().into_iter().map(|(_, disk)| disk.id()).collect();
        let is_covered = |asked: &Asked| match &selection.which {
            Which::On(meant) => meant.contains(&disks[asked.disk]),
            Which::Of(scope) => scope.covers(disks[asked.disk], asked.command.nexus),
            _ => false,
        };
        let what = if matches!(by, AbortedBy::Function) { "a reset" } else { "PREEMPT AND ABORT" }.to_owned();
        let barrier = self.wait(home, by, what, is_covered);
        self.post.abort_elsewhere(home, &selection, &barrier, self.now);
        self.shards[home].engine.abort(&selection, Some(&barrier));
        drop(barrier);
        self.note_ended(home)
    }

    /// A barrier that is passed when these commands have ended.
    pub(super) fn wait(
        &mut self,
        home: usize,
        by: AbortedBy,
        what: String,
        is_covered: impl Fn(&Asked) -> bool,
    ) -> Arc<sanwire_engine::AbortBarrier> {
        // A command that waits for the end of others has nothing more to do at a store: it goes on.
        let waits_itself = |asked: &Asked| matches!(asked.kind, Kind::Preempt { .. });
        let covered = self.oracle.active().filter(|asked| !waits_itself(asked) && is_covered(asked));
        let covered = covered.map(|asked| asked.command.number).collect();
        let number = self.next_wait;
        self.next_wait += 1;
        self.waits.insert(number, Wait { by, what, covered });
        self.post.barrier(home, number)
    }
}
