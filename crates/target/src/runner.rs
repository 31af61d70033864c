//! Commands under way in one shard: between the device, which says what its store must do, and the engines that do it.

mod abort;
mod backoff;
mod pieces;
mod stall;
mod starved;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_device::{Execution, LogicalUnits, Progress, Starvation, Waiting};
use sanwire_io::file::FileEngine;
use sanwire_scsi::{Reply, Status};
use sanwire_store::{Completion, Delayed, KernelOp, Started};

use self::abort::AtBarrier;
pub(crate) use self::abort::{Selection, Which};
use self::backoff::Backoff;
use self::pieces::Between;
use self::stall::{Attempt, Kept, Verdict, no_room_to_wait};
use crate::counting::Meter;
use crate::mail::AbortBarrier;

/// Which command of which protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CommandHandle {
    HyperScsi(sanwire_hyperscsi::CommandHandle),
    Iscsi(sanwire_iscsi::CommandHandle),
}

/// Which command, and what is measured of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle {
    pub(crate) command: CommandHandle,
    pub(crate) meter: Meter,
}

impl Handle {
    pub(crate) fn nexus(self) -> NexusId {
        match self.command {
            CommandHandle::HyperScsi(handle) => handle.nexus(),
            CommandHandle::Iscsi(handle) => handle.nexus(),
        }
    }
}

/// A command that is over.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) handle: Handle,
    /// What is to be answered; `None` when its initiator has aborted it. With [`Reply::rest`] only a piece of it is over.
    pub(crate) reply: Option<Reply>,
}

impl Ended {
    /// A command that somebody has aborted. Whoever did not do it himself is told (SAM-5 5.3.1; TAS is set).
    fn aborted(handle: Handle, by: NexusId) -> Ended {
        Ended { handle, reply: (handle.nexus() != by).then(task_aborted) }
    }
}

/// The answer to a command that somebody else has aborted.
pub(crate) fn task_aborted() -> Reply {
    Reply::bare(Status::TaskAborted)
}

/// How long a command waits before it asks again whether another one, perhaps of another shard, has left its blocks.
const BACKOFF_FIRST: Duration = Duration::from_micros(100);
/// And how long at the most, each wait without success being twice as long as the one before: a store may hang for long.
const BACKOFF_MAX: Duration = Duration::from_millis(5);

/// How long a command waits, or a store works for it, before it keeps its blocks: initiators take longer to find out that a path is
/// dead, and use another one, where a server may take longer still to miss them.
const SLOW: Duration = Duration::from_secs(1);

struct Running {
    /// Who is to be answered; nobody when that has been done already.
    handle: Option<Handle>,
    since: Instant,
    units: Arc<LogicalUnits>,
    execution: Execution,
    /// What its store was asked, of a volume with patience.
    attempt: Option<Box<Attempt>>,
    aborted: Option<Aborted>,
}

/// A command that is aborted while its store works for it.
struct Aborted {
    by: NexusId,
    /// Held until the command has ended, for who waits for that.
    barriers: Vec<Arc<AbortBarrier>>,
}

/// A command that waits for another one.
struct Held {
    handle: Option<Handle>,
    units: Arc<LogicalUnits>,
    waiting: Waiting,
}

/// What a shard executes.
pub(crate) struct Runner {
    memory: Region,
    running: Vec<Option<Running>>,
    free: Vec<u32>,
    /// When it is next seen which of them are slow.
    look_at: Option<Instant>,
    /// Between two pieces of their data.
    between: Vec<Between>,
    /// Waiting for memory.
    starvation: Starvation<Handle>,
    /// Waiting for other commands to leave their blocks, in the order of coming.
    held: VecDeque<Held>,
    backoff: Backoff,
    /// Waiting for room in the engine.
    backlog: VecDeque<(u64, KernelOp)>,
    /// Waiting for their time.
    delayed: BTreeMap<(Instant, u32), Delayed>,
    /// Waiting until their stores can do their work, and when these are asked again.
    stalled: BTreeSet<(Instant, u32)>,
    /// How many wait so, or ask again, and what they keep.
    kept: Rc<Cell<Kept>>,
    /// These keep too much of the memory.
    keeps_too_much: bool,
    /// Waiting for the end of the commands that they abort, by numbers that are not used again.
    at_barrier: BTreeMap<u64, AtBarrier>,
    next_barrier: u64,
    /// What these want ended, in all shards.
    aborts: Vec<(u64, Selection)>,
}

