//! Commands whose data goes in pieces: between two of them a command is known here, so that aborts find it.

use std::sync::Arc;

use sanwire_core::Instant;
use sanwire_device::{Continuation, LogicalUnits, Seat};
use sanwire_scsi::Task;

use crate::engine::{Command, Engine, Handle, task_aborted};

/// A command of which a piece is done, and the next one not asked for.
pub(crate) struct Between<H> {
    pub(crate) command: Command<H>,
    pub(crate) units: Arc<LogicalUnits>,
    pub(crate) continuation: Continuation,
}

impl<H> Between<H> {
    /// Whether a command can go on where it has begun: another volume may have taken the number of its own.
    fn is_still_there(&self, task: &Task) -> bool {
        task.lun.and_then(|lun| self.units.get(lun)).is_some_and(|found| found.id() == self.continuation.unit())
    }
}

impl<H: Handle> Engine<H> {
    /// Goes on with a command whose next piece may be done, if it was not aborted meanwhile.
    pub fn go_on_with_piece(&mut self, handle: H, seat: Seat<'_>, task: Task, now: Instant) {
        let Some(at) = self.between.iter().position(|between| between.command.handle == handle) else { return };
        let mut between = self.between.swap_remove(at);
        between.command.meter.add(&task);
        if !between.is_still_there(&task) {
            return self.end(Some(between.command), task_aborted());
        }
        let Between { command, units, continuation } = between;
        self.start(command, Seat { units: &units, ..seat }, continuation.with_piece(task), now);
    }
}
