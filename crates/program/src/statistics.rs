//! What a program has done so far.

use std::fmt;

use sanwire_device::Verdict;

use crate::abi::Nonsense;
use crate::engine::Trap;

/// What a program has done since it was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProgramStatistics {
    /// Commands that it was asked about; one that was deferred counts each time.
    pub calls: u64,
    /// Commands that it let through as they are.
    pub allowed: u64,
    /// Commands that it refused.
    pub refused: u64,
    /// Commands that it had go to another LBA.
    pub redirected: u64,
    /// Commands that it changed.
    pub rewritten: u64,
    /// Times that it put a command off.
    pub deferred: u64,
    /// Ends of commands that it was told of.
    pub ends: u64,
    /// Calls in which it failed, see [`Failure`]. If it was asked about a command, that was refused.
    pub failed: u64,
    /// Of these, those in which it ran out of fuel.
    pub out_of_fuel: u64,
    /// Of these, those in which it trapped.
    pub trapped: u64,
    /// Of these, those in which its answer made no sense.
    pub nonsense: u64,
    /// All fuel that it has taken.
    pub fuel: u64,
    /// The most fuel that one call has taken.
    pub fuel_max: u64,
    /// How it failed last.
    pub last_failure: Option<Failure>,
}

/// How a program failed. It then begins anew, with the state of before that call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// It ran for too long.
    OutOfFuel,
    /// It did something that ends a program: the words say what.
    Trapped(&'static str),
    /// It said something that makes no sense.
    Nonsense(Nonsense),
    /// It wanted its state to be durable first, and that has not been possible for some time.
    StateNotKept,
    /// It could not be started again after it had failed: there was no memory.
    NotRunning,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::OutOfFuel => f.write_str("the program ran out of fuel"),
            Failure::Trapped(what) => write!(f, "the program trapped: {what}"),
            Failure::Nonsense(nonsense) => write!(f, "the program's answer makes no sense: {nonsense}"),
            Failure::StateNotKept => f.write_str("the state of the program cannot be kept where it should be"),
            Failure::NotRunning => f.write_str("the program could not be started again"),
        }
    }
}

impl From<Trap> for Failure {
    fn from(trap: Trap) -> Self {
        match trap {
            Trap::OutOfFuel => Failure::OutOfFuel,
            Trap::Other(what) => Failure::Trapped(what),
        }
    }
}

impl ProgramStatistics {
    /// Notes a call that took so much fuel.
    pub(crate) fn call(&mut self, fuel: u64) {
        self.calls += 1;
        self.fuel += fuel;
        self.fuel_max = self.fuel_max.max(fuel);
    }

    /// Notes a call that told of the end of a command.
    pub(crate) fn ended(&mut self, fuel: u64) {
        self.ends += 1;
        self.fuel += fuel;
        self.fuel_max = self.fuel_max.max(fuel);
    }

    pub(crate) fn verdict(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Allow => &mut self.allowed,
            Verdict::Refuse(_) => &mut self.refused,
            Verdict::Redirect { .. } => &mut self.redirected,
            Verdict::Rewrite(_) => &mut self.rewritten,
            Verdict::Defer { .. } => &mut self.deferred,
        } += 1;
    }

    pub(crate) fn failure(&mut self, failure: Failure) {
        self.failed += 1;
        match failure {
            Failure::OutOfFuel => self.out_of_fuel += 1,
            Failure::Trapped(_) => self.trapped += 1,
            Failure::Nonsense(_) => self.nonsense += 1,
            Failure::StateNotKept | Failure::NotRunning => {}
        }
        self.last_failure = Some(failure);
    }
}
