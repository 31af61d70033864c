//! What holds a copy up until a test has looked at it, however long that takes.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use sanwire_store::{Completer, CompletionQueue, Geometry, Request as StoreRequest, Started};

use super::*;

/// Memory that keeps writes until it is told to do them.
pub(super) struct Held {
    below: RamStore,
    is_held: AtomicBool,
    kept: Mutex<Vec<(StoreRequest, Completer)>>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

impl Held {
    pub(super) fn new(length_bytes: u64) -> Arc<Held> {
        Arc::new(Held {
            below: RamStore::new(length_bytes, 512),
            is_held: AtomicBool::new(true),
            kept: Mutex::default(),
        })
    }

    pub(super) fn release(&self) {
        self.is_held.store(false, Ordering::SeqCst);
        for (request, completer) in std::mem::take(&mut *self.kept.lock().unwrap()) {
            completer.complete(blocking::run(&self.below, request));
        }
    }
}

impl Store for Held {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn start(&self, request: StoreRequest, completions: &CompletionQueue) -> Started {
        let mut kept = self.kept.lock().unwrap();
        if !matches!(request, StoreRequest::Write { .. }) || !self.is_held.load(Ordering::SeqCst) {
            return self.below.start(request, completions);
        }
        let (pending, completer) = completions.pend();
        kept.push((request, completer));
        Started::Pending(pending)
    }
}

/// Begins with a copy, and waits until it writes: it does not get on before that is released.
pub(super) fn begin_held(desk: &ManagementHandle, far: &Held, order: CopyOrder) -> u64 {
    let id = begin(desk, order).unwrap();
    while far.kept.lock().unwrap().is_empty() {
        assert_eq!(job(desk, id, false).state, JobState::Running, "{:?}", job(desk, id, false));
        thread::sleep(Duration::from_millis(5));
    }
    id
}
