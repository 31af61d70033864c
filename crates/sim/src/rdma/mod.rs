//! RDMA adapters in memory: both ends of a connection, and what is between them.
//!
//! They are as nasty as adapters are. What is posted is done late, and what has become of it is told later still, in batches; queues are short;
//! a message for which no receive is posted waits or costs the connection; memory is what it is when the adapter gets to it; keys mean nothing to
//! others, and addresses are not zero; what was given is not let go before it is told, or its end dropped. [`Cable::cut`] may come between any two steps.
//!
//! A test has time pass by [`Cable::turn`]; one that drives threads lets all happen [at once](Pace::AtOnce), and is called when an end has something
//! to tell ([`Cable::on_ready`]).

mod completions;
mod end;
mod side;
mod steps;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::end::{End, PATH_MTU_BYTES};
use self::side::Side;
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
    /// It knows Send with Invalidate.
    pub invalidates: bool,
    /// A message for which no receive is posted waits for one (InfiniBand); otherwise it costs the connection (iWARP).
    pub waits_for_receives: bool,
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
            invalidates: true,
            waits_for_receives: false,
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
            invalidates: random.chance(500_000),
            waits_for_receives: random.chance(300_000),
            pads: random.chance(500_000),
        }
    }
}

/// When what is posted is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// When somebody says so, a step at a time.
    ByTurns,
    /// Before the call ends by which it was posted.
    AtOnce,
}

/// What is between two ends.
#[derive(Clone)]
pub struct Cable(Arc<Mutex<State>>);

struct State {
    sides: [Side; 2],
    random: Random,
    pace: Pace,
    /// Nothing passes any more.
    is_cut: bool,
    steps: u64,
}

impl fmt::Debug for Cable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Cable").field("is_cut", &state.is_cut).field("sides", &state.sides).finish_non_exhaustive()
    }
}

/// A connection that is being set up: the end that connects, the end that it connects to, and what is between them.
#[must_use]
pub fn connect(plans: [AdapterPlan; 2], pace: Pace, seed: u64) -> (End, End, Cable) {
    let sides = [Side::new(plans[0], true), Side::new(plans[1], false)];
    let state = State { sides, random: Random::new(seed), pace, is_cut: false, steps: 0 };
    let cable = Cable(Arc::new(Mutex::new(state)));
    cable.with(|_| {});
    (End::new(cable.clone(), 0), End::new(cable.clone(), 1), cable)
}

impl Cable {
    /// Does one step of what is to be done; `false` when nothing is.
    pub fn turn(&self) -> bool {
        let mut state = self.lock();
        let has_gone_on = state.turn();
        let calls = state.due_calls();
        drop(state);
        calls.iter().for_each(|call| call());
        has_gone_on
    }

    /// Whether a turn would do anything.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.lock().choices().is_empty()
    }

    /// Whether an end (0 is the one that has connected) has something to tell.
    #[must_use]
    pub fn is_ready(&self, end: usize) -> bool {
        self.lock().sides[end].completions.is_ready()
    }

    /// From now on this is called whenever an end has something to tell: as the descriptor of an adapter becomes readable. It must not
    /// call back.
    pub fn on_ready(&self, end: usize, call: Arc<dyn Fn() + Send + Sync>) {
        let mut state = self.lock();
        let is_ready = state.sides[end].completions.is_ready();
        state.sides[end].on_ready = Some(Arc::clone(&call));
        drop(state);
        if is_ready {
            call();
        }
    }

    /// Nothing passes any more, and these ends learn it at once; another one when it has waited in vain.
    pub fn cut(&self, is_noticed_by: [bool; 2]) {
        self.with(|state| state.cut(is_noticed_by));
    }

    /// How many steps there have been.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Does something, and what follows at once.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let done = act(&mut state);
        while state.pace == Pace::AtOnce && state.turn() {}
        let calls = state.due_calls();
        drop(state);
        calls.iter().for_each(|call| call());
        done
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
