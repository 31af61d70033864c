//! How far a copy is: told by the one who copies, read by those who ask, and stopped by them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A copy that nobody has asked about for so long ends: who ordered it is gone. Who waits for a job asks more often than that.
const UNASKED_MAX: Duration = Duration::from_secs(120);

/// How far a copy to another server is.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
pub struct CopyProgress {
    /// The length of the volume.
    pub total_bytes: u64,
    /// How much of it is copied.
    pub done_bytes: u64,
    /// From its start, how much is on stable storage there: an interrupted copy goes on here.
    pub stable_bytes: u64,
    /// What was copied with data.
    pub data_bytes: u64,
    /// What had no space behind it, and was not sent.
    pub zero_bytes: u64,
    /// What was there already from an interrupted copy, as far as that was compared.
    pub resumed_bytes: u64,
    /// What was compared after the copy.
    pub verified_bytes: u64,
    /// The URL by which the other volume is reached, once it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub way: Option<String>,
}

/// A copy that goes on.
#[derive(Debug)]
pub(in crate::manage) struct Course(Mutex<State>);

#[derive(Debug)]
struct State {
    progress: CopyProgress,
    is_cancelled: bool,
    asked_at: Instant,
}

/// Why a copy is to end before it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    Cancelled,
    Unasked,
}

impl Course {
    pub(super) fn new(total_bytes: u64) -> Self {
        let progress = CopyProgress { total_bytes, ..CopyProgress::default() };
        Course(Mutex::new(State { progress, is_cancelled: false, asked_at: Instant::now() }))
    }

    /// Somebody asks for it, who wants it to go on.
    pub(in crate::manage) fn note_asked(&self) {
        self.lock().asked_at = Instant::now();
    }

    /// How it is.
    pub(in crate::manage) fn look(&self) -> CopyProgress {
        self.lock().progress.clone()
    }

    /// Has it end soon.
    pub(in crate::manage) fn cancel(&self) {
        self.lock().is_cancelled = true;
    }

    /// Whether it is to end.
    pub(super) fn ending(&self) -> Option<Ending> {
        let state = self.lock();
        match () {
            () if state.is_cancelled => Some(Ending::Cancelled),
            () if state.asked_at.elapsed() > UNASKED_MAX => Some(Ending::Unasked),
            () => None,
        }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut CopyProgress)) {
        change(&mut self.lock().progress);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole between any two changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
