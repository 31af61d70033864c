//! What a server does not end before.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How much goes on that the server does not end before.
#[derive(Clone, Default)]
pub(super) struct Awaited(Arc<(Mutex<usize>, Condvar)>);

/// One such thing.
pub(super) struct AwaitedPart(Awaited);

impl Awaited {
    pub(super) fn begin(&self) -> AwaitedPart {
        *self.count() += 1;
        AwaitedPart(self.clone())
    }

    pub(super) fn wait(&self) {
        let mut count = self.count();
        while *count > 0 {
            count = self.0.1.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AwaitedPart {
    fn drop(&mut self) {
        *self.0.count() -= 1;
        self.0.0.1.notify_all();
    }
}