impl Runner {
    pub(crate) fn new(memory: Region) -> Self {
        Runner {
            starvation: Starvation::new(&memory),
            memory,
            running: Vec::new(),
            free: Vec::new(),
            look_at: None,
            between: Vec::new(),
            held: VecDeque::new(),
            backoff: Backoff::new(BACKOFF_FIRST, BACKOFF_MAX),
            backlog: VecDeque::new(),
            delayed: BTreeMap::new(),
            stalled: BTreeSet::new(),
            kept: Rc::default(),
            keeps_too_much: false,
            at_barrier: BTreeMap::new(),
            next_barrier: 0,
            aborts: Vec::new(),
        }
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        let waits = self.starvation.len() + self.held.len() + self.at_barrier.len() + self.between.len();
        self.free.len() == self.running.len() && waits == 0
    }

    /// Tries the commands that waited for another one, and those that found no memory.
    pub(crate) fn retry(&mut self, engine: &mut FileEngine, now: Instant, ended: &mut Vec<Ended>) {
        let mut is_in_vain = true;
        for _ in 0..self.held.len() {
            let Some(Held { handle, units, waiting }) = self.held.pop_front() else { break };
            let progress = units.retry(waiting, &self.memory);
            is_in_vain &= matches!(progress, Progress::Wait(_));
            ended.extend(self.go_on(handle, &units, progress, engine, now));
        }
        self.backoff.asked(!self.held.is_empty(), is_in_vain, now);
        self.feed_starved(engine, now, ended);
        while let Some((tag, op)) = self.backlog.pop_front() {
            if let Err(op) = engine.submit(tag, op) {
                self.backlog.push_front((tag, op));
                break;
            }
        }
    }

    fn go_on(
        &mut self,
        mut handle: Option<Handle>,
        units: &Arc<LogicalUnits>,
        mut progress: Progress,
        engine: &mut FileEngine,
        now: Instant,
    ) -> Option<Ended> {
        let mut ended = None;
        loop {
            let (execution, request) = match progress {
                Progress::Done(reply) => return ended.or(handle.map(|handle| Ended { handle, reply: Some(reply) })),
                Progress::Store(execution, request) => (execution, request),
                Progress::Answered(execution, request) => {
                    ended = handle.take().map(|handle| Ended { handle, reply: Some(Reply::good(None)) });
                    (execution, request)
                }
                Progress::Wait(waiting) => {
                    self.held.push_back(Held { handle, units: Arc::clone(units), waiting });
                    self.backoff.begin(now);
                    self.look_at.get_or_insert(now + SLOW);
                    return ended;
                }
                Progress::Abort(execution, scope) => {
                    self.wait_at_barrier(AtBarrier { handle, units: Arc::clone(units), execution }, scope);
                    return ended;
                }
                Progress::Piece(reply, disk) => {
                    let handle = handle?;
                    self.between.push(Between { handle, units: Arc::clone(units), disk });
                    return Some(Ended { handle, reply: Some(reply) });
                }
                // Only what begins asks for memory, and waits where it began.
                Progress::NoMemory(_) => {
                    let refused = |handle| Ended { handle, reply: Some(Reply::bare(Status::TaskSetFull)) };
                    return ended.or(handle.map(refused));
                }
            };
            let mut attempt = Attempt::of(&execution, &request);
            let started = execution.store().start(request);
            let verdict = match (&started, &mut attempt) {
                (Started::Done(completion @ Err(_)), Some(attempt)) => {
                    attempt.judge(completion, &execution, &self.room(), now)
                }
                _ => Verdict::Over,
            };
            match (started, verdict) {
                (Started::Done(completion), Verdict::Over) => {
                    progress = units.resume(execution, completion, &self.memory);
                }
                (Started::Done(completion), Verdict::NoRoom) => {
                    execution.abandon(&completion);
                    return ended.or(handle.map(|handle| Ended { handle, reply: Some(no_room_to_wait()) }));
                }
                (started, verdict) => {
                    self.look_at.get_or_insert(now + SLOW);
                    let units = Arc::clone(units);
                    let tag = self.park(Running { handle, since: now, units, execution, attempt, aborted: None });
                    if let Verdict::Retry(at) = verdict {
                        self.stalled.insert((at, tag));
                    }
                    self.wait(tag, started, engine, now);
                    return ended;
                }
            }
        }
    }

