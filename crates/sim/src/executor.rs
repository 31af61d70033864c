//! What a shard of a simulated server executes: the engine of the product, with a simulated kernel that works for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sanwire_buffer::Region;
use sanwire_core::{Instant, Lun, NexusId, Principal};
use sanwire_device::{LogicalUnit, LogicalUnits, NexusPorts, Seat, UnitOptions, Volatility};
use sanwire_engine::{AbortBarrier, Engine, Handle, Meter, Selection, VolumeCounters, Which, Work};
use sanwire_scsi::{CommandSet, Features, Identity, Reply, Task};
use sanwire_store::{CompletionQueue, Store};

use crate::derived::DerivedPlan;
use crate::disk::{Flight, SimDisk};
use crate::random::Random;

/// The command that must not be executed twice: the simulation's device counts it. Its number stands in bytes 2 to 9.
pub const COUNT: u8 = 0xc9;

/// Operations that the kernel does at once.
const DEPTH: usize = 64;

/// How often each counting command was executed, through all lives of the server.
pub type Counts = BTreeMap<u64, u32>;

/// What one shard executes, and the kernel under it.
pub struct Executor<H> {
    /// The logical units.
    pub units: Arc<LogicalUnits>,
    /// Of those who see them on terms of their own, the same units.
    views: BTreeMap<NexusId, Arc<LogicalUnits>>,
    /// The shares of the memory.
    shares: BTreeMap<NexusId, Region>,
    engine: Engine<H>,
    /// It is to be retried: something has ended that its commands wait for.
    woken: Arc<AtomicBool>,
    /// When it was retried last.
    now: Instant,
    counters: VolumeCounters,
    disk: Arc<SimDisk>,
    /// What the kernel does, by numbers of the world.
    flights: BTreeMap<u64, (u64, Flight)>,
    next_token: u64,
    /// When the completions come that are new since the last look.
    scheduled: Vec<(Instant, u64)>,
    ended: Vec<(H, Option<Reply>)>,
    /// Commands that have begun and not ended.
    active: BTreeSet<H>,
    /// Commands that have begun: none begins twice in one life.
    begun: BTreeSet<H>,
}

/// One logical unit, 0, on this disk.
///
/// # Errors
/// When the disk or its name is refused.
pub fn logical_units(
    disk: Arc<SimDisk>,
    write_cache: bool,
    volatility: Option<Volatility>,
) -> Result<Arc<LogicalUnits>, String> {
    let units = Arc::new(LogicalUnits::new());
    let identity = Identity::new("simulated", [7; 16]).map_err(|error| format!("{error:?}"))?;
    let disk = LogicalUnit::new(identity, disk, UnitOptions { write_cache, volatility, ..UnitOptions::default() })
        .map_err(|error| error.to_string())?;
    units.add(Lun::default(), disk).map_err(|error| error.to_string())?;
    Ok(units)
}

/// One logical unit, 0, which is derived from this disk so, for these clients.
///
/// # Errors
/// When the disk, the name or the derivation is refused.
pub fn derived_units(
    disk: Arc<SimDisk>,
    write_cache: bool,
    (plan, clients): (DerivedPlan, &[Principal]),
) -> Result<Arc<LogicalUnits>, String> {
    let derivation = plan.derivation(disk.geometry(), clients);
    let whole = logical_units(disk, write_cache, None)?.get(Lun::default()).ok_or("no disk")?;
    let identity = Identity::new("derived", [8; 16]).map_err(|error| format!("{error:?}"))?;
    let options = UnitOptions { write_cache, ..UnitOptions::default() };
    let unit = LogicalUnit::derive(identity, &whole, derivation, options).map_err(|error| error.to_string())?;
    let units = Arc::new(LogicalUnits::new());
    units.add(Lun::default(), unit).map_err(|error| error.to_string())?;
    Ok(units)
}

