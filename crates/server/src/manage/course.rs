//! How far a copy is: told by the one who copies, read by those who ask, and stopped by them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sanwire_core::{Principal, Protection};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A copy that nobody has asked about for so long ends: who ordered it is gone. Who orders it may say less, and not much less: who waits for
/// a job asks more often than that.
pub(super) const UNASKED_MAX: Duration = Duration::from_secs(120);
pub(super) const UNASKED_MIN: Duration = Duration::from_secs(10);

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

/// What was ordered.
#[derive(Debug)]
pub(super) struct Ordered {
    pub(super) volume: String,
    pub(super) to: Vec<String>,
    /// How its packets are protected at least: as those of the volume were when it was ordered.
    pub(super) protection: Protection,
    /// Who has ordered it, and only owns the volume.
    pub(super) owner: Option<Principal>,
    /// It ends when nobody has asked about it for so long.
    pub(super) unasked_max: Duration,
}

/// A copy that goes on.
#[derive(Debug)]
pub(in crate::manage) struct Course {
    ordered: Ordered,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    progress: CopyProgress,
    is_cancelled: bool,
    /// Why it may not go on.
    forbidden: Option<String>,
    asked_at: Instant,
}

/// Why a copy is to end before it is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    Cancelled,
    Unasked(Duration),
    Forbidden(String),
}

impl Course {
    pub(super) fn new(total_bytes: u64, ordered: Ordered) -> Self {
        let progress = CopyProgress { total_bytes, ..CopyProgress::default() };
        let state = State { progress, is_cancelled: false, forbidden: None, asked_at: Instant::now() };
        Course { ordered, state: Mutex::new(state) }
    }

    /// What was ordered.
    pub(super) fn ordered(&self) -> &Ordered {
        &self.ordered
    }

    /// Somebody asks for it, who wants it to go on.
    pub(in crate::manage) fn note_asked(&self) {
        self.lock().asked_at = Instant::now();
    }

    /// As if nobody had asked for it for so long.
    #[cfg(test)]
    pub(super) fn age(&self, by: Duration) {
        self.lock().asked_at -= by;
    }

    /// How it is.
    pub(in crate::manage) fn look(&self) -> CopyProgress {
        self.lock().progress.clone()
    }

    /// Has it end soon.
    pub(in crate::manage) fn cancel(&self) {
        self.lock().is_cancelled = true;
    }

    /// Has it end soon, for what has changed since it began.
    pub(super) fn forbid(&self, reason: String) {
        self.lock().forbidden = Some(reason);
    }

    /// Whether it is to end.
    pub(super) fn ending(&self) -> Option<Ending> {
        let (state, unasked_max) = (self.lock(), self.ordered.unasked_max);
        match &state.forbidden {
            _ if state.is_cancelled => Some(Ending::Cancelled),
            Some(reason) => Some(Ending::Forbidden(reason.clone())),
            None => (state.asked_at.elapsed() > unasked_max).then_some(Ending::Unasked(unasked_max)),
        }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut CopyProgress)) {
        change(&mut self.lock().progress);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole between any two changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
