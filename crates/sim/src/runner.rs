//! Commands under way in a server's process: between the logical units, which say what the disk must do, and the disk.

mod starved;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_core::{Instant, Lun, NexusId};
use sanwire_device::{
    Disk, DiskOptions, Execution, LogicalUnits, NexusPorts, Progress, Seat, Starvation, Volatility, Waiting,
};
use sanwire_scsi::{Identity, Reply, Status, Task};
use sanwire_store::{Delayed, Outcome, Started, Store};

use crate::disk::SimDisk;
use crate::random::Random;

/// The command that must not be executed twice: the simulation's device counts it. Its number stands in bytes 2 to 9.
pub const COUNT: u8 = 0xc9;

/// How often each counting command was executed, through all lives of the server.
pub type Counts = BTreeMap<u64, u32>;

/// Which command of which protocol.
pub trait Handle: Copy + Ord + Debug {
    /// The nexus that gave it.
    fn nexus(&self) -> NexusId;
}

/// A command that is over.
#[derive(Debug)]
pub struct Ended<H> {
    /// Which.
    pub handle: H,
    /// What is to be answered; `None` when its initiator has aborted it.
    pub reply: Option<Reply>,
}

struct Working<H> {
    /// Nobody when it is answered already.
    handle: Option<H>,
    execution: Execution,
    delayed: Delayed,
    aborted_by: Option<NexusId>,
}

/// A command that waits for the end of those that it aborts.
struct Settling<H> {
    handle: Option<H>,
    execution: Execution,
    awaited: BTreeSet<H>,
}

/// What a server executes.
pub struct Runner<H> {
    /// The logical units.
    pub units: Arc<LogicalUnits>,
    /// Of those who see them on terms of their own, the same units.
    views: BTreeMap<NexusId, Arc<LogicalUnits>>,
    /// When the completions come that are new since the last look.
    pub scheduled: Vec<(Instant, u64)>,
    /// What has ended since the last look.
    pub ended: Vec<Ended<H>>,
    memory: Region,
    nexuses: BTreeMap<NexusId, Arc<NexusPorts>>,
    /// The shares of the memory.
    shares: BTreeMap<NexusId, Region>,
    working: BTreeMap<u64, Working<H>>,
    next_token: u64,
    /// Commands that wait for memory.
    starvation: Starvation<H>,
    /// Commands that wait for the end of what their initiator began in an earlier session.
    behind: VecDeque<(H, Task)>,
    /// Commands that wait for others to leave their blocks.
    held: VecDeque<(Option<H>, Waiting)>,
    settling: Vec<Settling<H>>,
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
    let disk = Disk::new(identity, disk, DiskOptions { write_cache, volatility, ..DiskOptions::default() })
        .map_err(|error| error.to_string())?;
    units.add(Lun::default(), disk).map_err(|error| error.to_string())?;
    Ok(units)
}

impl<H: Handle> Runner<H> {
    /// A runner for these logical units, which it may share with others.
    #[must_use]
    pub fn new(memory: Region, units: Arc<LogicalUnits>) -> Self {
        Runner {
            units,
            views: BTreeMap::new(),
            scheduled: Vec::new(),
            ended: Vec::new(),
            starvation: Starvation::new(&memory),
            memory,
            nexuses: BTreeMap::new(),
            shares: BTreeMap::new(),
            working: BTreeMap::new(),
            next_token: 0,
            behind: VecDeque::new(),
            held: VecDeque::new(),
            settling: Vec::new(),
            active: BTreeSet::new(),
            begun: BTreeSet::new(),
        }
    }

