//! What time does: busy units are asked again, and what is old is forgotten.

use sanwire_core::{Instant, NexusId};

use super::{IDLE_MAX, Target};
use crate::target::nexus::Nexus;
use crate::target::recent::REMEMBERED_FOR;

impl Target {
    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry()
            && entry.key().0 <= now
        {
            let ((_, number), (id, ask)) = entry.remove_entry();
            self.ask(id, number, ask, now);
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.answer_kept(now);
        }
        if self.forget_at.is_some_and(|at| at <= now) {
            let mut is_left = false;
            for nexus in self.nexuses.values_mut() {
                nexus.recent.forget(now);
                nexus.failures.forget(now);
                is_left |= !nexus.recent.is_empty() || !nexus.failures.is_empty();
            }
            self.forget_at = is_left.then(|| now + REMEMBERED_FOR);
        }
        if self.tend_at.is_some_and(|at| at <= now) {
            let is_over = |nexus: &&Nexus| nexus.is_idle() && nexus.used_at + IDLE_MAX <= now;
            let over: Vec<NexusId> = self.nexuses.values().filter(is_over).map(|nexus| nexus.id).collect();
            over.into_iter().for_each(|id| self.close(id));
            self.tend_at = (!self.nexuses.is_empty()).then(|| now + IDLE_MAX);
        }
    }

    /// When [`Target::handle_timeout`] is next due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let later = self.later.keys().next().map(|(at, _)| *at);
        [later, self.look_at, self.tend_at, self.forget_at].into_iter().flatten().min()
    }
}
