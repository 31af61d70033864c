//! Holding writes for a moment, until those that are under way have ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use sanwire_store::{Completer, CompletionQueue, Outcome, Pending};

const HELD: u64 = 1 << 63;

/// Lets writes through, and counts them.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// How many are under way, and whether no other begins.
    state: AtomicU64,
    waiting: Mutex<Vec<Completer>>,
    ended: Condvar,
}

impl Gate {
    /// A write may begin, and [`Gate::leave`]s at its end; `false`: it is to wait.
    pub(crate) fn enter(&self) -> bool {
        if self.state.fetch_add(1, Ordering::AcqRel) & HELD == 0 {
            return true;
        }
        self.leave();
        false
    }

    pub(crate) fn leave(&self) {
        if self.state.fetch_sub(1, Ordering::AcqRel) == HELD | 1 {
            // Who waits has looked under the lock, or does so after this.
            drop(self.waiting());
            self.ended.notify_all();
        }
    }

    /// What a write waits for that may not begin; `None`: it may try again at once.
    pub(crate) fn wait(&self, completions: &CompletionQueue) -> Option<Pending> {
        let mut waiting = self.waiting();
        if self.state.load(Ordering::Acquire) & HELD == 0 {
            return None;
        }
        let (pending, completer) = completions.pend();
        waiting.push(completer);
        Some(pending)
    }

    /// No other write begins; `false`: somebody else holds them.
    pub(crate) fn hold(&self) -> bool {
        self.state.fetch_or(HELD, Ordering::AcqRel) & HELD == 0
    }

    /// Whether no write is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.state.load(Ordering::Acquire) & !HELD == 0
    }

    /// Waits until none is, or writes begin again and `is_over`.
    pub(crate) fn wait_until_quiet(&self, is_over: impl Fn() -> bool) {
        let mut waiting = self.waiting();
        while !self.is_quiet() && !is_over() {
            waiting = self.ended.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes begin again, first those that have waited.
    pub(crate) fn release(&self) {
        let waiting = {
            let mut waiting = self.waiting();
            self.state.fetch_and(!HELD, Ordering::AcqRel);
            std::mem::take(&mut *waiting)
        };
        self.ended.notify_all();
        waiting.into_iter().for_each(|completer| completer.complete(Ok(Outcome::Done)));
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Completer>> {
        // Nothing panics while it is changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_writes_wait_and_those_under_way_end() {
        let (gate, queue) = (Gate::default(), CompletionQueue::new(|| ()));
        assert!(gate.enter() && gate.wait(&queue).is_none());
        assert!(gate.hold() && !gate.hold(), "one at a time");
        assert!(!gate.enter() && !gate.is_quiet());
        let pending = gate.wait(&queue);
        gate.leave();
        gate.wait_until_quiet(|| false);
        assert!(queue.take().is_empty());
        gate.release();
        assert_eq!(queue.take().first().map(|(pending, _)| *pending), pending);
        assert!(gate.enter());
    }
}
