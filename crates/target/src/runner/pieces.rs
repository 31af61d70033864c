//! Commands whose data goes in pieces: between two of them a command is known here, so that whoever aborts it finds it.

use std::sync::Arc;

use sanwire_core::Instant;
use sanwire_device::{Disk, LogicalUnits};
use sanwire_io::file::FileEngine;
use sanwire_scsi::Task;

use super::{CommandHandle, Ended, Handle, Runner, Starved, task_aborted};

/// A command of which a piece is done, and the next one not asked for.
pub(super) struct Between {
    pub(super) handle: Handle,
    pub(super) units: Arc<LogicalUnits>,
    /// Where it has begun.
    pub(super) disk: Arc<Disk>,
}

impl Starved {
    /// Whether a command goes on where it has begun: another volume may have taken the number of its own.
    pub(super) fn is_still_there(&self) -> bool {
        let Some(disk) = &self.disk else { return true };
        self.task.lun.and_then(|lun| self.units.get(lun)).is_some_and(|found| Arc::ptr_eq(&found, disk))
    }
}

impl Runner {
    /// Goes on with a command whose next piece may be done, if nobody has ended it meanwhile.
    pub(crate) fn go_on_with_piece(
        &mut self,
        command: CommandHandle,
        task: Task,
        engine: &mut FileEngine,
        now: Instant,
    ) -> Option<Ended> {
        let at = self.between.iter().position(|between| between.handle.command == command)?;
        let Between { mut handle, units, disk } = self.between.swap_remove(at);
        handle.meter.add(&task);
        let next = Starved { handle, units, task, disk: Some(disk) };
        if !next.is_still_there() {
            return Some(Ended { handle, reply: Some(task_aborted()) });
        }
        if !self.starved.is_empty() {
            self.starved.push_back(next);
            return None;
        }
        let progress = next.units.begin(handle.nexus(), next.task, &self.memory);
        self.go_on(Some(handle), &next.units, progress, engine, now)
    }
}
