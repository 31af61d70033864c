//! What is between two adapters.

use sanwire_core::Instant;

use crate::rdma::Cable;

/// What is between two adapters, and how both ends part.
#[derive(Debug)]
pub struct Line {
    pub(super) cable: Cable,
    /// When something happens next, if there is anything.
    pub(super) turns_at: Instant,
    /// The client's adapter has something to tell, which the client does not ask for before this moment.
    pub(super) unread_until: Option<Instant>,
    /// The server ends it when all is sent.
    pub(super) is_closing: bool,
    /// The client waits for that.
    pub(super) is_parting: bool,
}

impl Line {
    /// When something is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let is_asked = self.cable.is_ready(0) && self.unread_until.is_none();
        let is_due = is_asked || self.cable.is_ready(1) || self.is_closing || self.cable.has_work();
        let unread_until = self.unread_until.map(|until| until.max(self.turns_at));
        is_due.then_some(self.turns_at).into_iter().chain(unread_until).min()
    }
}
