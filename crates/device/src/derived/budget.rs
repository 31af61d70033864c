//! What the programs of a derived unit, and of all that is derived from it, may take of processors.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sanwire_core::Instant;
use sanwire_core::quota::{PROGRAM_FUEL, PROGRAM_FUEL_BURST, Usage};

/// The time in which a unit of fuel comes back.
const FUEL_NS: u64 = 1_000_000_000 / PROGRAM_FUEL.limit;
/// So much may be owed when a program is asked.
const BURST_NS: u64 = PROGRAM_FUEL_BURST as u64 * FUEL_NS;
/// So much is still owed when a command that was put off is asked about again: the rest is for all the calls that it takes.
const OWED_AFTER_DELAY_NS: u64 = BURST_NS / 2;

/// The fuel of a unit's programs. A call counts for the unit whose program it is, and for all that this is derived from: who may derive
/// as many units as he likes has no more for them.
#[derive(Default, Debug)]
pub(crate) struct Budget {
    /// The time at which the budget is full again, in nanoseconds.
    full_at_ns: AtomicU64,
    /// How often a command was put off.
    delayed: AtomicU64,
    of_parent: Option<Arc<Budget>>,
}

impl Budget {
    pub(crate) fn new(of_parent: Option<Arc<Budget>>) -> Self {
        Budget { of_parent, ..Budget::default() }
    }

    /// For how long no program may be asked; `None`: one may.
    pub(crate) fn delay(&self, now: Instant) -> Option<Duration> {
        let full_at_ns = self.line().map(|budget| budget.full_at_ns.load(Ordering::Relaxed)).max().unwrap_or(0);
        let owed_ns = full_at_ns.saturating_sub(now.as_nanos());
        if owed_ns <= BURST_NS {
            return None;
        }
        self.delayed.fetch_add(1, Ordering::Relaxed);
        Some(Duration::from_nanos(owed_ns - OWED_AFTER_DELAY_NS))
    }

    /// A program has taken so much.
    pub(crate) fn charge(&self, fuel: u64, now: Instant) {
        if fuel == 0 {
            return;
        }
        let taken_ns = fuel.saturating_mul(FUEL_NS);
        let charged = |full_at_ns: u64| Some(full_at_ns.max(now.as_nanos()).saturating_add(taken_ns));
        for budget in self.line() {
            // Nothing keeps it from being charged.
            let _ = budget.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charged);
        }
    }

    /// How the quota is used.
    pub(crate) fn usage(&self) -> Usage {
        Usage::refused(&PROGRAM_FUEL, self.delayed.load(Ordering::Relaxed))
    }

    fn line(&self) -> impl Iterator<Item = &Budget> {
        iter::successors(Some(self), |budget| budget.of_parent.as_deref())
    }
}
