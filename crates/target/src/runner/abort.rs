//! Ending commands before their time.

use std::sync::Arc;

use sanwire_core::{Instant, NexusId};
use sanwire_device::{AbortScope, Disk, Execution, LogicalUnits, Starved};
use sanwire_io::file::FileEngine;
use sanwire_scsi::Task;
use sanwire_store::Outcome;

use super::{Aborted, CommandHandle, Ended, Handle, Runner};
use crate::mail::AbortBarrier;

/// Which commands are to be ended, and who wants it.
#[derive(Clone)]
pub(crate) struct Selection {
    pub(crate) by: NexusId,
    pub(crate) which: Which,
}

/// Which commands.
#[derive(Clone)]
pub(crate) enum Which {
    /// This one.
    Command(CommandHandle),
    /// Those of the nexus that wants it.
    Own,
    /// Those of the nexus that wants it, for this disk.
    OwnOn(Arc<Disk>),
    /// Those for these disks.
    On(Vec<Arc<Disk>>),
    /// What PREEMPT AND ABORT ends.
    Of(AbortScope),
    /// Those of this nexus that have begun and go on from blocks to blocks.
    Advancing(NexusId),
}

impl Selection {
    fn fits(&self, handle: Handle, disk: Option<&Disk>) -> bool {
        let is = |wanted: &Arc<Disk>| disk.is_some_and(|disk| std::ptr::eq(Arc::as_ptr(wanted), disk));
        let is_own = handle.nexus() == self.by;
        match &self.which {
            Which::Command(command) => *command == handle.command,
            Which::Own => is_own,
            Which::OwnOn(wanted) => is_own && is(wanted),
            Which::On(disks) => disks.iter().any(is),
            Which::Of(scope) => disk.is_some_and(|disk| scope.covers(disk, handle.nexus())),
            Which::Advancing(_) => false,
        }
    }

    /// The same for a command whose store works for it.
    pub(super) fn fits_execution(&self, handle: Handle, execution: &Execution) -> bool {
        match &self.which {
            Which::Of(scope) => execution.is_covered_by(scope, handle.nexus()),
            Which::Advancing(nexus) => handle.nexus() == *nexus && execution.goes_from_blocks_to_blocks(),
            _ => self.fits(handle, Some(execution.disk())),
        }
    }

    fn fits_starved(&self, handle: Handle, units: &LogicalUnits, task: &Task) -> bool {
        let disk = task.lun.and_then(|lun| units.get(lun));
        self.fits(handle, disk.as_deref())
    }
}

/// A command that waits for the end of those that it aborts.
pub(super) struct AtBarrier {
    pub(super) handle: Option<Handle>,
    pub(super) units: Arc<LogicalUnits>,
    pub(super) execution: Execution,
}

impl Runner {
    /// Ends the selected commands: at once those that wait for something, the others when their store has done what it is
    /// doing. Until the last of them has ended, `barrier` is held.
    pub(crate) fn abort(&mut self, selection: &Selection, barrier: Option<&Arc<AbortBarrier>>, ended: &mut Vec<Ended>) {
        let by = selection.by;
        let is_selected =
            |starved: &Starved<Handle>| selection.fits_starved(starved.handle, &starved.units, &starved.task);
        let starved = self.starvation.extract(is_selected);
        ended.extend(starved.into_iter().map(|starved| Ended::aborted(starved.handle, by)));
        self.between.retain(|between| {
            let is_selected = selection.fits(between.handle, Some(&between.disk));
            ended.extend(is_selected.then(|| Ended::aborted(between.handle, by)));
            !is_selected
        });
        self.held.retain_mut(|held| {
            let selected = held.handle.filter(|handle| selection.fits_execution(*handle, held.waiting.execution()));
            ended.extend(selected.map(|handle| Ended::aborted(handle, by)));
            if selected.is_some() {
                held.handle = None;
            }
            selected.is_none() || held.waiting.execution().outlives_its_task()
        });
        for tag in 0..self.running.len() as u32 {
            let Some(running) = self.running.get_mut(tag as usize).and_then(Option::as_mut) else { continue };
            // What goes on without anybody to answer (SANITIZE) is not ended by task management (SBC-4 4.11.2).
            let handle = running.handle.filter(|handle| selection.fits_execution(*handle, &running.execution));
            let Some(handle) = handle else { continue };
            if running.execution.outlives_its_task() {
                running.handle = None;
                ended.push(Ended::aborted(handle, by));
                continue;
            }
            let aborted = running.aborted.get_or_insert(Aborted { by, barriers: Vec::new() });
            aborted.barriers.extend(barrier.map(Arc::clone));
            if self.withdraw(tag) {
                self.unpark(tag);
                ended.push(Ended::aborted(handle, by));
            }
        }
    }

