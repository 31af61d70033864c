//! What goes on over a connection, and since when nothing does: it ends when there is no request, or when nobody takes an answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The requests of one connection.
pub(crate) struct Activity {
    patience: Duration,
    state: Mutex<State>,
}

struct State {
    /// Since when there is no request, while there is none.
    idle: Instant,
    /// The requests, and since when the reader of each has taken nothing of what is there for it.
    requests: BTreeMap<u64, Option<Instant>>,
    next: u64,
}

/// A request, from its head until all of its answer is sent.
pub(crate) struct Busy {
    activity: Arc<Activity>,
    number: u64,
}

impl Activity {
    /// Of a connection that is there from now on.
    pub(crate) fn new(patience: Duration) -> Arc<Self> {
        let state = State { idle: Instant::now(), requests: BTreeMap::new(), next: 0 };
        Arc::new(Activity { patience, state: Mutex::new(state) })
    }

    /// Counts a request that has arrived.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.requests.insert(number, None);
        Busy { activity: Arc::clone(self), number }
    }

    /// Returns when nothing has gone on for too long.
    pub(crate) async fn silence(&self) {
        loop {
            let now = Instant::now();
            // What begins to be silent later is silent for too long later than this.
            let end = self.end().unwrap_or(now + self.patience);
            if end <= now {
                return;
            }
            sleep_until(end).await;
        }
    }

    /// When it has been silent for too long, as far as is known now.
    fn end(&self) -> Option<Instant> {
        let state = self.lock();
        let since = match state.requests.is_empty() {
            true => Some(state.idle),
            false => state.requests.values().flatten().min().copied(),
        };
        since.map(|since| since + self.patience)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole between any two changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Busy {
    /// From now on something of the answer is there for the reader.
    pub(crate) fn waits_for_reader(&self) {
        self.set(Some(Instant::now()));
    }

    /// The reader waits for more.
    pub(crate) fn waits_for_us(&self) {
        self.set(None);
    }

    fn set(&self, since: Option<Instant>) {
        self.activity.lock().requests.insert(self.number, since);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.activity.lock();
        state.requests.remove(&self.number);
        state.idle = Instant::now();
    }
}
