//! Commands that wait for memory.

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_device::{Seat, Starved};
use sanwire_io::file::FileEngine;
use sanwire_scsi::{Reply, Status, Task};

use super::{CommandHandle, Ended, Handle, Runner};

impl Runner {
    /// Whether commands wait for memory.
    pub(crate) fn is_starved(&self) -> bool {
        !self.starvation.is_empty()
    }

    /// The sessions whose commands do, each with its share.
    pub(crate) fn starving(&self) -> impl Iterator<Item = (NexusId, &Region)> {
        self.starvation.sessions()
    }

    /// Begins a command.
    pub(crate) fn begin(
        &mut self,
        handle: Handle,
        seat: Seat<'_>,
        task: Task,
        engine: &mut FileEngine,
        now: Instant,
    ) -> Option<Ended> {
        let (handle, progress) = self.starvation.begin(handle.nexus(), handle, seat, task, now)?;
        self.go_on(Some(handle), seat.units, progress, engine, now)
    }

    /// Begins what has waited, as far as memory has been given back.
    pub(super) fn feed_starved(&mut self, engine: &mut FileEngine, now: Instant, ended: &mut Vec<Ended>) {
        let mut begun = Vec::new();
        self.starvation.serve(now, |handle, units, progress| begun.push((handle, units.clone(), progress)));
        for (handle, units, progress) in begun {
            ended.extend(self.go_on(Some(handle), &units, progress, engine, now));
        }
    }

    /// Refuses what has kept memory for too long while it waited for more.
    pub(super) fn tend_starved(&mut self, now: Instant, ended: &mut Vec<Ended>) {
        ended.extend(self.starvation.tend(now).into_iter().map(not_executed));
    }

    /// Refuses what a session has not begun for want of memory.
    pub(super) fn refuse_starved(&mut self, nexus: NexusId, ended: &mut Vec<Ended>) {
        ended.extend(self.starvation.withdraw(nexus).into_iter().map(not_executed));
    }

    /// Lets a session's commands wait that need memory, or go on.
    pub(crate) fn withhold(&mut self, nexus: NexusId, is_withheld: bool) {
        self.starvation.withhold(nexus, is_withheld);
    }

    /// Forgets the commands of a session that have not begun, and gives them.
    pub(crate) fn withdraw_starved(&mut self, nexus: NexusId) -> Vec<CommandHandle> {
        self.starvation.withdraw(nexus).into_iter().map(|starved| starved.handle.command).collect()
    }
}

/// The end of a command that may be given again.
fn not_executed(starved: Starved<Handle>) -> Ended {
    // That a command is not executed can be said only as long as no piece of it is.
    let status = if starved.task.is_further_piece() { Status::TaskAborted } else { Status::TaskSetFull };
    Ended { handle: starved.handle, reply: Some(Reply::bare(status)) }
}
