//! What a server does not end before.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{ManagementHandle, Manager};
use crate::server::Server;

/// How long the end of the server waits at the most for changes that are not to be broken off: a disk may never answer.
const END_TIMEOUT: Duration = Duration::from_secs(60);

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

    /// Waits until all of it has ended, and for so long at the most; gives how much goes on then.
    pub(super) fn wait(&self, patience: Duration) -> usize {
        let goes_on = |count: &mut usize| *count > 0;
        *self.0.1.wait_timeout_while(self.count(), patience, goes_on).unwrap_or_else(PoisonError::into_inner).0
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

impl ManagementHandle {
    /// The server, which is not managed any more.
    #[must_use]
    pub fn end(&self) -> Option<Server> {
        self.end_within(END_TIMEOUT)
    }

    pub(super) fn end_within(&self, patience: Duration) -> Option<Server> {
        let manager = self.lock().take();
        // What was written to volumes that are just being removed becomes stable first.
        let left = self.0.awaited.wait(patience);
        if left > 0 {
            tracing::error!(
                "the server ends though {left} changes have not ended within {patience:?}: what they had begun is brought to its end, or \
                 undone, at the next start"
            );
        }
        manager.map(Manager::into_target)
    }
}
