//! Commands that wait for a store which cannot do its work now: how many there are of a disk.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sanwire_store::Patience;

/// The commands of one disk that wait for its store, wherever they do so.
#[derive(Debug)]
pub struct Stalls {
    volume: String,
    patience: Patience,
    waiting: AtomicU32,
    /// Those that have failed since the first of them began to wait.
    failed: AtomicU32,
    is_over: AtomicBool,
}

impl Stalls {
    pub(crate) fn new(volume: &str, patience: Patience) -> Self {
        let (waiting, failed, is_over) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
        Stalls { volume: volume.to_owned(), patience, waiting, failed, is_over }
    }

    /// The name of the volume.
    #[must_use]
    pub fn volume(&self) -> &str {
        &self.volume
    }

    /// How long a command waits.
    #[must_use]
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// The disk is served no longer: nothing more is waited for.
    pub fn give_up(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether nothing is waited for any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// How many wait now.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// One more waits; true for the first.
    pub fn begin(&self) -> bool {
        self.waiting.fetch_add(1, Ordering::AcqRel) == 0
    }

    /// One has waited in vain, or found no room to wait, and is about to end.
    pub fn fail(&self) {
        self.failed.fetch_add(1, Ordering::AcqRel);
    }

    /// One waits no longer; of the last one: how many have failed meanwhile.
    pub fn end(&self) -> Option<u32> {
        let is_last = self.waiting.fetch_sub(1, Ordering::AcqRel) == 1;
        is_last.then(|| self.failed.swap(0, Ordering::AcqRel))
    }
}
