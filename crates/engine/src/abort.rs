//! Ending commands before their time.

use std::sync::Arc;

use sanwire_core::{Instant, NexusId};
use sanwire_device::{AbortScope, Execution, LogicalUnits, Starved, UnitId};
use sanwire_scsi::Task;
use sanwire_store::Outcome;

use crate::barrier::AbortBarrier;
use crate::engine::{Command, Ended, Engine, Handle};

/// Which commands are to be ended, and for which nexus.
#[derive(Clone, Debug)]
pub struct Selection<H> {
    /// The nexus that asks for it. The commands of others are answered TASK ABORTED.
    pub by: NexusId,
    /// Which commands.
    pub which: Which<H>,
}

/// Which commands.
#[derive(Clone, Debug)]
pub enum Which<H> {
    /// This one.
    Command(H),
    /// Those of the nexus that wants it.
    Own,
    /// Those of the nexus that wants it, for this unit.
    OwnOn(UnitId),
    /// Those for these units.
    On(Vec<UnitId>),
    /// What PREEMPT AND ABORT ends.
    Of(AbortScope),
    /// Those of this nexus that have begun and go on from blocks to blocks.
    Advancing(NexusId),
}

impl<H: Handle> Selection<H> {
    fn fits(&self, handle: H, unit: Option<UnitId>) -> bool {
        let is_own = handle.nexus() == self.by;
        match &self.which {
            Which::Command(command) => *command == handle,
            Which::Own => is_own,
            Which::OwnOn(wanted) => is_own && unit == Some(*wanted),
            Which::On(units) => unit.is_some_and(|unit| units.contains(&unit)),
            Which::Of(scope) => unit.is_some_and(|unit| scope.covers(unit, handle.nexus())),
            Which::Advancing(_) => false,
        }
    }

    /// The same for a command whose store works for it.
    fn fits_execution(&self, handle: H, execution: &Execution) -> bool {
        match &self.which {
            Which::Of(scope) => execution.is_covered_by(scope, handle.nexus()),
            Which::Advancing(nexus) => handle.nexus() == *nexus && execution.goes_from_blocks_to_blocks(),
            _ => self.fits(handle, Some(execution.unit().id())),
        }
    }

    pub(crate) fn fits_waiting(&self, handle: H, units: &LogicalUnits, task: &Task) -> bool {
        let unit = task.lun.and_then(|lun| units.get(lun)).map(|unit| unit.id());
        self.fits(handle, unit)
    }
}

/// A command that is aborted while its store works for it.
pub(crate) struct Aborted {
    pub(crate) by: NexusId,
    /// Held until the command has ended, for those that wait for that.
    pub(crate) barriers: Vec<Arc<AbortBarrier>>,
}

/// A command that waits for the end of those that it aborts.
pub(crate) struct AtBarrier<H> {
    pub(crate) command: Option<Command<H>>,
    pub(crate) units: Arc<LogicalUnits>,
    pub(crate) execution: Execution,
}

/// What a command wants ended in all shards, with its number for [`Engine::barrier_passed`].
pub(crate) type AbortForCommand<H> = (u64, Selection<H>);

