//! When a derived unit ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Its owner gives none.
const NEVER: u64 = u64::MAX;

/// The end of a derived unit: its own, and those of what it is derived from. Each may be moved while the unit is used, and counts from then on
/// for all that is derived from it, too.
#[derive(Debug)]
pub(crate) struct End {
    /// The first of all of them: every command reads it.
    first_unix_ms: AtomicU64,
    of_parent: Option<Arc<End>>,
    /// Held while the first one changes. Who holds those of several takes that of a parent before those of its children.
    own: Mutex<Own>,
}

/// Its own, and who must hear of another first one.
#[derive(Debug)]
struct Own {
    unix_ms: u64,
    children: Vec<Weak<End>>,
}

impl End {
    pub(crate) fn new(own_unix_ms: Option<u64>, of_parent: Option<Arc<End>>) -> Arc<End> {
        let unix_ms = own_unix_ms.unwrap_or(NEVER);
        let own = Mutex::new(Own { unix_ms, children: Vec::new() });
        let end = Arc::new(End { first_unix_ms: AtomicU64::new(unix_ms), of_parent, own });
        if let Some(parent) = &end.of_parent {
            // From now on it hears of each change there; what was changed before counts by this.
            let mut own = parent.lock();
            if own.children.len() == own.children.capacity() {
                own.children.retain(|child| child.strong_count() > 0);
            }
            own.children.push(Arc::downgrade(&end));
            end.settle(end.lock(), parent.first_unix_ms());
        }
        end
    }

    /// The first of all, in milliseconds after the beginning of 1970.
    pub(crate) fn unix_ms(&self) -> Option<u64> {
        Some(self.first_unix_ms()).filter(|first| *first != NEVER)
    }

    pub(crate) fn set(&self, own_unix_ms: Option<u64>) {
        // While the parent's is held nothing changes there.
        let parent = self.of_parent.as_ref().map(|parent| (parent.lock(), parent.first_unix_ms()));
        let mut own = self.lock();
        own.unix_ms = own_unix_ms.unwrap_or(NEVER);
        self.settle(own, parent.as_ref().map_or(NEVER, |(_, first)| *first));
    }

    /// Has the first one be that of its own and that of the parent, here and in all that is derived from it.
    fn settle(&self, own: MutexGuard<'_, Own>, of_parent_unix_ms: u64) {
        let first = own.unix_ms.min(of_parent_unix_ms);
        self.first_unix_ms.store(first, Ordering::Relaxed);
        own.children.iter().filter_map(Weak::upgrade).for_each(|child| child.settle(child.lock(), first));
    }

    fn first_unix_ms(&self) -> u64 {
        self.first_unix_ms.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Own> {
        // Each change is one step: a poisoned one is still whole.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_derived_ends_with_the_first_of_its_line_whichever_is_moved() {
        let root = End::new(None, None);
        let middle = End::new(Some(50), Some(Arc::clone(&root)));
        let [one, other] = [Some(70), None].map(|own| End::new(own, Some(Arc::clone(&middle))));
        let all = || [&root, &middle, &one, &other].map(|end| end.unix_ms());
        assert_eq!(all(), [None, Some(50), Some(50), Some(50)]);
        middle.set(Some(90));
        assert_eq!(all(), [None, Some(90), Some(70), Some(90)]);
        root.set(Some(60));
        assert_eq!(all(), [Some(60); 4]);
        one.set(Some(10));
        middle.set(None);
        assert_eq!(all(), [Some(60), Some(60), Some(10), Some(60)]);
        root.set(None);
        assert_eq!(all(), [None, None, Some(10), None]);
        drop(other);
        let late = End::new(Some(5), Some(Arc::clone(&one)));
        one.set(Some(3));
        assert_eq!((late.unix_ms(), one.unix_ms()), (Some(3), Some(3)));
    }

    #[test]
    fn ends_that_are_moved_at_the_same_time_are_those_of_the_line_afterwards() {
        let root = End::new(None, None);
        let middle = End::new(None, Some(Arc::clone(&root)));
        let last = End::new(None, Some(Arc::clone(&middle)));
        std::thread::scope(|scope| {
            for (end, own) in [(&root, 700), (&middle, 500), (&last, 600)] {
                scope.spawn(move || (0..2000).for_each(|at| end.set((at % 3 != 0).then_some(own + at % 2))));
            }
        });
        // The last of each has set it to 701, 501 and 601.
        assert_eq!([&root, &middle, &last].map(|end| end.unix_ms()), [Some(701), Some(501), Some(501)]);
        middle.set(None);
        assert_eq!(last.unix_ms(), Some(601));
    }
}
