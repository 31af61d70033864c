//! Commands whose data goes in pieces: between two of them a command is known here, so that whoever aborts it finds it.

use std::sync::Arc;

use sanwire_core::Instant;
use sanwire_device::{Disk, LogicalUnits, Seat};
use sanwire_io::file::FileEngine;
use sanwire_scsi::Task;

use super::{CommandHandle, Ended, Handle, Runner, task_aborted};

/// A command of which a piece is done, and the next one not asked for.
pub(super) struct Between {
    pub(super) handle: Handle,
    pub(super) units: Arc<LogicalUnits>,
    /// Where it has begun.
    pub(super) disk: Arc<Disk>,
}

impl Between {
    /// Whether a command can go on where it has begun: another volume may have taken the number of its own.
    fn is_still_there(&self, task: &Task) -> bool {
        task.lun.and_then(|lun| self.units.get(lun)).is_some_and(|found| Arc::ptr_eq(&found, &self.disk))
    }
}

impl Runner {
    /// Goes on with a command whose next piece may be done, if nobody has ended it meanwhile.
    pub(crate) fn go_on_with_piece(
        &mut self,
        command: CommandHandle,
        seat: Seat<'_>,
        task: Task,
        engine: &mut FileEngine,
        now: Instant,
    ) -> Option<Ended> {
        let at = self.between.iter().position(|between| between.handle.command == command)?;
        let mut between = self.between.swap_remove(at);
        between.handle.meter.add(&task);
        let (handle, is_still_there) = (between.handle, between.is_still_there(&task));
        if !is_still_there {
            return Some(Ended { handle, reply: Some(task_aborted()) });
        }
        self.begin(handle, Seat { units: &between.units, ..seat }, task, engine, now)
    }
}