impl<H: Handle> Engine<H> {
    /// Ends the selected commands: at once those that wait for something, the others when their store has done what it is
    /// doing. Until the last of them has ended, `barrier` is held.
    ///
    /// Each command under way is looked at, of all sessions of the shard. They are as many as the shard's memory and the windows of
    /// sessions let begin, however many sessions are idle; an index by nexus or unit would have to be written for every command, and
    /// only aborts and the ends of sessions would read it.
    pub fn abort(&mut self, selection: &Selection<H>, barrier: Option<&Arc<AbortBarrier>>) {
        let (by, ended) = (selection.by, &mut self.ended);
        let is_selected = |starved: &Starved<Command<H>>| {
            selection.fits_waiting(starved.handle.handle, &starved.units, starved.task())
        };
        let starved = self.starvation.extract(is_selected);
        ended.extend(starved.into_iter().map(|starved| Ended::aborted(starved.handle, by)));
        ended.extend(self.paused.extract(selection).into_iter().map(|command| Ended::aborted(command, by)));
        self.between.retain(|between| {
            let is_selected = selection.fits(between.command.handle, Some(between.continuation.unit()));
            ended.extend(is_selected.then(|| Ended::aborted(between.command, by)));
            !is_selected
        });
        self.held.retain_mut(|held| {
            let fits = |command: &Command<H>| selection.fits_execution(command.handle, held.waiting.execution());
            let selected = held.command.filter(fits);
            ended.extend(selected.map(|command| Ended::aborted(command, by)));
            if selected.is_some() {
                held.command = None;
            }
            selected.is_none() || held.waiting.execution().outlives_its_task()
        });
        for tag in 0..self.running.len() as u32 {
            let Some(running) = self.running.get_mut(tag as usize).and_then(Option::as_mut) else { continue };
            // What goes on without anybody to answer (SANITIZE) is not ended by task management (SBC-4 4.11.2).
            let fits = |command: &Command<H>| selection.fits_execution(command.handle, &running.execution);
            let Some(command) = running.command.filter(fits) else { continue };
            if running.execution.outlives_its_task() {
                running.command = None;
                self.ended.push_back(Ended::aborted(command, by));
                continue;
            }
            let aborted = running.aborted.get_or_insert(Aborted { by, barriers: Vec::new() });
            aborted.barriers.extend(barrier.map(Arc::clone));
            if self.withdraw(tag) {
                self.unpark(tag);
                self.ended.push_back(Ended::aborted(command, by));
            }
        }
    }

    /// Ends the commands of a session or connection that is over, as by [`Engine::abort`]. Their initiator does not hear when
    /// they end, so they keep their blocks until then.
    pub fn leave(&mut self, selection: &Selection<H>, barrier: Option<&Arc<AbortBarrier>>) {
        self.abort(selection, barrier);
        for running in self.running.iter_mut().flatten() {
            if running.command.is_some_and(|command| selection.fits_execution(command.handle, &running.execution)) {
                running.execution.keep_blocks();
            }
        }
    }

    /// Keeps the blocks of the commands of a session whose initiator may be dead, until they have ended, as `by` is its successor.
    /// Those that have not begun are refused, and those that go on from blocks to blocks end: what comes next may be newer already.
    /// What is under way is looked at as by [`Engine::abort`], and for the same reason.
    pub fn keep_blocks(&mut self, nexus: NexusId, by: NexusId) {
        self.refuse_starved(nexus);
        self.refuse_paused(nexus);
        self.abort(&Selection { by, which: Which::Advancing(nexus) }, None);
        let is_own = |command: Option<Command<H>>| command.is_some_and(|command| command.handle.nexus() == nexus);
        let running = self.running.iter_mut().flatten().filter(|running| is_own(running.command));
        running.for_each(|running| running.execution.keep_blocks());
        let held = self.held.iter_mut().filter(|held| is_own(held.command));
        held.for_each(|held| held.waiting.keep_blocks());
    }

    /// Takes back what a store was to do, if it has not begun.
    fn withdraw(&mut self, tag: u32) -> bool {
        let before = self.stalled.len();
        self.stalled.retain(|(_, stalled)| *stalled != tag);
        if self.stalled.len() < before {
            return true;
        }
        let running = self.running.get(tag as usize).and_then(Option::as_ref);
        running.is_some_and(|running| self.flights.withdraw(tag, running.course.under_way()))
    }

    /// Keeps a command until those that it aborts have ended, in all shards.
    pub(crate) fn wait_at_barrier(&mut self, waiting: AtBarrier<H>, scope: AbortScope) {
        let number = self.next_barrier;
        self.next_barrier += 1;
        if let Some(command) = waiting.command {
            self.aborts.push_back((number, Selection { by: command.handle.nexus(), which: Which::Of(scope) }));
        }
        self.at_barrier.insert(number, waiting);
    }

    /// What a command wants ended in all shards, this one among them, and its number for [`Engine::barrier_passed`] when that is done.
    pub fn poll_abort(&mut self) -> Option<(u64, Selection<H>)> {
        self.aborts.pop_front()
    }

    /// All that a command wanted ended has ended: it goes on.
    pub fn barrier_passed(&mut self, number: u64, now: Instant) {
        let Some(AtBarrier { command, units, execution }) = self.at_barrier.remove(&number) else { return };
        let progress = units.resume(execution, Ok(Outcome::Done), &self.memory);
        self.go_on(command, &units, progress, now);
    }
}
