//! Wakes the drivers of the shards where commands of a logical unit wait for other commands, when they may go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_store::CompletionQueue;

/// Rung whenever something has ended that commands may wait for. As long as none waits, that costs one look at one word.
#[derive(Default, Debug)]
pub(crate) struct Bell {
    is_awaited: AtomicBool,
    waiting: Mutex<Vec<CompletionQueue>>,
}

impl Bell {
    /// The driver of this queue is woken when the bell rings next, once. It looks after this call whether it may go on: either it
    /// sees what has changed, or the one that changed it sees that it waits.
    pub(crate) fn wait(&self, driver: &CompletionQueue) {
        let waiting = &mut *self.lock();
        if !waiting.iter().any(|known| known.is(driver)) {
            waiting.push(driver.clone());
        }
        self.is_awaited.store(true, Ordering::SeqCst);
    }

    /// Something has ended.
    pub(crate) fn ring(&self) {
        if self.is_awaited.load(Ordering::SeqCst) {
            let waiting = {
                let waiting = &mut *self.lock();
                self.is_awaited.store(false, Ordering::SeqCst);
                std::mem::take(waiting)
            };
            waiting.iter().for_each(CompletionQueue::wake);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CompletionQueue>> {
        // Nothing panics while it is changed: a poisoned one is still whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Told, from any thread, that a record of a logical unit has become durable, or cannot: its commands may wait for that.
#[derive(Clone, Debug)]
pub struct RecordListener(Arc<Bell>);

impl RecordListener {
    pub(crate) fn new(bell: &Arc<Bell>) -> Self {
        RecordListener(Arc::clone(bell))
    }

    /// Something has changed.
    pub fn tell(&self) {
        self.0.ring();
    }
}
