//! Events for those who listen: one thread waits for news while there are listeners, and each listener reads what is new by its own
//! cursor. So nothing is kept for a listener that is slow; what it has missed by then, it is told as a gap.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_server::{Answer, Asker, EventFilter, Request, Response};
use tokio::sync::watch;

use crate::limits::{LISTENERS_MAX, LISTENERS_OF_ACCOUNT_MAX};
use crate::management::Desk;
use crate::problem::Problem;

/// An answer that comes sooner has waited for nothing: as many wait already as may.
const WAITED_LEAST: Duration = Duration::from_millis(500);

/// The next look then.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What tells listeners that there is something new.
pub(crate) struct News(Arc<Shared>);

struct Shared {
    desk: Arc<dyn Desk>,
    count: watch::Sender<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many each account has.
    listeners: BTreeMap<String, usize>,
    /// Whether a thread waits for news.
    is_awaited: bool,
}

/// One who listens.
pub(crate) struct Listener {
    shared: Arc<Shared>,
    news: watch::Receiver<u64>,
    account: String,
}

impl News {
    pub(crate) fn new(desk: Arc<dyn Desk>) -> Self {
        News(Arc::new(Shared { desk, count: watch::Sender::new(0), state: Mutex::default() }))
    }

    /// # Errors
    /// A problem when there are too many.
    pub(crate) fn listen(&self, by: &Asker) -> Result<Listener, Problem> {
        let news = self.0.count.subscribe();
        let mut state = self.0.lock();
        let (account, max) = account(by);
        let (all, own) = (state.listeners.values().sum::<usize>(), state.listeners.get(&account).copied().unwrap_or(0));
        if all >= LISTENERS_MAX || own >= max {
            let detail = format!("{all} listen to events already, {own} of them by this account");
            return Err(Problem::new("listeners-too-many", detail));
        }
        if !state.is_awaited {
            let shared = Arc::clone(&self.0);
            let spawned = thread::Builder::new().name("web-events".into()).spawn(move || shared.watch());
            spawned.map_err(|_| Problem::new("busy", "the system has no thread for that: ask again"))?;
            state.is_awaited = true;
        }
        state.listeners.insert(account.clone(), own + 1);
        drop(state);
        Ok(Listener { shared: Arc::clone(&self.0), news, account })
    }
}

impl News {
    /// How many listen.
    pub(crate) fn listeners(&self) -> usize {
        self.0.lock().listeners.values().sum()
    }
}

impl Listener {
    /// What is read after this shows all that [`Listener::wait`] does not wait for.
    pub(crate) fn look(&mut self) {
        self.news.mark_unchanged();
    }

    /// Waits until something has happened since the last look; `false` when the server ends.
    pub(crate) async fn wait(&mut self) -> bool {
        self.news.changed().await.is_ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        match state.listeners.get(&self.account).copied().unwrap_or(0) {
            0 | 1 => state.listeners.remove(&self.account),
            more => state.listeners.insert(self.account.clone(), more - 1),
        };
    }
}

/// Whose listeners are counted together, and how many they may be.
fn account(by: &Asker) -> (String, usize) {
    match by {
        Asker::User { user, .. } => (format!("user {user}"), LISTENERS_OF_ACCOUNT_MAX),
        Asker::Token { token, .. } => (format!("token {token}"), LISTENERS_OF_ACCOUNT_MAX),
        // Who could stop the server as well.
        _ => (String::new(), LISTENERS_MAX),
    }
}

impl Shared {
    /// Waits for events as long as anybody listens.
    fn watch(&self) {
        let by = Asker::Signal { signal: "events" };
        let (mut since, mut wait) = (None, false);
        loop {
            let begun = Instant::now();
            let Response::Done(Answer::Events(events)) =
                self.desk.handle(&by, Request::Events { since, filter: EventFilter::default(), wait })
            else {
                self.lock().is_awaited = false;
                return;
            };
            let mut state = self.lock();
            if state.listeners.is_empty() {
                state.is_awaited = false;
                return;
            }
            drop(state);
            if !wait || !events.events.is_empty() {
                self.count.send_modify(|count| *count = count.wrapping_add(1));
            } else if begun.elapsed() < WAITED_LEAST {
                thread::sleep(LOOK_INTERVAL);
            }
            // The first answers catch up with what has happened before anybody listened.
            wait = wait || events.events.is_empty();
            since = Some(events.cursor);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole between any two changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
