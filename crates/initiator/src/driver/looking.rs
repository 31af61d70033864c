//! What other threads want to know of a connection, or have it do.

use std::sync::Arc;

use sanwire_core::{Instant, Movement};

use super::{ConnectionState, Driver};
use crate::looker::{ConnectionLook, Looker};
use crate::pauser::Pauser;

impl Driver {
    /// Lets other threads pause the server.
    pub(crate) fn pauser(&self) -> Pauser {
        Pauser::new(Arc::clone(&self.pauses), self.waker.clone())
    }

    /// Does what other threads ask for.
    pub(super) fn tend_desks(&mut self, now: Instant) {
        self.looks.serve(|| ConnectionLook {
            links: self.session.links().0,
            away_for: self.lost_at.map(|lost_at| lost_at.elapsed()),
            is_failing: matches!(self.link, ConnectionState::Down(_)),
        });
        if let Some(is_paused) = self.pauses.take() {
            self.session.pause(is_paused, now);
            self.unheard = Some(is_paused);
        }
        if let Some(is_paused) = self.unheard.take_if(|_| self.session.is_pause_heard()) {
            self.pauses.tell(is_paused);
        }
    }

    /// How the data of answers came to its place.
    pub(crate) fn movement(&self) -> Option<Movement> {
        self.session.movement()
    }

    /// The RDMA adapter that carries it.
    pub(crate) fn adapter(&self) -> Option<String> {
        self.session.adapter()
    }

    /// Lets other threads see how the connection is.
    pub(crate) fn looker(&self) -> Looker {
        Looker::new(Arc::clone(&self.looks), self.waker.clone())
    }
}
