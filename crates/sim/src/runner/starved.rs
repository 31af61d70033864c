//! Commands that wait for memory.

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_scsi::{Reply, Status};

use super::{Handle, Runner};

impl<H: Handle> Runner<H> {
    /// Commands of a session that take memory wait, or go on.
    pub fn withhold(&mut self, nexus: NexusId, is_withheld: bool) {
        self.starvation.withhold(nexus, is_withheld);
    }

    /// Forgets the commands of a session that wait for memory, and gives them: nothing of them has happened.
    pub fn withdraw_starved(&mut self, nexus: NexusId) -> Vec<H> {
        let withdrawn: Vec<H> = self.starvation.withdraw(nexus).into_iter().map(|starved| starved.handle).collect();
        for handle in &withdrawn {
            self.begun.remove(handle);
            self.active.remove(handle);
            self.settling.iter_mut().for_each(|settling| _ = settling.awaited.remove(handle));
        }
        withdrawn
    }

    /// The sessions whose commands wait for memory, each with its share.
    pub fn starving(&self) -> impl Iterator<Item = (NexusId, &Region)> {
        self.starvation.sessions()
    }

    /// When something is due though nothing happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.starvation.poll_timeout()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        for late in self.starvation.tend(now) {
            self.end(late.handle, Some(Reply::bare(Status::TaskSetFull)));
        }
    }
}
