//! Commands under way in one shard: between the device, which says what its store must do, and the engines that do it.

mod abort;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, Lun, NexusId};
use sanwire_device::{Execution, LogicalUnits, NexusPorts, Progress, Waiting};
use sanwire_hyperscsi::CommandHandle;
use sanwire_io::file::FileEngine;
use sanwire_scsi::{Reply, Task};
use sanwire_store::{Completion, Delayed, KernelOp, Started};

use abort::Settling;

/// A command that its device has answered.
pub(crate) type Answered = (CommandHandle, Reply);

/// How long a command waits before it asks again whether another one, perhaps of another shard, has left its blocks.
const ASK_AGAIN: Duration = Duration::from_micros(100);

struct Running {
    /// Who is to be answered; nobody when that has been done already.
    handle: Option<CommandHandle>,
    execution: Execution,
    /// Another initiator has ended it: its store's work is waited for and forgotten.
    is_aborted: bool,
}

/// What a shard executes.
pub(crate) struct Runner {
    units: Arc<LogicalUnits>,
    memory: Region,
    running: Vec<Option<Running>>,
    free: Vec<u32>,
    /// Waiting for memory, in the order of coming.
    starved: VecDeque<(CommandHandle, Task)>,
    /// Waiting for other commands to leave their blocks, in the order of coming.
    waiting: VecDeque<(Option<CommandHandle>, Waiting)>,
    ask_again_at: Option<Instant>,
    /// Waiting for room in the engine.
    backlog: VecDeque<(u64, KernelOp)>,
    /// Waiting for their time.
    delayed: Vec<Option<Delayed>>,
    due: BinaryHeap<Reverse<(Instant, u32)>>,
    /// Waiting for the end of the commands that they abort.
    settling: Vec<Settling>,
    /// Answered meanwhile, by what happened to others.
    ended: Vec<Answered>,
}