    /// Ends the commands of a session or connection that is over, as by [`Runner::abort`]. Their initiator does not hear when
    /// they end, so they keep their blocks until then.
    pub(crate) fn leave(&mut self, selection: &Selection, barrier: Option<&Arc<AbortBarrier>>, ended: &mut Vec<Ended>) {
        self.abort(selection, barrier, ended);
        for running in self.running.iter_mut().flatten() {
            if running.handle.is_some_and(|handle| selection.fits_execution(handle, &running.execution)) {
                running.execution.keep_blocks();
            }
        }
    }

    /// Keeps the blocks of the commands of a session whose initiator may be dead, until they have ended, as `by` is its successor.
    /// Those that have not begun are refused, and those that go on from blocks to blocks end: what comes next may be newer already.
    pub(crate) fn keep_blocks(&mut self, nexus: NexusId, by: NexusId, ended: &mut Vec<Ended>) {
        self.refuse_starved(nexus, ended);
        self.abort(&Selection { by, which: Which::Advancing(nexus) }, None, ended);
        let is_own = |handle: Option<Handle>| handle.is_some_and(|handle| handle.nexus() == nexus);
        let running = self.running.iter_mut().flatten().filter(|running| is_own(running.handle));
        running.for_each(|running| running.execution.keep_blocks());
        let held = self.held.iter_mut().filter(|held| is_own(held.handle));
        held.for_each(|held| held.waiting.keep_blocks());
    }

    /// Takes back what a store was to do, if it has not begun.
    fn withdraw(&mut self, tag: u32) -> bool {
        let waiting = |runner: &Runner| runner.backlog.len() + runner.delayed.len() + runner.stalled.len();
        let before = waiting(self);
        self.backlog.retain(|(queued, _)| *queued != u64::from(tag));
        self.delayed.retain(|(_, delayed), _| *delayed != tag);
        self.stalled.retain(|(_, stalled)| *stalled != tag);
        waiting(self) < before
    }

    /// Keeps a command until those that it aborts have ended, in all shards.
    pub(super) fn wait_at_barrier(&mut self, waiting: AtBarrier, scope: AbortScope) {
        let number = self.next_barrier;
        self.next_barrier += 1;
        if let Some(handle) = waiting.handle {
            self.aborts.push((number, Selection { by: handle.nexus(), which: Which::Of(scope) }));
        }
        self.at_barrier.insert(number, waiting);
    }

    /// What commands want ended, each with its number for [`Runner::barrier_passed`].
    pub(crate) fn take_aborts(&mut self) -> Vec<(u64, Selection)> {
        std::mem::take(&mut self.aborts)
    }

    /// All that a command wanted ended has ended: it goes on.
    pub(crate) fn barrier_passed(&mut self, number: u64, engine: &mut FileEngine, now: Instant) -> Option<Ended> {
        let AtBarrier { handle, units, execution } = self.at_barrier.remove(&number)?;
        let progress = units.resume(execution, Ok(Outcome::Done), &self.memory);
        self.go_on(handle, &units, progress, engine, now)
    }
}
