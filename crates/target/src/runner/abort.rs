//! PREEMPT AND ABORT: ends the commands of others, then its own.

use std::collections::BTreeSet;

use sanwire_core::Instant;
use sanwire_device::{AbortScope, Execution};
use sanwire_hyperscsi::CommandHandle;
use sanwire_io::file::FileEngine;
use sanwire_scsi::{Reply, Status};
use sanwire_store::Outcome;

use super::{Answered, Runner};

/// A command that waits for the end of those that it aborts.
pub(super) struct Settling {
    handle: Option<CommandHandle>,
    execution: Execution,
    /// The commands that the engine is working for.
    waits_for: BTreeSet<u32>,
}

impl Runner {
    /// Ends the commands of this shard that the scope covers; when the last has ended, so does the command that wanted it.
    ///
    /// What the scope covers in other shards has to be settled there: each shard does what stands here up to its last
    /// command, and the one that has the execution resumes it when all have said so.
    pub(super) fn abort(
        &mut self,
        (handle, execution): (Option<CommandHandle>, Execution),
        scope: &AbortScope,
        engine: &mut FileEngine,
        now: Instant,
    ) {
        self.abort_starved(scope);
        self.abort_waiting(scope);
        let waits_for = self.abort_running(scope);
        self.settling.push(Settling { handle, execution, waits_for });
        self.finish_settled(engine, now);
    }

    /// The answers to commands that were not ended by their own progress.
    pub(crate) fn take_ended(&mut self, answered: &mut Vec<Answered>) {
        answered.append(&mut self.ended);
    }

    fn abort_starved(&mut self, scope: &AbortScope) {
        for (handle, task) in std::mem::take(&mut self.starved) {
            let disk = task.lun.and_then(|lun| self.units.get(lun));
            if disk.is_some_and(|disk| scope.covers(&disk, handle.nexus())) {
                self.ended.push((handle, task_aborted()));
            } else {
                self.starved.push_back((handle, task));
            }
        }
    }

    fn abort_waiting(&mut self, scope: &AbortScope) {
        for (handle, waiting) in std::mem::take(&mut self.waiting) {
            match handle {
                Some(handle) if scope.covers(waiting.disk(), handle.nexus()) => {
                    self.ended.push((handle, task_aborted()))
                }
                _ => self.waiting.push_back((handle, waiting)),
            }
        }
    }

    /// Ends what the engine has not begun, and marks the rest: those are given back.
    fn abort_running(&mut self, scope: &AbortScope) -> BTreeSet<u32> {
        let mut waits_for = BTreeSet::new();
        for tag in 0..self.running.len() as u32 {
            let slot = tag as usize;
            let Some(running) = &mut self.running[slot] else { continue };
            // What has been answered already is no command any more.
            let Some(handle) = running.handle else { continue };
            if !scope.covers(running.execution.disk(), handle.nexus()) {
                continue;
            }
            let is_delayed = self.delayed.get_mut(slot).and_then(Option::take).is_some();
            let queued = self.backlog.len();
            self.backlog.retain(|(waiting, _)| *waiting != u64::from(tag));
            if is_delayed || self.backlog.len() < queued {
                // The tag will be another command's.
                self.due.retain(|due| due.0.1 != tag);
                self.ended.push((handle, task_aborted()));
                self.running[slot] = None;
                self.free.push(tag);
            } else {
                running.is_aborted = true;
                waits_for.insert(tag);
            }
        }
        waits_for
    }

    /// The engine has done what an aborted command had asked.
    pub(super) fn aborted(&mut self, handle: Option<CommandHandle>, tag: u32, engine: &mut FileEngine, now: Instant) {
        self.ended.extend(handle.map(|handle| (handle, task_aborted())));
        for settling in &mut self.settling {
            settling.waits_for.remove(&tag);
        }
        self.finish_settled(engine, now);
    }

    fn finish_settled(&mut self, engine: &mut FileEngine, now: Instant) {
        for settled in self.settling.extract_if(.., |settling| settling.waits_for.is_empty()).collect::<Vec<_>>() {
            let progress = self.units.resume(settled.execution, Ok(Outcome::Done), &self.memory);
            let answered = self.go_on(settled.handle, progress, engine, now);
            self.ended.extend(answered);
        }
    }
}

fn task_aborted() -> Reply {
    Reply::bare(Status::TaskAborted)
}
