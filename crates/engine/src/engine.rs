//! Commands under way in one shard: between the device, which says what its store must do, and the driver that has it done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_device::{Execution, LogicalUnits, Progress, Starvation};
use sanwire_scsi::{Reply, Status};
use sanwire_store::{Completion, CompletionQueue, Course, KernelOp, Started};

use crate::abort::{AbortForCommand, Aborted, AtBarrier};
use crate::flights::Flights;
use crate::held::Held;
use crate::meter::Meter;
use crate::notice::Notice;
use crate::paused::Paused;
use crate::pieces::Between;
use crate::stall::{Attempt, Ledger, Verdict, no_room_to_wait};

/// What a front end calls its commands by.
pub trait Handle: Copy + Eq + fmt::Debug {
    /// The I_T nexus that gave the command.
    fn nexus(&self) -> NexusId;
}

/// Which command, and what is measured of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command<H> {
    pub(crate) handle: H,
    pub(crate) meter: Meter,
}

/// A command that is over.
#[derive(Debug)]
pub struct Ended<H> {
    /// Which.
    pub handle: H,
    /// What is measured of it.
    pub meter: Meter,
    /// What is to be answered; `None` when its initiator has aborted it. With [`Reply::rest`] only a piece of it is over.
    pub reply: Option<Reply>,
}

impl<H: Handle> Ended<H> {
    pub(crate) fn with(command: Command<H>, reply: Reply) -> Self {
        let Command { handle, meter } = command;
        Ended { handle, meter, reply: Some(reply) }
    }

    /// An aborted command. Its initiator is told unless it aborted the command itself (SAM-5 5.3.1; TAS is set).
    pub(crate) fn aborted(command: Command<H>, by: NexusId) -> Self {
        let Command { handle, meter } = command;
        Ended { handle, meter, reply: (handle.nexus() != by).then(task_aborted) }
    }
}

/// The answer to a command that another nexus has aborted.
#[must_use]
pub fn task_aborted() -> Reply {
    Reply::bare(Status::TaskAborted)
}

/// Work for the kernel.
#[derive(Debug)]
#[must_use = "a command waits for it"]
pub struct Work {
    /// For [`Engine::completed`].
    pub id: u64,
    /// What to do.
    pub op: KernelOp,
}

/// How long a command waits, or a store works for it, before it keeps its blocks: initiators take longer to find out that a path is
/// dead, and use another one, where a server may take longer still to miss them.
pub(crate) const SLOW: Duration = Duration::from_secs(1);

pub(crate) struct Running<H> {
    /// The command that is to be answered; `None` when that has been done already.
    pub(crate) command: Option<Command<H>>,
    since: Instant,
    pub(crate) units: Arc<LogicalUnits>,
    pub(crate) execution: Execution,
    /// What its store has under way for it.
    pub(crate) course: Course,
    /// What its store was asked, of a volume with patience.
    pub(crate) attempt: Option<Box<Attempt>>,
    pub(crate) aborted: Option<Aborted>,
}

impl<H> Running<H> {
    /// Keeps the blocks that it changes, until it has ended. One that is aborted ends with those that its store works on.
    fn keep_blocks(&mut self) {
        if self.aborted.is_some() { self.execution.keep_blocks() } else { self.execution.keep_all_blocks() }
    }
}

/// What a shard executes.
pub struct Engine<H> {
    pub(crate) memory: Region,
    pub(crate) running: Vec<Option<Running<H>>>,
    free: Vec<u32>,
    /// When it is next seen which of them are slow.
    pub(crate) look_at: Option<Instant>,
    /// Between two pieces of their data.
    pub(crate) between: Vec<Between<H>>,
    /// Waiting for memory.
    pub(crate) starvation: Starvation<Command<H>>,
    /// Waiting until their nexuses go on.
    pub(crate) paused: Paused<H>,
    /// Waiting for other commands to leave their blocks, in the order of coming.
    pub(crate) held: VecDeque<Held<H>>,
    /// Where stores complete what they do themselves.
    pub(crate) completions: CompletionQueue,
    /// What stores have under way for those that run.
    pub(crate) flights: Flights,
    /// Waiting until their stores can do their work, and when these are asked again.
    pub(crate) stalled: BTreeSet<(Instant, u32)>,
    /// How many wait so, or ask again, and what they keep.
    pub(crate) ledger: Arc<Ledger>,
    /// These keep too much of the memory.
    pub(crate) keeps_too_much: bool,
    /// Waiting for the end of the commands that they abort, by numbers that are not used again.
    pub(crate) at_barrier: BTreeMap<u64, AtBarrier<H>>,
    pub(crate) next_barrier: u64,
    /// What these want ended, in all shards.
    pub(crate) aborts: VecDeque<AbortForCommand<H>>,
    pub(crate) ended: VecDeque<Ended<H>>,
}

