//! What is between two adapters.

use sanwire_core::Instant;

use crate::rdma::Cable;

/// What is between two adapters, and how both ends part.
#[derive(Debug)]
pub struct Line {
    pub(super) cable: Cable,
    /// When something happens next, if there is anything.
    pub(super) turns_at: Instant,
    /// The server ends it when all is sent.
    pub(super) is_closing: bool,
    /// The client waits for that.
    pub(super) is_parting: bool,
}

impl Line {
    /// When something is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let is_ready = self.cable.is_ready(0) || self.cable.is_ready(1);
        (is_ready || self.is_closing || self.cable.has_work()).then_some(self.turns_at)
    }
}
