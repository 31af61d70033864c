//! What an adapter is like, and what its connections share.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::State;
use crate::random::Random;

/// What an adapter is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdapterPlan {
    /// Orders and reads that it takes before one is done.
    pub queue_max: usize,
    /// Reads of the other end that it serves at a time.
    pub ird: u16,
    /// Reads of its own at a time.
    pub ord: u16,
    /// Windows at a time.
    pub windows_max: usize,
    /// Windows are bound in their turn, among what is posted, and bound again when they were ended from afar: memory windows of type 2.
    pub has_memory_windows: bool,
    /// It knows Send with Invalidate.
    pub invalidates: bool,
    /// A message for which no receive is posted waits for one (InfiniBand); otherwise it costs the connection (iWARP).
    pub waits_for_receives: bool,
    /// Receives that all who were connected to share, where messages wait for them; 0: each has its own.
    pub shared_receives: usize,
    /// It appends zeroes to private data (RoCE).
    pub pads: bool,
}

impl AdapterPlan {
    /// One without peculiarities.
    #[must_use]
    pub fn plain() -> Self {
        AdapterPlan {
            queue_max: 128,
            ird: 16,
            ord: 16,
            windows_max: 1024,
            has_memory_windows: false,
            invalidates: true,
            waits_for_receives: false,
            shared_receives: 0,
            pads: false,
        }
    }

    /// One of any kind.
    pub fn any(random: &mut Random) -> Self {
        AdapterPlan {
            queue_max: random.choose(&[1, 2, 5, 128]),
            ird: random.choose(&[1, 2, 16, 128]),
            ord: random.choose(&[1, 2, 16, 128]),
            windows_max: random.choose(&[1, 2, 5, 1024, 1024]),
            has_memory_windows: random.chance(500_000),
            invalidates: random.chance(500_000),
            waits_for_receives: random.chance(500_000),
            shared_receives: random.choose(&[0, 1, 3, 200]),
            pads: random.chance(500_000),
        }
    }
}

/// An adapter of a host, for all connections that go by it.
#[derive(Clone)]
pub struct Adapter(Arc<Inner>);

struct Inner {
    plan: AdapterPlan,
    shared: Mutex<Shared>,
}

struct Shared {
    /// Receives that are posted for all.
    receives: usize,
    /// Connections that wait for one.
    waiting: Vec<Weak<Mutex<State>>>,
    /// Memory windows that there have been.
    windows: u32,
}

impl Adapter {
    /// One that is like that.
    #[must_use]
    pub fn new(plan: AdapterPlan) -> Self {
        let shared = Shared { receives: plan.shared_receives, waiting: Vec::new(), windows: 0 };
        Adapter(Arc::new(Inner { plan, shared: Mutex::new(shared) }))
    }

    /// What it is like.
    #[must_use]
    pub fn plan(&self) -> AdapterPlan {
        self.0.plan
    }

    /// Receives that are posted for all connections that share them, and free.
    #[must_use]
    pub fn free_receives(&self) -> usize {
        self.lock().receives
    }

    /// The key of a window that there was not yet. No other connection of the adapter has it, but each may try it.
    pub(super) fn new_window(&self) -> u32 {
        let mut shared = self.lock();
        shared.windows += 1;
        shared.windows << 8
    }

    /// Whether there is a receive for a message; if not, this connection is told when there is.
    pub(super) fn has_receive(&self, waits: &Weak<Mutex<State>>) -> bool {
        let mut shared = self.lock();
        if shared.receives == 0 && !shared.waiting.iter().any(|known| known.ptr_eq(waits)) {
            shared.waiting.push(Weak::clone(waits));
        }
        shared.receives > 0
    }

    /// Takes a receive for a message, if there is one.
    pub(super) fn take_receive(&self) -> bool {
        let mut shared = self.lock();
        let has_one = shared.receives > 0;
        shared.receives -= usize::from(has_one);
        has_one
    }

    /// So many are posted again. Gives who waits for that.
    pub(super) fn give_back(&self, count: usize) -> Vec<Weak<Mutex<State>>> {
        let mut shared = self.lock();
        shared.receives += count;
        if count > 0 { std::mem::take(&mut shared.waiting) } else { Vec::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter").field("plan", &self.0.plan).field("receives", &self.free_receives()).finish()
    }
}
