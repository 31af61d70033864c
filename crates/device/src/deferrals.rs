//! What is to be begun again at some time.

use std::collections::BTreeMap;

use sanwire_core::Instant;

/// Things that wait for their time; those of one time come in the order in which they were put in.
#[derive(Debug)]
pub(crate) struct Deferrals<T> {
    by_time: BTreeMap<(Instant, u64), T>,
    next: u64,
}

impl<T> Default for Deferrals<T> {
    fn default() -> Self {
        Deferrals { by_time: BTreeMap::new(), next: 0 }
    }
}

impl<T> Deferrals<T> {
    pub(crate) fn len(&self) -> usize {
        self.by_time.len()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.by_time.values()
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.by_time.values_mut()
    }

    pub(crate) fn push(&mut self, at: Instant, waiting: T) {
        self.by_time.insert((at, self.next), waiting);
        self.next += 1;
    }

    /// When the first one is due.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    /// One whose time has come.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<T> {
        let first = self.by_time.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// Takes those out that are meant.
    pub(crate) fn extract(&mut self, mut is_meant: impl FnMut(&T) -> bool) -> Vec<T> {
        self.by_time.extract_if(.., |_, waiting| is_meant(waiting)).map(|(_, waiting)| waiting).collect()
    }
}
