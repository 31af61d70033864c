//! When a derived unit ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Its owner gives none.
const NEVER: u64 = u64::MAX;

/// The end of a derived unit: its own, and those of what it is derived from. Each may be moved while the unit is used, and counts from then on
/// for all that is derived from it, too.
#[derive(Debug)]
pub(crate) struct End {
    own_unix_ms: AtomicU64,
    of_parent: Option<Arc<End>>,
}

impl End {
    pub(crate) fn new(own_unix_ms: Option<u64>, of_parent: Option<Arc<End>>) -> Self {
        End { own_unix_ms: AtomicU64::new(own_unix_ms.unwrap_or(NEVER)), of_parent }
    }

    /// The first of all, in milliseconds after the beginning of 1970.
    pub(crate) fn unix_ms(&self) -> Option<u64> {
        let all = std::iter::successors(Some(self), |end| end.of_parent.as_deref());
        let first = all.map(|end| end.own_unix_ms.load(Ordering::Relaxed)).min();
        first.filter(|first| *first != NEVER)
    }

    pub(crate) fn set(&self, own_unix_ms: Option<u64>) {
        self.own_unix_ms.store(own_unix_ms.unwrap_or(NEVER), Ordering::Relaxed);
    }
}
