//! Ranges that one request has for itself, and those that wait for them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_store::{Completer, CompletionQueue, Outcome, Started};

/// Who comes first has a range; who overlaps it waits, in order.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    held: Vec<(u64, Range<u64>)>,
    waiting: VecDeque<(u64, Range<u64>, Completer)>,
}

impl State {
    fn is_free(&self, range: &Range<u64>, waiting: usize) -> bool {
        let ahead = self.waiting.iter().take(waiting).map(|(_, other, _)| other);
        !self.held.iter().map(|(_, other)| other).chain(ahead).any(|other| overlap(range, other))
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// A range that is locked, or waited for, until this is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    locks: Arc<Locks>,
    number: u64,
}

impl Locks {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on with the range locked, at once or when those before are over.
    pub(crate) fn with(
        self: &Arc<Self>,
        range: Range<u64>,
        completions: &CompletionQueue,
        next: impl FnOnce(Guard, &CompletionQueue) -> Started + Send + 'static,
    ) -> Started {
        let mut state = self.lock();
        state.next += 1;
        let guard = Guard { locks: Arc::clone(self), number: state.next };
        if state.is_free(&range, usize::MAX) {
            state.held.push((guard.number, range));
            drop(state);
            return next(guard, completions);
        }
        let (pending, completer) = completions.pend();
        state.waiting.push_back((guard.number, range, completer));
        drop(state);
        Started::Pending(pending).then(completions, move |end, completions| match end {
            Ok(_) => next(guard, completions),
            Err(error) => Started::Done(Err(error)),
        })
    }

    /// Whether somebody has something of the range.
    pub(crate) fn has(&self, range: &Range<u64>) -> bool {
        self.lock().held.iter().any(|(_, other)| overlap(range, other))
    }

    /// All ranges that somebody has.
    pub(crate) fn held(&self) -> Vec<Range<u64>> {
        self.lock().held.iter().map(|(_, range)| range.clone()).collect()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let (mut called, own);
        {
            let state = &mut *self.locks.lock();
            state.held.retain(|(number, _)| *number != self.number);
            let place = state.waiting.iter().position(|(number, ..)| *number == self.number);
            own = place.and_then(|place| state.waiting.remove(place));
            called = Vec::new();
            let mut at = 0;
            while let Some((_, range, _)) = state.waiting.get(at) {
                if state.is_free(range, at) {
                    state.waiting.remove(at).into_iter().for_each(|(number, range, completer)| {
                        state.held.push((number, range));
                        called.push(completer);
                    });
                } else {
                    at += 1;
                }
            }
        }
        // Whom a completer wakes may come here at once.
        drop(own);
        called.into_iter().for_each(|completer| completer.complete(Ok(Outcome::Done)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_overlaps_waits_in_order_and_who_gives_up_makes_room() {
        let (locks, queue) = (Arc::<Locks>::default(), CompletionQueue::new(|| ()));
        let kept = Arc::new(Mutex::new(Vec::new()));
        let take = |range: Range<u64>| {
            let kept = Arc::clone(&kept);
            locks.with(range, &queue, move |guard, _| {
                kept.lock().unwrap().push(guard);
                Started::Done(Ok(Outcome::Done))
            })
        };
        assert!(matches!(take(0..4), Started::Done(_)) && matches!(take(8..9), Started::Done(_)));
        let (second, third) = (take(3..6), take(5..7));
        assert!(matches!((&second, &third), (Started::Layered(_), Started::Layered(_))), "the third waits behind");
        assert!(locks.has(&(3..4)) && !locks.has(&(4..8)));
        drop(second);
        let called = queue.take().into_iter().filter(|(_, end)| end.is_ok()).count();
        assert_eq!(called, 1, "the third has nothing before it");
        assert!(locks.has(&(5..6)));
        drop(third);
        kept.lock().unwrap().clear();
        assert!(locks.held().is_empty());
    }
}
