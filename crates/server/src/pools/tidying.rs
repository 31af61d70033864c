//! Gives back the space of layers that nobody needs any more, while all goes on.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sanwire_snapshot::{LayerId, SnapshotError};

use super::family::{Family, FamilyError};

/// What is done between two pauses is some tens of MiB: volumes are to go on meanwhile.
const PAUSE: Duration = Duration::from_millis(20);

/// How soon it is tried again where there was no space, or a write has hung.
const LATER: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(10) };

/// How often a volume gets a new last layer, so that the one before is merged, until somebody asks again.
const FOLDS_MAX: u32 = 64;

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

    fn let_go(&self, family: Arc<Family>, is_left: bool) {
        let mut state = self.lock();
        if is_left && !state.is_over && state.unwanted != state.current {
            state.queue.push_back(family);
        } else {
            // Others may ask for what it holds.
            drop(state);
            drop(family);
            state = self.lock();
        }
        state.current = None;
        drop(state);
        self.changed.notify_all();
    }
}

/// What there is to do for a family after a step.
enum Next {
    Go(Duration),
    /// Others first.
    Later(Duration),
    /// The same as long as somebody else has the family: who opens it again may have the store again, too.
    LaterIfUsed(Duration),
    Done,
}

fn run(shared: &Shared) {
    while let Some(family) = shared.next() {
        let mut work = Work { family: &family, folds_left: FOLDS_MAX, is_told: false };
        let is_left = loop {
            if !shared.goes_on() {
                break false;
            }
            match work.step() {
                Next::Go(pause) => shared.wait(pause),
                Next::Later(pause) => {
                    shared.wait(pause);
                    break true;
                }
                Next::LaterIfUsed(pause) => {
                    shared.wait(pause);
                    break Arc::strong_count(&family) > 1;
                }
                Next::Done => break false,
            }
        };
        shared.let_go(family, is_left);
    }
}

struct Work<'a> {
    family: &'a Family,
    folds_left: u32,
    is_told: bool,
}

impl Work<'_> {
    fn step(&mut self) -> Next {
        let id = &self.family.id;
        match self.tidy() {
            Ok(next) => next,
            // Somebody reads layers, or changes them.
            Err(FamilyError::Layers(SnapshotError::Busy)) => Next::Go(PAUSE),
            // A write hangs.
            Err(FamilyError::Layers(SnapshotError::Late)) => Next::Later(LATER),
            Err(error) if self.family.tree.is_doubtful() => {
                if !std::mem::replace(&mut self.is_told, true) {
                    tracing::error!("layers {id}: volumes take no writes until this can be written: {error}");
                }
                Next::Go(AGAIN)
            }
            Err(error @ FamilyError::Layers(SnapshotError::NoRoom { .. })) => {
                tracing::warn!("layers {id}: {error}; it is tried again every {} s", LATER.as_secs());
                Next::Later(LATER)
            }
            // What is below all layers is away, or full: nothing is wrong with the layers.
            Err(FamilyError::Layers(error @ SnapshotError::Store { layer: LayerId::BASE, .. })) => {
                let seconds = LATER.as_secs();
                tracing::warn!(
                    "layers {id}: nothing can be copied to what is below them: {error}; it is tried again every {seconds} s"
                );
                Next::LaterIfUsed(LATER)
            }
            Err(error) => {
                tracing::warn!("layers {id}: space that nobody needs is not given back yet: {error}");
                // Others of the family are not concerned.
                if self.family.tree.is_untidy() && !std::mem::replace(&mut self.is_told, true) {
                    return Next::Go(AGAIN);
                }
                Next::Done
            }
        }
    }

    /// Does a part; gives what is left to do.
    fn tidy(&mut self) -> Result<Next, FamilyError> {
        let family = self.family;
        if family.tidy()? {
            return Ok(Next::Go(PAUSE));
        }
        let foldable = family.tree.volumes().into_iter().find(|volume| family.tree.is_foldable(volume));
        // A volume that is written faster than it is folded has its last layer for longer.
        let Some(volume) = foldable.filter(|_| self.folds_left > 0) else {
            let Err(error) = family.seal() else { return Ok(Next::Done) };
            let (id, seconds) = (&family.id, LATER.as_secs());
            tracing::warn!(
                "layers {id}: what is below them cannot be looked at, so that nobody would notice if others wrote there: {error}; it is \
                 tried again every {seconds} s"
            );
            return Ok(Next::LaterIfUsed(LATER));
        };
        self.folds_left -= 1;
        family.fold_volume(&volume)?;
        Ok(Next::Go(PAUSE))
    }
}

#[cfg(test)]
mod tests;