impl<H: Handle> Engine<H> {
    /// Executes nothing yet. What commands read, and the shares of all sessions, come from this memory. What stores do themselves they
    /// complete by this queue, which is the engine's own: it wakes the driver, and the driver calls [`Engine::reap`].
    /// What waits for memory goes on by [`Engine::retry`]: the driver sets [`Region::on_release`], and is woken by that, too.
    #[must_use]
    pub fn new(memory: Region, completions: CompletionQueue) -> Self {
        Engine {
            starvation: Starvation::new(&memory),
            memory,
            running: Vec::new(),
            free: Vec::new(),
            look_at: None,
            between: Vec::new(),
            paused: Paused::default(),
            held: VecDeque::new(),
            completions,
            flights: Flights::default(),
            stalled: BTreeSet::new(),
            ledger: Arc::default(),
            keeps_too_much: false,
            at_barrier: BTreeMap::new(),
            next_barrier: 0,
            aborts: VecDeque::new(),
            ended: VecDeque::new(),
        }
    }

    /// Whether nothing is under way. What is paused has not begun.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let waits = self.starvation.len()
            + self.starvation.deferred()
            + self.held.len()
            + self.at_barrier.len()
            + self.between.len();
        self.free.len() == self.running.len() && waits == 0
    }

    /// What the kernel is to do next.
    pub fn poll_work(&mut self) -> Option<Work> {
        self.flights.work.pop_front()
    }

    /// Takes back work for which there is no room now: it is the next again.
    pub fn give_back(&mut self, work: Work) {
        self.flights.work.push_front(work);
    }

    /// A command that is over.
    pub fn poll_ended(&mut self) -> Option<Ended<H>> {
        self.ended.pop_front()
    }

    /// The commands that are over and were not polled yet.
    pub fn ended(&self) -> impl ExactSizeIterator<Item = &Ended<H>> {
        self.ended.iter()
    }

    /// What an administrator should read.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.ledger.poll_notice()
    }

    /// A command is over, if its answer is still to be sent.
    pub(crate) fn end(&mut self, command: Option<Command<H>>, reply: Reply) {
        self.ended.extend(command.map(|command| Ended::with(command, reply)));
    }

    pub(crate) fn go_on(
        &mut self,
        mut command: Option<Command<H>>,
        units: &Arc<LogicalUnits>,
        mut progress: Progress,
        now: Instant,
    ) {
        loop {
            let (execution, request) = match progress {
                Progress::Done(reply) => return self.end(command, reply),
                Progress::Store(execution, request) => (execution, request),
                Progress::Answered(execution, request) => {
                    self.end(command.take(), Reply::good(None));
                    (execution, request)
                }
                Progress::Wait(waiting) => return self.hold(command, units, waiting, now),
                Progress::Abort(execution, scope) => {
                    return self.wait_at_barrier(AtBarrier { command, units: Arc::clone(units), execution }, scope);
                }
                Progress::Piece(reply, continuation) => {
                    let Some(command) = command else { return };
                    self.between.push(Between { command, units: Arc::clone(units), continuation });
                    return self.end(Some(command), reply);
                }
                // Only what begins asks for memory, or is deferred, and waits where it began.
                Progress::NoMemory(_) | Progress::Deferred(..) => {
                    return self.end(command, Reply::bare(Status::TaskSetFull));
                }
            };
            let mut attempt = Attempt::of(&execution, &request);
            let started = execution.store().start(request, &self.completions);
            if let Started::Done(completion) = &started {
                execution.count(completion);
            }
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
                    return self.end(command, no_room_to_wait());
                }
                (started, verdict) => {
                    self.look_at.get_or_insert(now + SLOW);
                    let (units, course) = (Arc::clone(units), Course::default());
                    let since = command.map_or(now, |command| command.meter.begun_at);
                    let running = Running { command, since, units, execution, course, attempt, aborted: None };
                    let tag = self.park(running);
                    match verdict {
                        Verdict::Retry(at) => _ = self.stalled.insert((at, tag)),
                        _ => self.take_off(tag, started, now),
                    }
                    return;
                }
            }
        }
    }

    /// Has done what a parked command's store has left to others.
    pub(crate) fn take_off(&mut self, tag: u32, started: Started, now: Instant) {
        let Some(running) = self.running.get_mut(tag as usize).and_then(Option::as_mut) else { return };
        let flights = &mut self.flights;
        let end = running.course.begin(started, &mut |number, operation| flights.begin(tag, number, operation, now));
        if let Some(completion) = end {
            self.finish(tag, completion, now);
        }
    }

    fn park(&mut self, running: Running<H>) -> u32 {
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

    pub(crate) fn unpark(&mut self, tag: u32) -> Option<Running<H>> {
        let running = self.running.get_mut(tag as usize)?.take()?;
        self.free.push(tag);
        Some(running)
    }

    /// The kernel has done the work with this number.
    pub fn completed(&mut self, id: u64, completion: Completion, now: Instant) {
        self.advance(id, Started::Done(completion), now);
    }

    /// Goes on with what stores have completed themselves: when the queue has woken its driver, or in each of its turns.
    pub fn reap(&mut self, now: Instant) {
        if !self.flights.has_pending() {
            return;
        }
        for (pending, completion) in self.completions.take() {
            if let Some(id) = self.flights.landed(pending) {
                self.completed(id, completion, now);
            }
        }
    }

    /// An operation of a command that is under way has ended, or goes on as `started` says.
    fn advance(&mut self, id: u64, started: Started, now: Instant) {
        let (tag, number) = Flights::split(id);
        let Some(running) = self.running.get_mut(tag as usize).and_then(Option::as_mut) else { return };
        let flights = &mut self.flights;
        let mut begin = |number, operation| flights.begin(tag, number, operation, now);
        if let Some(completion) = running.course.go_on(number, started, &self.completions, &mut begin) {
            self.finish(tag, completion, now);
        }
    }

    /// The store has ended what it did for a parked command.
    fn finish(&mut self, tag: u32, completion: Completion, now: Instant) {
        if let Some(running) = self.running.get(tag as usize).and_then(Option::as_ref) {
            running.execution.count(&completion);
        }
        self.conclude(tag, completion, now);
    }

    /// What a store has done for a parked command is over, or the patience with it.
    pub(crate) fn conclude(&mut self, tag: u32, completion: Completion, now: Instant) {
        let verdict = self.judge(tag, &completion, now);
        if let Verdict::Retry(_) = verdict {
            return;
        }
        let Some(running) = self.unpark(tag) else { return };
        let Running { command, units, execution, aborted, .. } = running;
        if verdict == Verdict::NoRoom {
            execution.abandon(&completion);
            return self.end(command, no_room_to_wait());
        }
        let Some(Aborted { by, barriers }) = aborted else {
            let progress = units.resume(execution, completion, &self.memory);
            return self.go_on(command, &units, progress, now);
        };
        execution.abandon(&completion);
        drop(barriers);
        self.ended.extend(command.map(|command| Ended::aborted(command, by)));
    }

    /// When a delayed request is next due, or a store is asked again.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = self.flights.due_at();
        let stalled = self.stalled.first().map(|(at, _)| *at);
        let others = [stalled, self.look_at, self.starvation.poll_timeout()];
        due.into_iter().chain(others.into_iter().flatten()).min()
    }

    /// Resumes the requests that are due. What waits for others asks again by [`Engine::retry`].
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((id, delayed)) = self.flights.take_due(now) {
            let started = delayed.resume(&self.completions);
            self.advance(id, started, now);
        }
        self.retry_stalled(now);
        self.tend_starved(now);
        self.resume_deferred(now);
        if self.look_at.is_some_and(|at| at <= now) {
            let slow = |running: &&mut Running<H>| now.saturating_since(running.since) >= SLOW;
            self.running.iter_mut().flatten().filter(slow).for_each(Running::keep_blocks);
            self.held.iter_mut().for_each(|held| held.waiting.keep_all_blocks());
            let is_over = self.free.len() == self.running.len() && self.held.is_empty();
            self.look_at = (!is_over).then_some(now + SLOW);
        }
    }
}

impl<H> fmt::Debug for Engine<H> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Engine")
            .field("running", &self.running.iter().flatten().count())
            .field("flights", &self.flights)
            .field("stalled", &self.stalled.len())
            .field("held", &self.held.len())
            .field("without_memory", &self.starvation.len())
            .field("between_pieces", &self.between.len())
            .field("at_barriers", &self.at_barrier.len())
            .field("memory", &self.memory)
            .finish()
    }
}
