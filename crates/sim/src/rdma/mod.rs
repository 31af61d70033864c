//! RDMA adapters in memory: both ends of a connection, and what is between them.
//!
//! They are as nasty as adapters are. What is posted is done late, and what has become of it is told later still, in batches; queues are short;
//! a message for which no receive is posted waits or costs the connection; memory is what it is when the adapter gets to it; keys mean nothing to
//! others, and addresses are not zero; what was given is not let go before it is told, or its end dropped. [`Cable::cut`] may come between any two steps.
//! Connections of one [`Adapter`] may share its receives: then a message waits as long as others have all of them, and who sends more than it was
//! allowed loses its connection.
//!
//! A test has time pass by [`Cable::turn`]; one that drives threads lets all happen [at once](Pace::AtOnce), and is called when an end has something
//! to tell ([`Cable::on_ready`]).

mod adapter;
mod completions;
mod end;
mod side;
mod steps;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub use self::adapter::{Adapter, AdapterPlan};
pub use self::end::{End, PATH_MTU_BYTES};
use self::side::Side;
use crate::random::Random;

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
    own: Weak<Mutex<State>>,
    /// Connections that may go on since something has happened on this one.
    woken: Vec<Weak<Mutex<State>>>,
}

impl fmt::Debug for Cable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Cable").field("is_cut", &state.is_cut).field("sides", &state.sides).finish_non_exhaustive()
    }
}

/// A connection that is being set up, by adapters that carry no others: the end that connects, the end that it connects to, and what is
/// between them.
#[must_use]
pub fn connect(plans: [AdapterPlan; 2], pace: Pace, seed: u64) -> (End, End, Cable) {
    connect_by(&plans.map(Adapter::new), pace, seed)
}

/// The same, by these adapters.
#[must_use]
pub fn connect_by(adapters: &[Adapter; 2], pace: Pace, seed: u64) -> (End, End, Cable) {
    let sides = [Side::new(adapters[0].clone(), true), Side::new(adapters[1].clone(), false)];
    let cable = Cable(Arc::new_cyclic(|own| {
        let (own, random) = (Weak::clone(own), Random::new(seed));
        Mutex::new(State { sides, random, pace, is_cut: false, steps: 0, own, woken: Vec::new() })
    }));
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
        Cable::follow(state);
        done
    }

    /// Does what follows at once, here and on those connections that have waited for it.
    fn follow(mut state: MutexGuard<'_, State>) {
        while state.pace == Pace::AtOnce && state.turn() {}
        let (calls, woken) = (state.due_calls(), std::mem::take(&mut state.woken));
        drop(state);
        calls.iter().for_each(|call| call());
        for other in woken.iter().filter_map(Weak::upgrade) {
            Cable::follow(Cable(other).lock());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
