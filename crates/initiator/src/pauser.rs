//! Letting a server wait, asked from any thread: the one that drives the connection sees to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

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
        self.ask(is_paused);
        self.is_heard_within(patience)
    }

    /// As [`Pauser::pause`], for several servers at once and within one `patience`; gives how many have not heard of it.
    pub fn pause_all(pausers: &[Pauser], is_paused: bool, patience: Duration) -> usize {
        let end = Instant::now() + patience;
        pausers.iter().for_each(|pauser| pauser.ask(is_paused));
        let left = || end.saturating_duration_since(Instant::now());
        pausers.iter().filter(|pauser| !pauser.is_heard_within(left())).count()
    }

    fn ask(&self, is_paused: bool) {
        let mut state = self.desk.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State { is_paused, is_pending: true };
        self.desk.is_asked.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn is_heard_within(&self, patience: Duration) -> bool {
        let state = self.desk.state.lock().unwrap_or_else(PoisonError::into_inner);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_asked_before_one_is_waited_for() {
        let pausers = [(); 2].map(|()| Pauser::new(Arc::default(), Waker::new().expect("an event descriptor")));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The first one hears of it once the second one has.
                for pauser in pausers.iter().rev() {
                    while pauser.desk.take().is_none() {
                        std::thread::yield_now();
                    }
                    pauser.desk.tell(true);
                }
            });
            assert_eq!(Pauser::pause_all(&pausers, true, Duration::from_secs(60)), 0);
        });
        assert_eq!(Pauser::pause_all(&pausers, false, Duration::ZERO), 2, "nobody is there");
    }
}
