//! Commands of nexuses that an administrator has paused: nothing of them happens until the nexus goes on. What has begun ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_device::{LogicalUnits, Seat};
use sanwire_scsi::{Reply, Status, Task};

use crate::abort::Selection;
use crate::engine::{Command, Ended, Engine, Handle};

/// A command that waits until its nexus goes on.
struct Waiting<H> {
    command: Command<H>,
    units: Arc<LogicalUnits>,
    memory: Region,
    weight: u32,
    task: Task,
}

/// The nexuses that are paused, with their commands in the order of coming: as many as a session may have under way.
pub(crate) struct Paused<H>(BTreeMap<NexusId, VecDeque<Waiting<H>>>);

impl<H> Default for Paused<H> {
    fn default() -> Self {
        Paused(BTreeMap::new())
    }
}

impl<H: Handle> Paused<H> {
    /// Keeps a command if its nexus is paused; gives it back if not.
    pub(crate) fn keep(&mut self, command: Command<H>, seat: Seat<'_>, task: Task) -> Option<Task> {
        let Some(waiting) = self.0.get_mut(&command.handle.nexus()) else { return Some(task) };
        let (units, memory, weight) = (Arc::clone(seat.units), seat.memory.clone(), seat.weight);
        waiting.push_back(Waiting { command, units, memory, weight, task });
        None
    }

    /// All of them.
    pub(crate) fn commands(&self) -> impl Iterator<Item = &Command<H>> {
        self.0.values().flatten().map(|waiting| &waiting.command)
    }

    /// Takes out the commands that are selected.
    pub(crate) fn extract(&mut self, selection: &Selection<H>) -> Vec<Command<H>> {
        let mut extracted = Vec::new();
        for waiting in self.0.values_mut() {
            waiting.retain(|waiting| {
                let is_selected = selection.fits_waiting(waiting.command.handle, &waiting.units, &waiting.task);
                extracted.extend(is_selected.then_some(waiting.command));
                !is_selected
            });
        }
        extracted
    }

    /// Takes out the commands of a nexus, which stays paused.
    pub(crate) fn take(&mut self, nexus: NexusId) -> impl Iterator<Item = Command<H>> {
        let waiting = self.0.get_mut(&nexus).map(std::mem::take).unwrap_or_default();
        waiting.into_iter().map(|waiting| waiting.command)
    }
}

impl<H: Handle> Engine<H> {
    /// Begins no command of a nexus from now on, or goes on with those that have come meanwhile. They can be aborted.
    pub fn pause(&mut self, nexus: NexusId, is_paused: bool, now: Instant) {
        if is_paused {
            self.paused.0.entry(nexus).or_default();
            return;
        }
        for Waiting { mut command, units, memory, weight, task } in self.paused.0.remove(&nexus).into_iter().flatten() {
            // Neither the volume nor its store was slow.
            command.meter.begun_at = now;
            self.start(command, Seat { units: &units, memory: &memory, weight }, task, now);
        }
    }

    /// What a nexus has given and what has not begun is for these units from now on: what it may do is asked of them.
    pub fn turn_to(&mut self, nexus: NexusId, units: &Arc<LogicalUnits>) {
        let paused = self.paused.0.get_mut(&nexus).into_iter().flatten();
        paused.for_each(|waiting| waiting.units = Arc::clone(units));
        let between = self.between.iter_mut().filter(|between| between.command.handle.nexus() == nexus);
        between.for_each(|between| between.units = Arc::clone(units));
        self.starvation.turn_to(nexus, units);
    }

    /// Refuses the commands of a nexus that wait so: they may be given again.
    pub(crate) fn refuse_paused(&mut self, nexus: NexusId) {
        self.ended
            .extend(self.paused.take(nexus).map(|command| Ended::with(command, Reply::bare(Status::TaskSetFull))));
    }
}
