//! A program that is loaded: it judges commands, one after the other.
//!
//! There is one instance behind a lock, whichever shards ask: what a program remembers must be one for all of them, and a decision
//! that depends on it must come after the decision before. A call is bounded by its fuel, and so is the time for which others wait.

use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sanwire_device::{CommandProgram, JudgedCommand, Judgement, Keeping, RecordListener, Verdict};
use sanwire_scsi::{AdditionalSense, OperationClasses, Sense, SenseKey};

use crate::abi::{self, Answer, Header, Principals, write_command};
use crate::engine::{Code, Running};
use crate::error::LoadError;
use crate::limits::Limits;
use crate::state::{State, StateKeeper};
use crate::statistics::{Failure, ProgramStatistics};

/// A program that failed is the device's own fault, not that of who gave the command.
const FAILED: Sense = Sense::new(SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE);
/// Somebody has to make room for its state, or give it back its directory.
pub(crate) const NOT_KEPT: Sense =
    Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_MANUAL_INTERVENTION_REQUIRED);

/// Fuel that is told together with that of later calls if it is less: telling it takes as long as a small program.
const TOLD_FUEL: u64 = 1_000;

/// The version of a state that never becomes durable.
const NEVER: u64 = u64::MAX;

/// What a module says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Description {
    /// The version of the ABI.
    pub abi: u32,
    /// Memory that it has at the start, in bytes.
    pub memory_bytes: usize,
    /// State that is kept through restarts, in bytes.
    pub state_bytes: usize,
    /// How much of the data of a command it wants to see, in bytes.
    pub data_head_bytes: usize,
    /// The commands that it wants to judge.
    pub classes: OperationClasses,
    /// Whether it can be told of the end of commands.
    pub hears_of_ends: bool,
}

/// A program, ready to judge commands.
#[derive(Debug)]
pub struct Program {
    code: Code,
    header: Header,
    state: Option<Arc<State>>,
    bench: Mutex<Bench>,
    description: Description,
}

/// What one call after the other uses.
#[derive(Debug)]
struct Bench {
    /// None after a failure, until the next call.
    running: Option<Running>,
    principals: Principals,
    statistics: ProgramStatistics,
    /// What it has taken and no judgement has told yet.
    untold_fuel: u64,
}

/// What became of one call of a program.
#[derive(Debug)]
pub struct Judged {
    /// What is to be done with the command.
    pub judgement: Judgement,
    /// Why the program failed, if it did: then the command is refused.
    pub failure: Option<Failure>,
    /// The fuel that it took.
    pub fuel: u64,
}