impl<H: Handle + Ord> Executor<H> {
    /// Executes commands for these logical units, which others may do too; their stores are of this disk.
    #[must_use]
    pub fn new(memory: Region, units: Arc<LogicalUnits>, disk: Arc<SimDisk>) -> Self {
        let woken = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&woken);
        Executor {
            units,
            views: BTreeMap::new(),
            shares: BTreeMap::new(),
            engine: Engine::new(memory, CompletionQueue::new(move || flag.store(true, Ordering::Relaxed))),
            woken,
            now: Instant::ZERO,
            counters: VolumeCounters::default(),
            disk,
            flights: BTreeMap::new(),
            next_token: 0,
            scheduled: Vec::new(),
            ended: Vec::new(),
            active: BTreeSet::new(),
            begun: BTreeSet::new(),
        }
    }

    /// Whether no command is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.active.is_empty() && self.engine.is_idle() && self.flights.is_empty()
    }

    /// Whether commands wait for memory.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.engine.is_starved()
    }

    /// The sessions whose commands do, each with its share.
    pub fn starving(&self) -> impl Iterator<Item = (NexusId, &Region)> {
        self.engine.starving()
    }

    /// What is going on, for a failure's message.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{} commands active, {} at the disk, {:?}", self.active.len(), self.flights.len(), self.engine)
    }

    /// An initiator is there.
    pub fn open(&mut self, nexus: NexusId, ports: Arc<NexusPorts>, share: Region) {
        self.units.nexus_established(nexus, ports);
        self.shares.insert(nexus, share);
    }

    /// An initiator is there that sees the units on terms of its own.
    ///
    /// # Errors
    /// When they cannot be shown to it.
    pub fn open_view(
        &mut self,
        nexus: NexusId,
        ports: Arc<NexusPorts>,
        share: Region,
    ) -> Result<&LogicalUnits, String> {
        let view = LogicalUnits::part_of(Arc::clone(&self.units));
        for (lun, disk) in self.units.iter() {
            view.add_shared(lun, disk).map_err(|error| error.to_string())?;
        }
        view.nexus_established(nexus, ports);
        self.shares.insert(nexus, share);
        Ok(self.views.entry(nexus).or_insert(Arc::new(view)))
    }

    /// The units as an initiator sees them.
    #[must_use]
    pub fn units_of(&self, nexus: NexusId) -> &Arc<LogicalUnits> {
        self.views.get(&nexus).unwrap_or(&self.units)
    }

    /// An initiator is gone: what has not begun is dropped, what the disk does goes on to its end and keeps its blocks until then.
    pub fn close(&mut self, nexus: NexusId) {
        self.engine.leave(&Selection { by: nexus, which: Which::Own }, None);
        self.engine.withhold(nexus, false);
        self.units_of(nexus).nexus_lost(nexus);
        self.views.remove(&nexus);
        self.shares.remove(&nexus);
    }

    /// An initiator may be gone, and have come back as another: see [`Engine::keep_blocks`].
    pub fn keep_blocks(&mut self, nexus: NexusId, by: NexusId) {
        self.engine.keep_blocks(nexus, by);
    }

    /// Begins a command, or its next piece.
    ///
    /// # Errors
    /// When it has begun before, or may not be executed again.
    pub fn begin(&mut self, handle: H, task: Task, counts: &mut Counts, now: Instant) -> Result<(), String> {
        let nexus = handle.nexus();
        let share = self.shares.get(&nexus).ok_or_else(|| format!("{handle:?} is of no session"))?;
        let units = self.views.get(&nexus).unwrap_or(&self.units);
        let seat = Seat { units, memory: share, weight: 1 };
        if task.is_further_piece() {
            self.engine.go_on_with_piece(handle, seat, task, now);
            self.submit(now);
            return Ok(());
        }
        // Of a READ that was executed, the data may be lost with its connection: nothing else is executed again.
        let may_repeat =
            CommandSet::disk(Features::default()).is_bulk_read(&task.cdb) && !self.active.contains(&handle);
        if !self.begun.insert(handle) && !may_repeat {
            return Err(format!("{handle:?} was executed twice"));
        }
        if task.cdb.operation_code() == COUNT {
            let id = task.cdb[2..10].iter().fold(0, |id, byte| id << 8 | u64::from(*byte));
            let count = counts.entry(id).or_default();
            *count += 1;
            if *count > 1 {
                return Err(format!("counting command {id} was executed {count} times"));
            }
            self.ended.push((handle, Some(Reply::good(None))));
            return Ok(());
        }
        self.active.insert(handle);
        self.engine.begin(handle, Meter::start(units, &task, now), seat, task, now);
        self.submit(now);
        Ok(())
    }

    /// Ends commands: see [`Engine::abort`].
    pub fn abort(&mut self, selection: &Selection<H>, barrier: Option<&Arc<AbortBarrier>>) {
        self.engine.abort(selection, barrier);
    }

    /// The same for commands whose initiator does not hear when they end: see [`Engine::leave`].
    pub fn leave(&mut self, selection: &Selection<H>, barrier: Option<&Arc<AbortBarrier>>) {
        self.engine.leave(selection, barrier);
    }

    /// What a command wants ended in all shards, and the number of the barrier at which it waits for that.
    pub fn poll_abort(&mut self) -> Option<(u64, Selection<H>)> {
        self.engine.poll_abort()
    }

    /// That has happened.
    pub fn barrier_passed(&mut self, number: u64, now: Instant) {
        self.engine.barrier_passed(number, now);
        self.submit(now);
    }

    /// Commands of a session that take memory wait, or go on.
    pub fn withhold(&mut self, nexus: NexusId, is_withheld: bool) {
        self.engine.withhold(nexus, is_withheld);
    }

    /// Forgets the commands of a session that wait for memory, and gives them: nothing of them has happened.
    pub fn withdraw_starved(&mut self, nexus: NexusId) -> Vec<H> {
        let withdrawn = self.engine.withdraw_starved(nexus);
        for handle in &withdrawn {
            self.begun.remove(handle);
            self.active.remove(handle);
        }
        withdrawn
    }

    /// When the disk will have done what it was asked since the last look.
    pub fn take_scheduled(&mut self) -> Vec<(Instant, u64)> {
        std::mem::take(&mut self.scheduled)
    }

    /// The disk has done something.
    pub fn disk_done(&mut self, token: u64, now: Instant) {
        if let Some((id, flight)) = self.flights.remove(&token) {
            self.engine.completed(id, flight.land(), now);
        }
        self.retry(now);
    }

    /// Goes on with what waited for memory or for blocks, as far as it can.
    pub fn retry(&mut self, now: Instant) {
        self.now = now;
        self.woken.store(false, Ordering::Relaxed);
        self.engine.retry(now);
        self.submit(now);
    }

    /// When something is due though nothing happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let woken = self.woken.load(Ordering::Relaxed).then_some(self.now);
        woken.into_iter().chain(self.engine.poll_timeout()).min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.engine.handle_timeout(now);
        self.retry(now);
    }

    /// The commands that are over, with their answers: none when their initiators have aborted them.
    ///
    /// # Errors
    /// When one was over before.
    pub fn take_ended(&mut self, now: Instant) -> Result<Vec<(H, Option<Reply>)>, String> {
        while let Some(ended) = self.engine.poll_ended() {
            self.counters.note(&ended.meter, ended.reply.as_ref(), now);
            let is_piece = ended.reply.as_ref().is_some_and(|reply| reply.rest.is_some());
            if !is_piece && !self.active.remove(&ended.handle) {
                return Err(format!("{:?} was answered twice", ended.handle));
            }
            self.ended.push((ended.handle, ended.reply));
        }
        Ok(std::mem::take(&mut self.ended))
    }

    /// The process is killed: what the disk was asked may be done or not.
    pub fn kill(self, random: &mut Random) {
        for (_, flight) in self.flights.into_values() {
            if random.chance(500_000) {
                drop(flight.land());
            }
        }
    }

    /// Gives the kernel what it is to do, as far as it has room.
    fn submit(&mut self, now: Instant) {
        while let Some(work) = self.engine.poll_work() {
            if self.flights.len() >= DEPTH {
                return self.engine.give_back(work);
            }
            let Work { id, op } = work;
            let flight = self.disk.take_off(op.request);
            self.scheduled.push((now + flight.delay, self.next_token));
            self.flights.insert(self.next_token, (id, flight));
            self.next_token += 1;
        }
    }
}