impl Runner {
    pub(crate) fn new(units: Arc<LogicalUnits>, memory: Region) -> Self {
        Runner {
            units,
            memory,
            running: Vec::new(),
            free: Vec::new(),
            starved: VecDeque::new(),
            waiting: VecDeque::new(),
            ask_again_at: None,
            backlog: VecDeque::new(),
            delayed: Vec::new(),
            due: BinaryHeap::new(),
            settling: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.running.len() && self.starved.is_empty() && self.waiting.is_empty()
    }

    pub(crate) fn nexus_established(&self, nexus: NexusId, ports: NexusPorts) {
        self.units.nexus_established(nexus, Arc::new(ports));
    }

    pub(crate) fn nexus_lost(&self, nexus: NexusId) {
        self.units.nexus_lost(nexus);
    }

    /// Resets a logical unit. Commands that are under way at the store end as if they had been done before the reset.
    pub(crate) fn reset(&self, lun: Option<Lun>, by: NexusId) -> bool {
        lun.is_some_and(|lun| self.units.logical_unit_reset(lun, by))
    }

    /// Begins a command.
    pub(crate) fn begin(
        &mut self,
        handle: CommandHandle,
        task: Task,
        engine: &mut FileEngine,
        now: Instant,
    ) -> Option<Answered> {
        if !self.starved.is_empty() {
            self.starved.push_back((handle, task));
            return None;
        }
        self.attempt(handle, task, engine, now, true)
    }

    fn attempt(
        &mut self,
        handle: CommandHandle,
        task: Task,
        engine: &mut FileEngine,
        now: Instant,
        is_last: bool,
    ) -> Option<Answered> {
        match self.units.begin(handle.nexus(), task, &self.memory) {
            Progress::NoMemory(task) if is_last => {
                self.starved.push_back((handle, task));
                None
            }
            Progress::NoMemory(task) => {
                self.starved.push_front((handle, task));
                None
            }
            progress => self.go_on(Some(handle), progress, engine, now),
        }
    }

    /// Tries the commands that waited for another one, and those that found no memory, until one finds none again.
    pub(crate) fn retry(&mut self, engine: &mut FileEngine, now: Instant, answered: &mut Vec<Answered>) {
        for _ in 0..self.waiting.len() {
            let Some((handle, waiting)) = self.waiting.pop_front() else { break };
            let progress = self.units.retry(waiting);
            answered.extend(self.go_on(handle, progress, engine, now));
        }
        self.ask_again_at = if self.waiting.is_empty() { None } else { Some(now + ASK_AGAIN) };
        for _ in 0..self.starved.len() {
            let Some((handle, task)) = self.starved.pop_front() else { break };
            let waiting = self.starved.len();
            answered.extend(self.attempt(handle, task, engine, now, false));
            if self.starved.len() > waiting {
                break;
            }
        }
        while let Some((tag, op)) = self.backlog.pop_front() {
            if let Err(op) = engine.submit(tag, op) {
                self.backlog.push_front((tag, op));
                break;
            }
        }
    }

    fn go_on(
        &mut self,
        mut handle: Option<CommandHandle>,
        mut progress: Progress,
        engine: &mut FileEngine,
        now: Instant,
    ) -> Option<Answered> {
        let mut answered = None;
        loop {
            let (execution, request) = match progress {
                Progress::Done(reply) => return answered.or(handle.map(|handle| (handle, reply))),
                Progress::Store(execution, request) => (execution, request),
                Progress::Answered(execution, request) => {
                    answered = handle.take().map(|handle| (handle, Reply::good(None)));
                    (execution, request)
                }
                Progress::Wait(waiting) => {
                    self.waiting.push_back((handle, waiting));
                    self.ask_again_at = self.ask_again_at.or(Some(now + ASK_AGAIN));
                    return answered;
                }
                Progress::Abort(execution, scope) => {
                    self.abort((handle, execution), &scope, engine, now);
                    return answered;
                }
                Progress::NoMemory(task) => {
                    self.starved.extend(handle.map(|handle| (handle, task)));
                    return answered;
                }
            };
            match execution.store().start(request) {
                Started::Done(completion) => {
                    progress = self.units.resume(execution, completion, &self.memory);
                }
                started => {
                    let tag = self.park(Running { handle, execution, is_aborted: false });
                    self.wait(tag, started, engine, now);
                    return answered;
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
                self.due.push(Reverse((now + delayed.delay, tag)));
                let slot = tag as usize;
                if self.delayed.len() <= slot {
                    self.delayed.resize_with(slot + 1, || None);
                }
                self.delayed[slot] = Some(delayed);
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

    /// The store has done what a parked command waited for.
    pub(crate) fn completed(
        &mut self,
        tag: u64,
        completion: Completion,
        engine: &mut FileEngine,
        now: Instant,
    ) -> Option<Answered> {
        let running = self.running.get_mut(usize::try_from(tag).ok()?)?.take()?;
        self.free.push(tag as u32);
        if running.is_aborted {
            self.aborted(running.handle, tag as u32, engine, now);
            return None;
        }
        let progress = self.units.resume(running.execution, completion, &self.memory);
        self.go_on(running.handle, progress, engine, now)
    }

    /// When a delayed request is next due, or a waiting command asks again.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.due.peek().map(|Reverse((at, _))| *at);
        due.into_iter().chain(self.ask_again_at).min()
    }

    /// Goes on with the requests whose time has come.
    pub(crate) fn handle_timeout(&mut self, engine: &mut FileEngine, now: Instant, answered: &mut Vec<Answered>) {
        while let Some(&Reverse((at, tag))) = self.due.peek()
            && at <= now
        {
            self.due.pop();
            let Some(delayed) = self.delayed.get_mut(tag as usize).and_then(Option::take) else { continue };
            match delayed.resume() {
                Started::Done(completion) => answered.extend(self.completed(u64::from(tag), completion, engine, now)),
                started => self.wait(tag, started, engine, now),
            }
        }
    }
}
