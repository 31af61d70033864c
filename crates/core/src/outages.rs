//! Counting how often something that is elsewhere was gone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How often something elsewhere was gone, and was there again. Any thread may tell, and any may ask.
#[derive(Debug, Default)]
pub struct Outages {
    is_gone: AtomicBool,
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Outages {
    /// It is gone. Told again before it is back, that is the same outage.
    pub fn begin(&self) {
        if !self.is_gone.swap(true, Ordering::Relaxed) {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It is there; after an outage: again.
    pub fn end(&self) {
        if self.is_gone.swap(false, Ordering::Relaxed) {
            self.ended.fetch_add(1, Ordering::Relaxed);
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