impl Program {
    /// Checks a module without keeping anything of it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn describe(module: &[u8], limits: Limits) -> Result<Description, LoadError> {
        let running = Code::compile(module, limits)?.start()?;
        let header = Header::read(running.memory(), running.header_at())?;
        Ok(Description::of(&running, &header))
    }

    /// Checks and compiles a module, and gives it the state that is kept of it, or its first one. Nobody else may use the keeper's place.
    ///
    /// # Errors
    /// What is wrong with the module, or with its state.
    pub fn load(module: &[u8], limits: Limits, keeper: Option<Arc<dyn StateKeeper>>) -> Result<Program, LoadError> {
        let code = Code::compile(module, limits)?;
        let mut running = code.start()?;
        let header = Header::read(running.memory(), running.header_at())?;
        let description = Description::of(&running, &header);
        let state = match (header.state.bytes, keeper) {
            (0, _) => None,
            (bytes, None) => return Err(LoadError::NoKeeper { bytes }),
            (_, Some(keeper)) => Some(State::load(keeper, header.state.of(running.memory()))?),
        };
        if let Some(state) = &state {
            state.restore(header.state.of_mut(running.memory_mut()));
        }
        let (principals, statistics) = Default::default();
        let bench = Mutex::new(Bench { running: Some(running), principals, statistics, untold_fuel: 0 });
        Ok(Program { code, header, state, bench, description })
    }

    /// Commands wait for so long for a state that cannot be kept, rather than for ten seconds.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Program {
        self.state.iter().for_each(|state| state.set_patience(patience));
        self
    }

    /// The same, with all calls left to the general interpreter: from a program without this nobody can tell it apart but by the time that
    /// it takes. Tests compare the two.
    #[must_use]
    pub fn interpreted(mut self) -> Program {
        self.code.leave_to_interpreter();
        // What runs already is replaced by the next call, which has its state.
        self.lock().running = None;
        self
    }

    /// Whether it is judged by the shorter way, and not by the general interpreter.
    #[must_use]
    pub fn is_decoded(&self) -> bool {
        self.code.is_decoded()
    }

    /// What its module says of itself.
    #[must_use]
    pub fn description(&self) -> Description {
        self.description
    }

    /// What it has done so far.
    #[must_use]
    pub fn statistics(&self) -> ProgramStatistics {
        self.lock().statistics
    }

    /// Makes its state durable as it is now, and waits for that as long as its keeper takes: for an orderly end.
    ///
    /// # Errors
    /// Those of its keeper.
    pub fn flush(&self) -> io::Result<()> {
        self.state.as_ref().map_or(Ok(()), |state| state.flush())
    }

    /// Judges a command, and says what that took.
    #[inline]
    pub fn run(&self, command: &JudgedCommand<'_>) -> Judged {
        if !self.header.classes.intersects(command.classes) {
            return Judged { judgement: Verdict::Allow.into(), failure: None, fuel: 0 };
        }
        let mut bench = self.lock();
        let (returned, fuel) = self.call(&mut bench, command);
        bench.statistics.call(fuel);
        bench.untold_fuel += fuel;
        // As nearly always: then nothing is read but this, and nothing is moved that there is not.
        if self.state.is_none() && returned.is_ok_and(abi::is_allowance) {
            bench.statistics.allowed += 1;
            let judgement = Judgement { verdict: Verdict::Allow, keep: None, end: None, fuel: bench.tell_fuel() };
            return Judged { judgement, failure: None, fuel };
        }
        let (judgement, failure) = self.judgement(&mut bench, returned, command);
        Judged { judgement, failure, fuel }
    }

    /// Has its instance judge a command. Gives what that returned, and the fuel that was taken.
    #[inline]
    fn call(&self, bench: &mut Bench, command: &JudgedCommand<'_>) -> (Result<u32, Failure>, u64) {
        let Bench { running, principals, .. } = bench;
        let Some(running) = self.started(running) else { return (Err(Failure::NotRunning), 0) };
        let (returned, fuel) = running.judge(self.code.fuel(), |memory| {
            write_command(memory, &self.header, command, principals);
        });
        (returned.map_err(Failure::from), fuel)
    }

    /// What was judged of a command, of which its instance has returned this, and why it failed, if it did.
    fn judgement(
        &self,
        bench: &mut Bench,
        returned: Result<u32, Failure>,
        command: &JudgedCommand<'_>,
    ) -> (Judgement, Option<Failure>) {
        match returned.and_then(|returned| self.answer(bench, returned, command)) {
            Ok(judgement) => {
                bench.statistics.verdict(&judgement.verdict);
                (Judgement { fuel: bench.tell_fuel(), ..judgement }, None)
            }
            Err(failure) => {
                self.fail(bench, failure);
                (Judgement { fuel: bench.tell_fuel(), ..Verdict::Refuse(sense(failure)).into() }, Some(failure))
            }
        }
    }

    fn answer(&self, bench: &mut Bench, returned: u32, command: &JudgedCommand<'_>) -> Result<Judgement, Failure> {
        let running = bench.running.as_ref().ok_or(Failure::NotRunning)?;
        let answer = Answer::read(returned, running.memory(), &self.header, command, running.hears_of_ends());
        let Answer { verdict, keeps, token } = answer.map_err(Failure::Nonsense)?;
        if keeps && self.state.as_ref().is_some_and(|state| state.is_hopeless()) {
            return Err(Failure::StateNotKept);
        }
        Ok(Judgement { verdict, keep: self.take_state(running, keeps), end: token, fuel: 0 })
    }

    /// Its instance; a new one with the state of now, if there is none.
    #[inline]
    fn started<'a>(&self, running: &'a mut Option<Running>) -> Option<&'a mut Running> {
        if running.is_none() {
            *running = self.start();
        }
        running.as_mut()
    }

    #[cold]
    fn start(&self) -> Option<Running> {
        let mut new = self.code.start().ok()?;
        if let Some(state) = &self.state {
            state.restore(self.header.state.of_mut(new.memory_mut()));
        }
        Some(new)
    }

    /// Its state is what the call has made of it. Gives the version to wait for, if it is to be waited for.
    fn take_state(&self, running: &Running, is_awaited: bool) -> Option<u64> {
        let state = self.state.as_ref()?;
        let version = state.take(self.header.state.of(running.memory()), is_awaited);
        is_awaited.then_some(version)
    }

    /// The instance may be anything now: the next call has a new one, with the state of before this call.
    fn fail(&self, bench: &mut Bench, failure: Failure) {
        bench.running = None;
        bench.statistics.failure(failure);
        // A new instance takes about as long as a call that takes all its fuel.
        bench.untold_fuel += self.code.fuel();
    }

    fn end_with(&self, bench: &mut Bench, token: u64, is_good: bool) -> (Result<Option<u64>, Failure>, u64) {
        let Some(running) = self.started(&mut bench.running) else { return (Err(Failure::NotRunning), 0) };
        let (returned, fuel) = running.ended(token, is_good, self.code.fuel());
        let kept = returned.map_err(Failure::from).and_then(|returned| {
            let keeps = abi::ended(returned).map_err(Failure::Nonsense)?;
            // The command is done: what the program knows of it now must not be lost, even if it cannot be kept yet.
            Ok(self.take_state(running, keeps))
        });
        (kept, fuel)
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Bench> {
        self.bench.lock().unwrap_or_else(|poisoned| {
            // Whoever panicked may have left anything in the instance.
            self.bench.clear_poison();
            let mut bench = poisoned.into_inner();
            bench.running = None;
            bench
        })
    }
}

