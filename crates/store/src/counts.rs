//! What is counted of stores: errors by their kinds, and of those that are elsewhere how often they were gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sanwire_core::Outages;

use crate::error::{ErrorKind, StoreError};

/// The errors of one store, by their kinds; any thread may note one.
#[derive(Debug, Default)]
pub struct ErrorCounts([AtomicU64; ErrorKind::WORDS.len()]);

impl ErrorCounts {
    /// A request has failed so.
    pub fn note(&self, error: &StoreError) {
        self.0[error.kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The kinds that there were, by their words, and how often each.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counted = ErrorKind::WORDS.iter().zip(&self.0);
        counted.map(|((_, word), count)| (*word, count.load(Ordering::Relaxed))).filter(|(_, count)| *count > 0)
    }
}

/// What is counted of the way to a store that is elsewhere.
#[derive(Debug, Default)]
pub struct RemoteCounter {
    /// The times at which it could not be reached.
    pub outages: Arc<Outages>,
    requests: AtomicU64,
}

impl RemoteCounter {
    /// The same with outages that somebody else counts.
    #[must_use]
    pub fn with(outages: Arc<Outages>) -> Self {
        RemoteCounter { outages, requests: AtomicU64::new(0) }
    }

    /// A request begins; it ends when this is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> RemoteRequest {
        self.requests.fetch_add(1, Ordering::Relaxed);
        RemoteRequest(Arc::clone(self))
    }

    /// The numbers as they are now.
    #[must_use]
    pub fn count(&self) -> RemoteCount {
        RemoteCount {
            is_reachable: !self.outages.is_gone(),
            times_gone: self.outages.begun(),
            reconnects: self.outages.ended(),
            requests: self.requests.load(Ordering::Relaxed),
        }
    }
}

/// A request to a store elsewhere that has not ended.
#[derive(Debug)]
pub struct RemoteRequest(Arc<RemoteCounter>);

impl Drop for RemoteRequest {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How a store that is elsewhere is reached, since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteCount {
    /// Whether it can be reached, as far as is known.
    pub is_reachable: bool,
    /// How often it was gone.
    pub times_gone: u64,
    /// How often it was there again.
    pub reconnects: u64,
    /// Requests that have not ended, also those that wait for it to be there again.
    pub requests: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_kinds_each_under_its_own_word() {
        let counts = ErrorCounts::default();
        assert_eq!(counts.all().count(), 0);
        for (place, (kind, _)) in ErrorKind::WORDS.into_iter().enumerate() {
            (0..=place).for_each(|_| counts.note(&StoreError::new(kind, 0)));
        }
        let expected: Vec<_> = ErrorKind::WORDS.iter().map(|(_, word)| *word).zip(1..).collect();
        assert_eq!(counts.all().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn requests_count_until_they_are_dropped() {
        let counter = Arc::<RemoteCounter>::default();
        let requests = [counter.begin(), counter.begin()];
        counter.outages.begin();
        let gone = RemoteCount { is_reachable: false, times_gone: 1, reconnects: 0, requests: 2 };
        assert_eq!(counter.count(), gone);
        drop(requests);
        counter.outages.end();
        assert_eq!(counter.count(), RemoteCount { is_reachable: true, reconnects: 1, requests: 0, ..gone });
    }
}
