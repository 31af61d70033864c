//! Counting how often something that is elsewhere was gone, and for how long.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Who is told that it is gone, or is there again.
type Watcher = Box<dyn Fn(bool) + Send + Sync>;

/// How often something elsewhere was gone, and was there again. Any thread may tell, and any may ask.
#[derive(Default)]
pub struct Outages {
    is_gone: AtomicBool,
    begun: AtomicU64,
    ended: AtomicU64,
    times: Mutex<Times>,
    watcher: OnceLock<Watcher>,
}

#[derive(Default)]
struct Times {
    /// Of the outages that are over.
    lasted: Duration,
    gone_at: Option<Instant>,
}

impl Outages {
    /// It is gone. Told again before it is back, that is the same outage.
    pub fn begin(&self) {
        if !self.is_gone.swap(true, Ordering::Relaxed) {
            self.begun.fetch_add(1, Ordering::Relaxed);
            self.times().gone_at = Some(Instant::now());
            self.watcher.get().into_iter().for_each(|watcher| watcher(true));
        }
    }

    /// It is there; after an outage: again.
    pub fn end(&self) {
        if self.is_gone.swap(false, Ordering::Relaxed) {
            self.ended.fetch_add(1, Ordering::Relaxed);
            let mut times = self.times();
            let lasted = times.gone_at.take().map_or(Duration::ZERO, |at| at.elapsed());
            times.lasted += lasted;
            drop(times);
            self.watcher.get().into_iter().for_each(|watcher| watcher(false));
        }
    }

    /// Whether it is gone now.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// How many outages have begun.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// How many of them have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// For how long it was gone in all outages, with the one of now.
    #[must_use]
    pub fn lasted(&self) -> Duration {
        let times = self.times();
        times.lasted + times.gone_at.map_or(Duration::ZERO, |at| at.elapsed())
    }

    /// From now on calls this with whether it is gone, each time that this changes, on the thread that tells: it must not wait. Only the
    /// first one is called.
    pub fn watch(&self, watcher: impl Fn(bool) + Send + Sync + 'static) {
        let _ = self.watcher.set(Box::new(watcher));
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        // Nothing panics while it is held.
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Outages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (begun, ended) = (self.begun(), self.ended());
        f.debug_struct("Outages").field("begun", &begun).field("ended", &ended).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn who_watches_is_told_of_each_change_and_the_time_adds_up() {
        let (outages, told) = (Outages::default(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&told);
        outages.watch(move |is_gone| seen.lock().unwrap().push(is_gone));
        assert_eq!(outages.lasted(), Duration::ZERO);
        outages.begin();
        std::thread::sleep(Duration::from_millis(2));
        outages.begin();
        assert!(outages.lasted() >= Duration::from_millis(2));
        outages.end();
        let lasted = outages.lasted();
        std::thread::sleep(Duration::from_millis(2));
        assert!(lasted == outages.lasted() && lasted >= Duration::from_millis(2), "{lasted:?}");
        assert_eq!(*told.lock().unwrap(), [true, false]);
    }

    #[test]
    fn an_outage_counts_once_however_often_it_is_told() {
        let outages = Outages::default();
        outages.end();
        assert_eq!((outages.is_gone(), outages.begun(), outages.ended()), (false, 0, 0), "it was there");
        for expected in 1..4 {
            outages.begin();
            outages.begin();
            assert_eq!((outages.is_gone(), outages.begun(), outages.ended()), (true, expected, expected - 1));
            outages.end();
            outages.end();
            assert_eq!((outages.is_gone(), outages.begun(), outages.ended()), (false, expected, expected));
        }
    }
}
