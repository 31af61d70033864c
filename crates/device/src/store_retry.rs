//! Commands that wait for a store which cannot do its work now: how many there are of a disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sanwire_core::Instant;
use sanwire_core::quota::{LOGGED_STALLS, Pace, Usage};
use sanwire_store::Patience;

/// The commands of one disk that wait for its store, wherever they do so.
#[derive(Debug)]
pub struct StoreRetry {
    volume: String,
    patience: Patience,
    is_over: AtomicBool,
    state: Mutex<RetryState>,
}

#[derive(Debug)]
struct RetryState {
    waiting: u32,
    /// For how long some have waited in all, up to when that was last seen.
    stalled: Duration,
    seen_at: Instant,
    /// Those that have failed since the first of them began to wait.
    failed: u32,
    /// StoreRetry that may be told of.
    pace: Pace,
    /// Whether this one was.
    is_told: bool,
    /// Those before it that were not, since the last that was.
    untold: u64,
    /// All that were not.
    refused: u64,
}

impl StoreRetry {
    pub(crate) fn new(volume: &str, patience: Patience) -> Self {
        let pace = Pace::new(&LOGGED_STALLS);
        let state = RetryState {
            waiting: 0,
            stalled: Duration::ZERO,
            seen_at: Instant::ZERO,
            failed: 0,
            pace,
            is_told: false,
            untold: 0,
            refused: 0,
        };
        StoreRetry { volume: volume.to_owned(), patience, is_over: AtomicBool::new(false), state: Mutex::new(state) }
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
        self.lock().waiting
    }

    /// One more waits.
    pub fn begin(&self, now: Instant) {
        let mut state = self.lock();
        if state.waiting == 0 {
            state.seen_at = now;
        }
        state.waiting += 1;
    }

    /// The store was asked again by one that waits: some have waited until now.
    pub fn seen(&self, now: Instant) {
        let mut state = self.lock();
        if state.waiting > 0 {
            let since = now.saturating_since(state.seen_at);
            state.stalled += since;
            state.seen_at += since;
        }
    }

    /// For how long commands have waited so far, one or several at a time, up to when the store was last asked again.
    #[must_use]
    pub fn stalled(&self) -> Duration {
        self.lock().stalled
    }

    /// Whether it is to be told now that commands wait: once until none does, and not often where a store comes and goes. To be asked
    /// as long as they wait: a stall that lasts is told of in any case. Gives how often it was so before, and was not told.
    pub fn tidings(&self, now: Instant) -> Option<u64> {
        let mut state = self.lock();
        let is_new = state.waiting > 0 && !state.is_told && state.pace.take(now);
        is_new.then(|| {
            state.is_told = true;
            std::mem::take(&mut state.untold)
        })
    }

    /// One has waited in vain, or found no room to wait, and is about to end.
    pub fn fail(&self) {
        self.lock().failed += 1;
    }

    /// One waits no longer; of the last one, if it was told that some wait: how many have failed meanwhile.
    pub fn end(&self) -> Option<u32> {
        let mut state = self.lock();
        state.waiting = state.waiting.saturating_sub(1);
        if state.waiting > 0 {
            return None;
        }
        let (failed, was_told) = (std::mem::take(&mut state.failed), std::mem::take(&mut state.is_told));
        if !was_told {
            state.untold += 1;
            state.refused += 1;
        }
        was_told.then_some(failed)
    }

    /// How the quota of lines about it is used.
    pub(crate) fn usage(&self) -> Usage {
        Usage::refused(&LOGGED_STALLS, self.lock().refused)
    }

    fn lock(&self) -> MutexGuard<'_, RetryState> {
        // Nothing panics while it is changed: a poisoned one is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stalls() -> StoreRetry {
        StoreRetry::new("disk", Patience::default())
    }

    #[test]
    fn a_store_that_comes_and_goes_fills_no_log() {
        let (stalls, mut now, mut told, mut untold) = (stalls(), Instant::ZERO, 0, 0);
        for _ in 0..3600 {
            now += Duration::from_secs(1);
            stalls.begin(now);
            if let Some(more) = stalls.tidings(now) {
                (told, untold) = (told + 1, untold + more);
                assert_eq!(stalls.tidings(now), None, "once for each stall");
                assert_eq!(stalls.end(), Some(0));
            } else {
                assert_eq!(stalls.end(), None, "no end without a beginning");
            }
        }
        assert!((350..=370).contains(&told), "{told} in an hour");
        assert!((3600 - told - 10..=3600 - told).contains(&untold), "{untold} are counted");
        assert!(stalls.usage().refused >= untold);
    }

    #[test]
    fn a_stall_that_lasts_is_told_of_however_many_came_before() {
        let (stalls, now) = (stalls(), Instant::ZERO + Duration::from_secs(1));
        for _ in 0..100 {
            stalls.begin(Instant::ZERO);
            stalls.tidings(now);
            stalls.end();
        }
        stalls.begin(Instant::ZERO);
        assert_eq!(stalls.tidings(now), None);
        let waits = (0..).find(|seconds| stalls.tidings(now + Duration::from_secs(*seconds)).is_some());
        assert!(waits.is_some_and(|seconds| seconds <= 10), "after {waits:?} s");
        stalls.fail();
        assert_eq!(stalls.end(), Some(1));
    }

    #[test]
    fn the_time_of_several_that_wait_at_once_counts_once() {
        let (stalls, at) = (stalls(), |seconds| Instant::ZERO + Duration::from_secs(seconds));
        stalls.seen(at(5));
        assert_eq!(stalls.stalled(), Duration::ZERO, "nothing waits");
        stalls.begin(at(10));
        stalls.begin(at(11));
        stalls.seen(at(12));
        stalls.seen(at(11));
        stalls.seen(at(13));
        (0..2).for_each(|_| _ = stalls.end());
        stalls.seen(at(20));
        assert_eq!(stalls.stalled(), Duration::from_secs(3));
        stalls.begin(at(30));
        stalls.seen(at(31));
        assert_eq!(stalls.stalled(), Duration::from_secs(4));
    }
}