impl Bench {
    /// The fuel that a judgement tells.
    fn tell_fuel(&mut self) -> u64 {
        if self.untold_fuel < TOLD_FUEL { 0 } else { mem::take(&mut self.untold_fuel) }
    }
}

impl CommandProgram for Program {
    fn judge(&self, command: &JudgedCommand<'_>) -> Judgement {
        self.run(command).judgement
    }

    fn classes(&self) -> OperationClasses {
        self.description.classes
    }

    fn data_head_bytes(&self) -> usize {
        self.description.data_head_bytes
    }

    fn listen(&self, listener: RecordListener) {
        if let Some(state) = &self.state {
            state.listen(listener);
        }
    }

    fn keeping(&self, wish: u64) -> Keeping {
        let unkept = if wish == NEVER { Keeping::Failed } else { Keeping::Kept };
        self.state.as_ref().map_or(unkept, |state| state.keeping(wish))
    }

    fn ended(&self, token: u64, is_good: bool) -> Option<u64> {
        let mut bench = self.lock();
        let (kept, fuel) = self.end_with(&mut bench, token, is_good);
        bench.statistics.ended(fuel);
        bench.untold_fuel += fuel;
        kept.unwrap_or_else(|failure| {
            self.fail(&mut bench, failure);
            // Who gave the command must not believe that all is well with it.
            Some(NEVER)
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(state) = &self.state {
            state.end();
        }
    }
}

impl Description {
    fn of(running: &Running, header: &Header) -> Description {
        Description {
            abi: 1,
            memory_bytes: running.memory().len(),
            state_bytes: header.state.bytes as usize,
            data_head_bytes: header.data.bytes as usize,
            classes: header.classes,
            hears_of_ends: running.hears_of_ends(),
        }
    }
}

/// How a command ends whose program failed.
fn sense(failure: Failure) -> Sense {
    if failure == Failure::StateNotKept { NOT_KEPT } else { FAILED }
}
