//! What a server's host keeps of writes that were not flushed, through the ends of its servers: whether some may have been
//! lost, and who alone has written.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_device::{RecordListener, Tenure, TenureKeeper, Volatility};

use crate::random::Random;

/// The records of one disk.
#[derive(Debug, Default)]
pub struct Records {
    /// The server before has stopped when all was stable.
    is_clean: bool,
    tenures: Arc<Tenures>,
}

impl Records {
    /// A server starts with these.
    pub fn open(&mut self) -> Volatility {
        self.is_clean = false;
        let mut state = self.tenures.lock();
        (state.is_running, state.fails) = (true, false);
        let State { verifier, has_failed, durable, .. } = *state;
        Volatility { verifier, has_failed, tenure: durable, keeper: Some(Arc::clone(&self.tenures) as _) }
    }

    /// The server's process ends at once: nothing that it would still do when it lets go of what it has reaches them.
    pub fn kill(&mut self) {
        self.tenures.lock().is_running = false;
    }

    /// The server has made all stable and is gone, or tells its clients that it could not.
    pub fn close(&mut self, is_stable: bool) {
        self.is_clean = true;
        let mut state = self.tenures.lock();
        state.has_failed = state.fails || !is_stable;
        if !is_stable {
            state.renew();
        }
    }

    /// The host has lost its power.
    pub fn lose_power(&mut self, random: &mut Random) {
        let mut state = self.tenures.lock();
        state.lose_power(random);
        if !self.is_clean {
            state.renew();
        }
    }
}

/// What is wanted is durable as soon as somebody has asked whether it is, or wants something else; before that, the power decides.
#[derive(Debug, Default)]
struct Tenures(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    drawn: u64,
    wishes: u64,
    kept: u64,
    wanted: Option<Tenure>,
    durable: Option<Tenure>,
    verifier: [u8; 16],
    /// A flush has failed in this run.
    fails: bool,
    /// One has failed, and no run since then has stopped cleanly in which none failed.
    has_failed: bool,
}

impl Tenures {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep(&mut self) {
        (self.kept, self.durable) = (self.wishes, self.wanted);
    }

    fn renew(&mut self) {
        self.drawn += 1;
        self.verifier = field(self.drawn);
    }

    fn lose_power(&mut self, random: &mut Random) {
        if self.kept < self.wishes && random.chance(500_000) {
            self.keep();
        }
        (self.kept, self.wanted) = (self.wishes, self.durable);
    }
}

impl TenureKeeper for Tenures {
    /// What is wanted becomes durable when somebody looks.
    fn listen(&self, _: RecordListener) {}

    fn draw(&self) -> Option<[u8; 16]> {
        let mut state = self.lock();
        state.drawn += 1;
        Some(field(state.drawn))
    }

    fn want(&self, tenure: Option<Tenure>) -> u64 {
        let mut state = self.lock();
        // What was wanted before has had its time.
        if state.kept < state.wishes {
            state.keep();
        }
        state.wanted = tenure;
        state.wishes += 1;
        state.wishes
    }

    fn is_kept(&self, wish: u64) -> bool {
        let mut state = self.lock();
        if state.kept < wish {
            state.keep();
        }
        state.kept >= wish
    }

    fn renew(&self, verifier: [u8; 16]) {
        let mut state = self.lock();
        if state.is_running {
            (state.verifier, state.has_failed, state.fails) = (verifier, true, true);
        }
    }

    fn is_failing(&self) -> bool {
        false
    }
}

/// Far from all others: a server counts failures from there on.
fn field(number: u64) -> [u8; 16] {
    (u128::from(number) << 64).to_be_bytes()
}
