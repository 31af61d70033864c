//! Which nexus has changed a unit last: what a client wants to know that is about to write there too.

use std::sync::atomic::{AtomicU64, Ordering};

use sanwire_core::NexusId;

/// The nexus that has changed a unit last.
#[derive(Default, Debug)]
pub(crate) struct LastWriter(AtomicU64);

impl LastWriter {
    /// This one changes it. While it is the same one, nothing is written that shards share.
    pub(crate) fn note(&self, nexus: NexusId) {
        let number = nexus.0.wrapping_add(1);
        if self.0.load(Ordering::Relaxed) != number {
            self.0.store(number, Ordering::Relaxed);
        }
    }

    /// It, unless it is the one that asks.
    pub(crate) fn other_than(&self, nexus: NexusId) -> Option<NexusId> {
        let number = self.0.load(Ordering::Relaxed);
        (number != 0).then(|| NexusId(number.wrapping_sub(1))).filter(|last| *last != nexus)
    }
}
