//! Completions that come from elsewhere: from a thread of a library, from a session with another server.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{ErrorKind, StoreError};
use crate::request::Completion;

/// Where the completions of one driver's pending requests arrive. A driver is what starts requests: a shard, as a rule.
///
/// It never holds more than the driver has pending: each [`Completer`] adds one completion, and each belongs to one command.
/// Clones are the same queue.
#[derive(Clone)]
pub struct CompletionQueue(Arc<Shared>);

struct Shared {
    arrived: Mutex<Vec<(Pending, Completion)>>,
    next: AtomicU64,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// A request that its store will complete later: it has the [`Completer`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pending(u64);

impl CompletionQueue {
    /// An empty queue. `wake` is called by the thread that completes a request while the queue is empty, so it must not block.
    #[must_use]
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        CompletionQueue(Arc::new(Shared { arrived: Mutex::default(), next: AtomicU64::new(0), wake: Box::new(wake) }))
    }

    /// For a store that is about to leave a request pending: what it answers by [`crate::Started::Pending`], and what it, or any
    /// other thread, completes the request with.
    pub fn pend(&self) -> (Pending, Completer) {
        let pending = Pending(self.0.next.fetch_add(1, Ordering::Relaxed));
        (pending, Completer { queue: Arc::clone(&self.0), pending, is_complete: false })
    }

    /// Wakes the driver: it may have something to do, also where nothing has arrived.
    pub fn wake(&self) {
        (self.0.wake)();
    }

    /// Whether they are the same queue.
    #[must_use]
    pub fn is(&self, other: &CompletionQueue) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// For the driver: what has arrived since it last asked.
    #[must_use]
    pub fn take(&self) -> Vec<(Pending, Completion)> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<(Pending, Completion)>> {
        // Nothing panics while it is changed: a poisoned one is still whole.
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, pending: Pending, completion: Completion) {
        let was_empty = {
            let mut arrived = self.lock();
            arrived.push((pending, completion));
            arrived.len() == 1
        };
        // The first push has woken the driver, which takes all of it.
        if was_empty {
            (self.wake)();
        }
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CompletionQueue").field("arrived", &self.0.lock().len()).finish_non_exhaustive()
    }
}

/// Completes one pending request, from any thread. When it is dropped instead, the request fails with [`ErrorKind::Gone`]: a store
/// that loses track of a request, or ends, leaves no command hanging.
#[must_use = "a command waits for it"]
pub struct Completer {
    queue: Arc<Shared>,
    pending: Pending,
    is_complete: bool,
}

impl Completer {
    /// The request has ended so. The store must have done with it: nothing of it may reach the medium any more.
    pub fn complete(mut self, completion: Completion) {
        self.is_complete = true;
        self.queue.push(self.pending, completion);
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        if !self.is_complete {
            let source = Some(io::Error::other("the store has given the request up"));
            self.queue.push(self.pending, Err(StoreError { kind: ErrorKind::Gone, offset_bytes: 0, source }));
        }
    }
}

impl fmt::Debug for Completer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Completer").field(&self.pending.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;
    use crate::request::Outcome;

    #[test]
    fn the_driver_is_woken_once_for_all_that_it_has_not_taken() {
        let wakes = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&wakes);
        let queue = CompletionQueue::new(move || _ = counted.fetch_add(1, Ordering::Relaxed));
        let (first, second) = (queue.pend(), queue.pend());
        second.1.complete(Ok(Outcome::Done));
        thread::scope(|scope| _ = scope.spawn(|| first.1.complete(Ok(Outcome::Done))));
        let taken: Vec<_> = queue.take().into_iter().map(|(pending, _)| pending).collect();
        assert_eq!((taken, wakes.load(Ordering::Relaxed)), (vec![second.0, first.0], 1));
        queue.pend().1.complete(Ok(Outcome::Done));
        assert_eq!((queue.take().len(), wakes.load(Ordering::Relaxed)), (1, 2));
    }

    #[test]
    fn a_request_that_its_store_has_dropped_is_gone() {
        let queue = CompletionQueue::new(|| ());
        let (pending, completer) = queue.pend();
        drop(completer);
        let taken = queue.take();
        assert!(matches!(&taken[..], [(found, Err(error))] if *found == pending && error.kind == ErrorKind::Gone));
    }
}
