//! Commands that begin, and those that wait for memory or for their time.

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_device::{Seat, Starved, Submission};
use sanwire_scsi::{Reply, Status, Task};

use crate::engine::{Command, Ended, Engine, Handle};
use crate::meter::Meter;

impl<H: Handle> Engine<H> {
    /// Whether commands wait for memory.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        !self.starvation.is_empty()
    }

    /// The sessions whose commands do, each with its share.
    pub fn starving(&self) -> impl Iterator<Item = (NexusId, &Region)> {
        self.starvation.sessions()
    }

    /// Begins a command.
    pub fn begin(&mut self, handle: H, meter: Meter, seat: Seat<'_>, task: Task, now: Instant) {
        let command = Command { handle, meter };
        if let Some(task) = self.paused.keep(command, seat, task) {
            self.start(command, seat, task, now);
        }
    }

    pub(crate) fn start(
        &mut self,
        command: Command<H>,
        seat: Seat<'_>,
        submission: impl Into<Submission>,
        now: Instant,
    ) {
        let nexus = command.handle.nexus();
        if let Some((command, progress)) = self.starvation.begin(nexus, command, seat, submission, now) {
            self.go_on(Some(command), seat.units, progress, now);
        } else {
            // Memory may have been released before the region knew that a command waits: the next turn looks.
            self.completions.wake();
        }
    }

    /// Begins what has waited, as far as memory has been given back.
    pub(crate) fn feed_starved(&mut self, now: Instant) {
        let mut begun = Vec::new();
        self.starvation.serve(now, |command, units, progress| begun.push((command, units.clone(), progress)));
        for (command, units, progress) in begun {
            self.go_on(Some(command), &units, progress, now);
        }
    }

    /// Begins what programs have deferred until now.
    pub(crate) fn resume_deferred(&mut self, now: Instant) {
        let mut begun = Vec::new();
        self.starvation.resume_deferred(now, |command, units, progress| begun.push((command, units.clone(), progress)));
        for (command, units, progress) in begun {
            self.go_on(Some(command), &units, progress, now);
        }
    }

    /// Tries the commands that wait for memory in the next turn, even if none is released: their units may have been removed.
    pub fn try_starved_again(&mut self) {
        self.starvation.try_again();
    }

    /// Refuses what has kept memory for too long while it waited for more.
    pub(crate) fn tend_starved(&mut self, now: Instant) {
        self.ended.extend(self.starvation.tend(now).into_iter().map(not_executed));
    }

    /// Refuses what a session has not begun for want of memory.
    pub(crate) fn refuse_starved(&mut self, nexus: NexusId) {
        self.ended.extend(self.starvation.withdraw(nexus).into_iter().map(not_executed));
    }

    /// Lets a session's commands wait that need memory, or go on.
    pub fn withhold(&mut self, nexus: NexusId, is_withheld: bool) {
        self.starvation.withhold(nexus, is_withheld);
    }

    /// Forgets the commands of a session that have not begun, and gives them.
    pub fn withdraw_starved(&mut self, nexus: NexusId) -> Vec<H> {
        let starved = self.starvation.withdraw(nexus).into_iter().map(|starved| starved.handle);
        starved.chain(self.paused.take(nexus)).map(|command| command.handle).collect()
    }
}

/// The end of a command that may be given again.
fn not_executed<H: Handle>(starved: Starved<Command<H>>) -> Ended<H> {
    // That a command is not executed can be said only as long as no piece of it is.
    let status = if starved.task().is_further_piece() { Status::TaskAborted } else { Status::TaskSetFull };
    Ended::with(starved.handle, Reply::bare(status))
}
