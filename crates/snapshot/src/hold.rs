//! Holding the writes of a volume, and giving them back when that has taken too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::SnapshotError;
use crate::store::SnapshotStore;

/// Writes may be given back at any time.
const HELD: u8 = 0;
/// A change of the catalogue is being written, after which they go elsewhere.
const DECIDED: u8 = 1;
const OVER: u8 = 2;

/// The writes of a volume are held until this is dropped, or its [`Release`] is used.
#[derive(Debug)]
#[must_use = "writes are held only as long as it is there"]
pub struct Hold(Release);

/// Ends a hold from elsewhere.
#[derive(Clone, Debug)]
pub struct Release {
    store: SnapshotStore,
    phase: Arc<AtomicU8>,
}

impl Hold {
    /// `None`: somebody else holds them.
    pub(crate) fn new(store: SnapshotStore) -> Option<Hold> {
        store.0.gate.hold().then(|| Hold(Release { store, phase: Arc::default() }))
    }

    /// What ends it from elsewhere.
    #[must_use]
    pub fn release(&self) -> Release {
        self.0.clone()
    }

    /// Whether those that had begun have ended.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.0.store.0.gate.is_quiet()
    }

    /// Waits until they have.
    pub fn wait(&self) {
        self.0.store.0.gate.wait_until_quiet(|| self.0.is_over());
    }

    /// The store of this volume, if it is its writes that are held.
    pub(crate) fn of(&self, store: &SnapshotStore) -> Result<&SnapshotStore, SnapshotError> {
        if self.0.store.is(store) { Ok(&self.0.store) } else { Err(SnapshotError::Busy) }
    }

    /// They are given back only when it is dropped, from now on.
    pub(crate) fn decide(&self) -> Result<(), SnapshotError> {
        match self.0.phase.compare_exchange(HELD, DECIDED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(DECIDED) => Ok(()),
            Err(_) => Err(SnapshotError::Late),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.0.phase.swap(OVER, Ordering::AcqRel) != OVER {
            self.0.store.0.gate.release();
        }
    }
}

impl Release {
    /// Writes go on at once, and what they were held for does not come about; unless it is being decided already.
    pub fn give_back(&self) {
        if self.phase.compare_exchange(HELD, OVER, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.store.0.gate.release();
        }
    }

    fn is_over(&self) -> bool {
        self.phase.load(Ordering::Acquire) == OVER
    }
}
