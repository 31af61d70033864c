//! Which changes of what initiators have set are kept, by somebody else.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Changes by their numbers. They are made under a lock of who has the record.
#[derive(Default)]
pub(crate) struct Record {
    last: AtomicU64,
    /// Up to which they are kept.
    kept: AtomicU64,
    /// Tells who keeps them.
    ring: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Record {
    /// What was changed before is what was kept.
    pub(crate) fn keep_with(&self, ring: Box<dyn Fn() + Send + Sync>) {
        self.kept(self.last());
        // One keeps them, and never another.
        let _ = self.ring.set(ring);
    }

    pub(crate) fn changed(&self) {
        self.last.fetch_add(1, Ordering::AcqRel);
        if let Some(ring) = self.ring.get() {
            ring();
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    pub(crate) fn kept(&self, change: u64) {
        self.kept.fetch_max(change, Ordering::AcqRel);
    }

    pub(crate) fn is_kept(&self, change: u64) -> bool {
        self.ring.get().is_none() || change <= self.kept.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("last", &self.last).field("kept", &self.kept).finish_non_exhaustive()
    }
}