    /// Whether no command is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
            && self.working.is_empty()
            && self.behind.is_empty()
            && !self.is_starved()
            && self.held.is_empty()
    }

    /// Whether commands wait for memory.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        !self.starvation.is_empty()
    }

    /// What is going on, for a failure's message.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "{} commands active, {} at the disk, {} without memory, {} wait for blocks, {} for aborts, {:?}",
            self.active.len(),
            self.working.len(),
            self.starvation.len(),
            self.held.len(),
            self.settling.len(),
            self.memory,
        )
    }

    /// An initiator is there.
    pub fn open(&mut self, nexus: NexusId, ports: Arc<NexusPorts>, share: Region) {
        self.units.nexus_established(nexus, Arc::clone(&ports));
        self.shares.insert(nexus, share);
        self.nexuses.insert(nexus, ports);
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
        view.nexus_established(nexus, Arc::clone(&ports));
        self.nexuses.insert(nexus, ports);
        self.shares.insert(nexus, share);
        Ok(self.views.entry(nexus).or_insert(Arc::new(view)))
    }

    /// The units as an initiator sees them.
    #[must_use]
    pub fn units_of(&self, nexus: NexusId) -> &Arc<LogicalUnits> {
        self.views.get(&nexus).unwrap_or(&self.units)
    }

    /// An initiator is gone: what has not begun is dropped, what the disk does goes on to its end.
    pub fn close(&mut self, nexus: NexusId) {
        self.units_of(nexus).nexus_lost(nexus);
        self.views.remove(&nexus);
        self.shares.remove(&nexus);
        self.starvation.withdraw(nexus);
        self.behind.retain(|(handle, _)| handle.nexus() != nexus);
        self.held.retain(|(handle, _)| handle.is_none_or(|handle| handle.nexus() != nexus));
        self.settling.retain(|settling| settling.handle.is_none_or(|handle| handle.nexus() != nexus));
        let mut works = BTreeSet::new();
        for working in self.working.values_mut() {
            if let Some(handle) = working.handle.filter(|handle| handle.nexus() == nexus) {
                working.aborted_by = Some(nexus);
                works.insert(handle);
            }
        }
        self.active.retain(|handle| handle.nexus() != nexus || works.contains(handle));
    }

    /// Begins a command.
    ///
    /// # Errors
    /// When it has begun before, or may not be executed again.
    pub fn begin(&mut self, handle: H, task: Task, counts: &mut Counts, now: Instant) -> Result<(), String> {
        // Of a READ that was executed, the data may be lost with its connection: nothing else is executed again.
        let may_repeat = task.cdb.is_read() && !self.active.contains(&handle);
        if !self.begun.insert(handle) && !may_repeat {
            return Err(format!("{handle:?} was executed twice"));
        }
        self.active.insert(handle);
        if task.cdb.operation_code() == COUNT {
            let id = task.cdb[2..10].iter().fold(0, |id, byte| id << 8 | u64::from(*byte));
            let count = counts.entry(id).or_default();
            *count += 1;
            if *count > 1 {
                return Err(format!("counting command {id} was executed {count} times"));
            }
            self.end(handle, Some(Reply::good(None)));
            return Ok(());
        }
        self.start(handle, task, now)
    }

    fn start(&mut self, handle: H, task: Task, now: Instant) -> Result<(), String> {
        let nexus = handle.nexus();
        if self.must_wait(nexus) {
            self.behind.push_back((handle, task));
            return Ok(());
        }
        let memory = self.shares.get(&nexus).ok_or_else(|| format!("{handle:?} is of no session"))?;
        let units = self.views.get(&nexus).unwrap_or(&self.units);
        match self.starvation.begin(nexus, handle, Seat { units, memory, weight: 1 }, task, now) {
            Some((handle, progress)) => self.go_on(Some(handle), progress, now),
            None => Ok(()),
        }
    }

    /// Commands wait for what a closed session of the same ports has at the disk: only so may a client give writes again in a
    /// new session.
    fn must_wait(&self, nexus: NexusId) -> bool {
        let Some(own) = self.nexuses.get(&nexus) else { return false };
        self.working.values().any(|working| {
            let closed = working.aborted_by.filter(|by| working.handle.is_some_and(|handle| handle.nexus() == *by));
            closed.is_some_and(|closed| closed != nexus && self.nexuses.get(&closed) == Some(own))
        })
    }

    fn go_on(&mut self, mut handle: Option<H>, mut progress: Progress, now: Instant) -> Result<(), String> {
        loop {
            let (execution, request) = match progress {
                Progress::Done(reply) => {
                    handle.into_iter().for_each(|handle| self.end(handle, Some(reply.clone())));
                    return Ok(());
                }
                Progress::Piece(..) => return Err("the simulated commands are short".to_owned()),
                Progress::NoMemory(_) => return Err(format!("{handle:?} asks for memory after it has begun")),
                Progress::Store(execution, request) => (execution, request),
                Progress::Answered(execution, request) => {
                    handle.take().into_iter().for_each(|handle| self.end(handle, Some(Reply::good(None))));
                    (execution, request)
                }
                Progress::Wait(waiting) => {
                    self.held.push_back((handle, waiting));
                    return Ok(());
                }
                Progress::Abort(execution, scope) => {
                    let by = handle.map_or(NexusId(u64::MAX), |handle| handle.nexus());
                    let awaited = self.abort(by, |other, disk| {
                        Some(other) != handle && disk.is_some_and(|disk| scope.covers(disk, other.nexus()))
                    });
                    self.settling.push(Settling { handle, execution, awaited });
                    return Ok(());
                }
            };
            let store: Arc<dyn Store> = Arc::clone(execution.store());
            match store.start(request) {
                Started::Done(completion) => progress = self.units.resume(execution, completion, &self.memory),
                Started::Later(delayed) => {
                    let token = self.next_token;
                    self.next_token += 1;
                    self.scheduled.push((now + delayed.delay, token));
                    self.working.insert(token, Working { handle, execution, delayed, aborted_by: None });
                    return Ok(());
                }
                Started::Kernel(_) => return Err("the simulated disk has no file".to_owned()),
            }
        }
    }

    fn end(&mut self, handle: H, reply: Option<Reply>) {
        self.active.remove(&handle);
        self.settling.iter_mut().for_each(|settling| _ = settling.awaited.remove(&handle));
        self.ended.push(Ended { handle, reply });
    }

    fn end_aborted(&mut self, handle: H, by: NexusId) {
        // SAM-5 5.3.1: whoever did not abort it himself is told.
        let reply = (handle.nexus() != by).then(|| Reply::bare(Status::TaskAborted));
        self.end(handle, reply);
    }

    /// Ends commands: those that wait at once, those at the disk when it has done what it does. The latter are given back.
    pub fn abort(&mut self, by: NexusId, is_meant: impl Fn(H, Option<&Disk>) -> bool) -> BTreeSet<H> {
        let unit = self.units.get(Lun::default());
        let (behind, kept) = std::mem::take(&mut self.behind)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(handle, _)| is_meant(*handle, unit.as_deref()));
        self.behind = kept;
        let starved = self.starvation.extract(|starved| is_meant(starved.handle, unit.as_deref()));
        let (held, kept) = std::mem::take(&mut self.held).into_iter().partition::<VecDeque<_>, _>(
            |(handle, waiting): &(Option<H>, Waiting)| {
                handle.is_some_and(|handle| is_meant(handle, Some(waiting.execution().disk())))
            },
        );
        self.held = kept;
        let waited = behind.into_iter().map(|(handle, _)| handle).chain(held.into_iter().filter_map(|(h, _)| h));
        let waited = starved.into_iter().map(|starved| starved.handle).chain(waited);
        waited.collect::<Vec<H>>().into_iter().for_each(|handle| self.end_aborted(handle, by));
        let mut awaited = BTreeSet::new();
        for working in self.working.values_mut() {
            let meant = working.handle.filter(|handle| is_meant(*handle, Some(working.execution.disk())));
            if let Some(handle) = meant {
                working.aborted_by.get_or_insert(by);
                awaited.insert(handle);
            }
        }
        awaited
    }

    /// Whether one of these has not ended.
    #[must_use]
    pub fn is_any_active(&self, handles: &BTreeSet<H>) -> bool {
        !self.active.is_disjoint(handles)
    }

    /// The disk has done something.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn disk_done(&mut self, token: u64, now: Instant) -> Result<(), String> {
        let Some(Working { handle, execution, delayed, aborted_by }) = self.working.remove(&token) else {
            return Ok(());
        };
        let Started::Done(completion) = delayed.resume() else {
            return Err("the medium answers at once".to_owned());
        };
        if let (Some(handle), Some(by)) = (handle, aborted_by) {
            execution.abandon(&completion);
            self.end_aborted(handle, by);
        } else {
            let progress = self.units.resume(execution, completion, &self.memory);
            self.go_on(handle, progress, now)?;
        }
        self.retry(now)
    }

    /// Goes on with what waited for memory, for blocks or for aborts, as far as it can.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn retry(&mut self, now: Instant) -> Result<(), String> {
        let settled: Vec<_> = self.settling.extract_if(.., |settling| settling.awaited.is_empty()).collect();
        for Settling { handle, execution, .. } in settled {
            let progress = self.units.resume(execution, Ok(Outcome::Done), &self.memory);
            self.go_on(handle, progress, now)?;
        }
        for _ in 0..self.held.len() {
            let Some((handle, waiting)) = self.held.pop_front() else { break };
            let progress = self.units.retry(waiting, &self.memory);
            self.go_on(handle, progress, now)?;
        }
        for _ in 0..self.behind.len() {
            let Some((handle, task)) = self.behind.pop_front() else { break };
            self.start(handle, task, now)?;
        }
        let mut begun = Vec::new();
        self.starvation.serve(now, |handle, _, progress| begun.push((handle, progress)));
        begun.into_iter().try_for_each(|(handle, progress)| self.go_on(Some(handle), progress, now))
    }

    /// The process is killed: what the disk was asked may be done or not.
    pub fn kill(self, random: &mut Random) {
        for working in self.working.into_values() {
            if random.chance(500_000) {
                drop(working.delayed.resume());
            }
        }
    }
}
