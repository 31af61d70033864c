//! How the connection of a client is, asked from any thread: the one that drives the connection tells.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use sanwire_io::Waker;

use crate::session::LinkStatus;

/// How a connection is.
#[derive(Clone, Debug)]
pub struct ConnectionLook {
    /// The links of the connection; none over iSCSI.
    pub links: Vec<LinkStatus>,
    /// For how long the server has been away, if it is.
    pub away_for: Option<Duration>,
    /// Whether operations fail until it is back.
    pub is_failing: bool,
}

/// Lets another thread see how the connection of a client is, while something else runs the client.
#[derive(Clone)]
pub struct Looker {
    desk: Arc<LookDesk>,
    waker: Waker,
}

/// Where the driver looks.
#[derive(Default)]
pub(crate) struct LookDesk {
    is_asked: AtomicBool,
    told: Mutex<Option<ConnectionLook>>,
    changed: Condvar,
}

impl Looker {
    pub(crate) fn new(desk: Arc<LookDesk>, waker: Waker) -> Self {
        Looker { desk, waker }
    }

    /// How it is now; `None` when nothing runs the client for so long.
    #[must_use]
    pub fn look(&self, patience: Duration) -> Option<ConnectionLook> {
        let mut told = self.desk.told.lock().unwrap_or_else(PoisonError::into_inner);
        *told = None;
        self.desk.is_asked.store(true, Ordering::Release);
        self.waker.wake();
        let waited = self.desk.changed.wait_timeout_while(told, patience, |told| told.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

impl LookDesk {
    /// Tells those who have asked.
    pub(crate) fn serve(&self, look: impl FnOnce() -> ConnectionLook) {
        // The flag keeps the lock out of the way of every turn.
        if self.is_asked.load(Ordering::Relaxed) && self.is_asked.swap(false, Ordering::Acquire) {
            *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(look());
            self.changed.notify_all();
        }
    }
}