    /// Has a parked command's request done by the engine, or later.
    fn wait(&mut self, tag: u32, started: Started, engine: &mut FileEngine, now: Instant) {
        match started {
            Started::Kernel(op) => {
                if !self.backlog.is_empty() {
                    self.backlog.push_back((u64::from(tag), op));
                } else if let Err(op) = engine.submit(u64::from(tag), op) {
                    self.backlog.push_back((u64::from(tag), op));
                }
            }
            Started::Later(delayed) => {
                self.delayed.insert((now + delayed.delay, tag), delayed);
            }
            Started::Done(_) => {}
        }
    }

    fn park(&mut self, running: Running) -> u32 {
        match self.free.pop() {
            Some(tag) => {
                self.running[tag as usize] = Some(running);
                tag
            }
            None => {
                self.running.push(Some(running));
                (self.running.len() - 1) as u32
            }
        }
    }

    fn unpark(&mut self, tag: u32) -> Option<Running> {
        let running = self.running.get_mut(tag as usize)?.take()?;
        self.free.push(tag);
        Some(running)
    }

    /// The store has done what a parked command waited for.
    pub(crate) fn completed(
        &mut self,
        tag: u64,
        completion: Completion,
        engine: &mut FileEngine,
        now: Instant,
        ended: &mut Vec<Ended>,
    ) {
        let Ok(tag) = u32::try_from(tag) else { return };
        let verdict = self.judge(tag, &completion, now);
        if let Verdict::Retry(_) = verdict {
            return;
        }
        let Some(running) = self.unpark(tag) else { return };
        let Running { handle, units, execution, aborted, .. } = running;
        if verdict == Verdict::NoRoom {
            execution.abandon(&completion);
            return ended.extend(handle.map(|handle| Ended { handle, reply: Some(no_room_to_wait()) }));
        }
        let Some(Aborted { by, barriers }) = aborted else {
            let progress = units.resume(execution, completion, &self.memory);
            return ended.extend(self.go_on(handle, &units, progress, engine, now));
        };
        execution.abandon(&completion);
        drop(barriers);
        ended.extend(handle.map(|handle| Ended::aborted(handle, by)));
    }

    /// When a delayed request is next due, or a waiting command asks again.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.delayed.first_key_value().map(|((at, _), _)| *at);
        let stalled = self.stalled.first().map(|(at, _)| *at);
        let others = [stalled, self.backoff.at(), self.look_at, self.starvation.poll_timeout()];
        due.into_iter().chain(others.into_iter().flatten()).min()
    }

    /// Goes on with the requests whose time has come.
    pub(crate) fn handle_timeout(&mut self, engine: &mut FileEngine, now: Instant, ended: &mut Vec<Ended>) {
        while let Some(entry) = self.delayed.first_entry()
            && entry.key().0 <= now
        {
            let ((_, tag), delayed) = entry.remove_entry();
            match delayed.resume() {
                Started::Done(completion) => self.completed(u64::from(tag), completion, engine, now, ended),
                started => self.wait(tag, started, engine, now),
            }
        }
        self.retry_stalled(engine, now, ended);
        self.tend_starved(now, ended);
        if self.look_at.is_some_and(|at| at <= now) {
            let slow = |running: &&mut Running| now.saturating_since(running.since) >= SLOW;
            self.running.iter_mut().flatten().filter(slow).for_each(|running| running.execution.keep_blocks());
            self.held.iter_mut().for_each(|held| held.waiting.keep_blocks());
            let is_over = self.free.len() == self.running.len() && self.held.is_empty();
            self.look_at = (!is_over).then_some(now + SLOW);
        }
    }
}
