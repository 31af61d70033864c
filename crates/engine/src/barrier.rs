//! Waiting for the end of commands that run in several shards.

use std::fmt;
use std::sync::Arc;

/// Shared by all shards that still have tasks to end: each shard that is told to abort some gets a share, and its engine holds the share
/// until the last of them has ended. When the last share is dropped, the requester is told. No thread waits, nothing is counted.
pub struct AbortBarrier {
    passed: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl AbortBarrier {
    /// A barrier, and what is done once when all have passed it: in the thread that drops the last share, so it only sends word.
    #[must_use]
    pub fn new(passed: impl FnOnce() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(AbortBarrier { passed: Some(Box::new(passed)) })
    }
}

impl Drop for AbortBarrier {
    fn drop(&mut self) {
        if let Some(passed) = self.passed.take() {
            passed();
        }
    }
}

impl fmt::Debug for AbortBarrier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AbortBarrier").finish_non_exhaustive()
    }
}
