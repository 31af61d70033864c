//! Gives back the space of layers that nobody needs any more, while all goes on.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::family::Family;

/// What is done between two pauses is some tens of MiB: volumes are to go on meanwhile.
const PAUSE: Duration = Duration::from_millis(20);

/// How soon it is tried again where volumes take no writes until it is done.
const AGAIN: Duration = if cfg!(test) { Duration::from_millis(10) } else { Duration::from_secs(1) };

/// One thread for each pool, as long as there is something to do.
#[derive(Default, Debug)]
pub(super) struct Tidier(Arc<Shared>);

#[derive(Default, Debug)]
struct Shared {
    state: Mutex<State>,
    /// The family that was worked on is let go, or is not to be worked on any more.
    changed: Condvar,
}

#[derive(Default, Debug)]
struct State {
    queue: VecDeque<Arc<Family>>,
    /// The family that is worked on.
    current: Option<String>,
    /// The one of which nothing more is to be done.
    unwanted: Option<String>,
    thread: Option<JoinHandle<()>>,
    is_running: bool,
    is_over: bool,
}

impl Tidier {
    /// From now on, or once others are done. What is broken off by the end of the server goes on when the family is opened again.
    pub(super) fn tidy(&self, family: &Arc<Family>) {
        let mut state = self.0.lock();
        if state.is_over || state.queue.iter().any(|queued| Arc::ptr_eq(queued, family)) {
            return;
        }
        state.queue.push_back(Arc::clone(family));
        if !state.is_running {
            let shared = Arc::clone(&self.0);
            // Without a thread it is done another time.
            state.thread = thread::Builder::new().name("layers".into()).spawn(move || run(&shared)).ok();
            state.is_running = state.thread.is_some();
        }
    }

    /// This family is not needed any more: nothing is done to it when this returns.
    pub(super) fn forget(&self, id: &str) {
        let mut state = self.0.lock();
        state.queue.retain(|family| family.id != id);
        state.unwanted = Some(id.to_owned());
        self.0.changed.notify_all();
        while state.current.as_deref() == Some(id) {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.unwanted = None;
    }
}

impl Drop for Tidier {
    fn drop(&mut self) {
        let thread = {
            let mut state = self.0.lock();
            (state.is_over, _) = (true, state.queue.clear());
            self.0.changed.notify_all();
            state.thread.take()
        };
        // Whoever opens the pool next finds nothing of it in use.
        let _ = thread.map(JoinHandle::join);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole between any two changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Arc<Family>> {
        let mut state = self.lock();
        let family = state.queue.pop_front();
        state.current = family.as_ref().map(|family| family.id.clone());
        state.is_running = family.is_some();
        family
    }

    fn goes_on(&self) -> bool {
        let state = self.lock();
        !state.is_over && state.unwanted != state.current
    }

    /// For so long, or until the server ends, or nothing more is to be done to this family.
    fn wait(&self, most: Duration) {
        let state = self.lock();
        let goes_on = |state: &mut State| !state.is_over && state.unwanted != state.current;
        drop(self.changed.wait_timeout_while(state, most, goes_on));
    }

    fn let_go(&self, family: Arc<Family>) {
        drop(family);
        self.lock().current = None;
        self.changed.notify_all();
    }
}

fn run(shared: &Shared) {
    while let Some(family) = shared.next() {
        let mut is_told = false;
        while shared.goes_on() {
            match family.tidy() {
                Ok(true) => thread::sleep(PAUSE),
                Ok(false) => break,
                Err(error) if family.tree.is_doubtful() => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::error!(
                            "layers {}: volumes take no writes until this can be written: {error}",
                            family.id
                        );
                    }
                    shared.wait(AGAIN);
                }
                Err(error) => {
                    tracing::warn!("layers {}: space that nobody needs is not given back yet: {error}", family.id);
                    break;
                }
            }
        }
        shared.let_go(family);
    }
}
