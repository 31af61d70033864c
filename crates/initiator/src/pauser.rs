//! Letting a server wait, asked from any thread: the one that drives the connection sees to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use sanwire_io::Waker;

/// Lets the server of a client send no answers, or lets it go on, while something else runs the client.
#[derive(Clone)]
pub struct Pauser {
    desk: Arc<PauseDesk>,
    waker: Waker,
}

/// Where the driver looks.
#[derive(Default)]
pub(crate) struct PauseDesk {
    is_asked: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_paused: bool,
    /// The server has not heard of it yet.
    is_pending: bool,
}

impl Pauser {
    pub(crate) fn new(desk: Arc<PauseDesk>, waker: Waker) -> Self {
        Pauser { desk, waker }
    }

    /// As [`crate::Client::pause`]. Waits until the server has heard of it, but no longer than `patience`, and says whether it has;
    /// where the protocol cannot pause, there is nothing to hear.
    pub fn pause(&self, is_paused: bool, patience: Duration) -> bool {
        let mut state = self.desk.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State { is_paused, is_pending: true };
        self.desk.is_asked.store(true, Ordering::Release);
        self.waker.wake();
        let waited = self.desk.changed.wait_timeout_while(state, patience, |state| state.is_pending);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_pending
    }
}

impl PauseDesk {
    /// What is asked and not done yet.
    pub(crate) fn take(&self) -> Option<bool> {
        // The flag keeps the lock out of the way of every turn.
        if !self.is_asked.load(Ordering::Relaxed) || !self.is_asked.swap(false, Ordering::Acquire) {
            return None;
        }
        Some(self.state.lock().unwrap_or_else(PoisonError::into_inner).is_paused)
    }

    /// The server has heard of what was taken last, unless something else was asked since.
    pub(crate) fn tell(&self, is_paused: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_pending &= state.is_paused != is_paused;
        self.changed.notify_all();
    }
}
