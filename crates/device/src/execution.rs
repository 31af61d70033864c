//! A command that is on its way: what it has done, what comes next.

mod account;
mod waiting;

use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_core::NexusId;
use sanwire_scsi::{Reply, Sense, Status, Task};
use sanwire_store::{Completion, CompletionQueue, Outcome, Request, Store};

pub(crate) use self::account::Given;
use self::waiting::Prepared;
pub use self::waiting::Waiting;
use crate::abort_scope::AbortScope;
use crate::beginning::Account;
use crate::fault;
use crate::hold::{Hold, Turn};
use crate::logical_unit::LogicalUnit;
use crate::range::Range;
use crate::refusal::Refusal;
use crate::step::{State, Step, finish, flushed};
use crate::store_retry::StoreRetry;

/// What became of a task, so far.
#[derive(Debug)]
#[must_use = "a task ends only when its store's work is done and its reply is sent"]
pub enum Progress {
    /// It is over.
    Done(Reply),
    /// The store must do this, by `execution.store().start(request, ..)`; its completion goes to
    /// [`crate::LogicalUnits::resume`] together with the execution.
    Store(Execution, Request),
    /// [`Reply::good`] without data is to be sent now; the work goes on as with [`Progress::Store`], and what comes in
    /// the end is for nobody.
    Answered(Execution, Request),
    /// Another command changes the same blocks, and this one goes on after it: ask [`crate::LogicalUnits::retry`] again soon.
    Wait(Waiting),
    /// Every command that the scope covers must be ended by the caller: dropped before its store begins, waited for when
    /// it has begun, and its initiator answered TASK ABORTED (the control mode page has TAS). Then `Ok(Outcome::Done)`
    /// goes to [`crate::LogicalUnits::resume`] together with the execution.
    Abort(Execution, AbortScope),
    /// A piece of it is done, on this disk. When its data has been sent, or more of what the initiator sends has come, the same task
    /// begins with the next [`sanwire_scsi::Piece`]: [`Reply::rest`] says which. Until then nothing is held; who aborts the command
    /// forgets it.
    Piece(Reply, Arc<LogicalUnit>),
    /// The region has no frame free: nothing has happened, begin the task again later.
    NoMemory(Task),
}

/// A command that waits for its store. Dropping it aborts the command between two requests.
#[derive(Debug)]
pub struct Execution {
    hold: Hold,
    state: State,
    account: Account,
}

impl Execution {
    /// The store that must do the request.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        self.worker().store()
    }

    /// Which commands wait for that store.
    #[must_use]
    pub fn stalls(&self) -> &Arc<StoreRetry> {
        self.worker().stalls()
    }

    /// The disk whose store works for the command: its own, or one that it copies from or to.
    fn worker(&self) -> &LogicalUnit {
        match &self.state {
            State::Ongoing(ongoing) => ongoing.worker().unwrap_or(&self.hold.disk),
            _ => &self.hold.disk,
        }
    }

    /// What it holds of that disk.
    fn worker_hold(&mut self) -> &mut Hold {
        match &mut self.state {
            State::Ongoing(ongoing) => ongoing.worker_hold().unwrap_or(&mut self.hold),
            _ => &mut self.hold,
        }
    }

    fn may_go(&mut self) -> Turn {
        let turn = match &mut self.state {
            State::Ongoing(ongoing) => ongoing.may_go(),
            State::Reserve(reserving) if !reserving.may_go() => Turn::Later,
            _ => Turn::Now,
        };
        if turn == Turn::Now { self.hold.may_go() } else { turn }
    }

    /// Has this driver woken when what it waits for may have ended.
    fn wake(&mut self, driver: &CompletionQueue) {
        self.hold.wake(driver);
        self.worker_hold().wake(driver);
    }

    /// Call when its nexus is (possibly) lost while its store works for it, and it ends with the blocks that it is at. Until then no
    /// other command, from any nexus, touches those that it changes.
    pub fn keep_blocks(&mut self) {
        self.keep(None);
    }

    /// The same when it does not end with the blocks that it is at, but goes on from blocks to blocks: all that it is still going to
    /// change is kept.
    pub fn keep_all_blocks(&mut self) {
        let ahead = if let State::Ongoing(ongoing) = &self.state { ongoing.ahead() } else { None };
        self.keep(ahead);
    }

    fn keep(&mut self, ahead: Option<Range>) {
        self.hold.keep(ahead);
        if let State::Ongoing(ongoing) = &mut self.state {
            ongoing.keep_blocks();
        }
    }

    /// Whether it does the same when its initiator gives it once more, after its store has failed.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        matches!(self.state, State::Read { .. } | State::Write { .. })
    }

    /// Whether it goes on to other blocks, which others may have written meanwhile, when its store has done what it is doing.
    #[must_use]
    pub fn goes_from_blocks_to_blocks(&self) -> bool {
        matches!(&self.state, State::Ongoing(ongoing) if ongoing.goes_from_blocks_to_blocks())
    }

    /// The disk that executes the command.
    #[must_use]
    pub fn disk(&self) -> &LogicalUnit {
        &self.hold.disk
    }

    /// Whether PREEMPT AND ABORT ends it, when it is a command of this nexus: for its disk, or as a copy from or to the scope's.
    #[must_use]
    pub fn is_covered_by(&self, scope: &AbortScope, nexus: NexusId) -> bool {
        let is_covered_elsewhere = || matches!(&self.state, State::Ongoing(ongoing) if ongoing.is_covered_by(scope));
        scope.covers(self.disk().id(), nexus) || is_covered_elsewhere()
    }

    /// Whether neither a reset nor an abort nor the loss of the nexus may end it: a sanitize goes on without the one
    /// who asked for it (SBC-4 4.11.2). Its reply is then for nobody.
    #[must_use]
    pub fn outlives_its_task(&self) -> bool {
        self.hold.outlives_its_task
    }

    /// Wraps the first step.
    pub(crate) fn begin(
        disk: Arc<LogicalUnit>,
        step: Result<Step, Sense>,
        room_bytes: usize,
        account: Account,
        given: Given,
    ) -> Progress {
        let (state, request, is_answered) = match step {
            Ok(Step::Store(state, request) | Step::Later(state, request)) => (state, request, false),
            Ok(Step::Detached(state, request)) => (state, request, true),
            Ok(step @ (Step::Abort(_) | Step::Reserve(_))) => {
                return reserved(Hold::new(disk, None, given.nexus), Ok(step), account);
            }
            over => {
                let is_bulk_read = given.is_bulk_read;
                return account.close(&disk, Reply { is_bulk_read, ..reply(&disk, over, room_bytes) });
            }
        };
        let outlives_its_task = matches!(&state, State::Ongoing(ongoing) if ongoing.outlives_its_task());
        let mut hold = Hold::new(disk, state.claim(&request), given.nexus);
        (hold.outlives_its_task, hold.receipts, hold.is_bulk_read) =
            (outlives_its_task, given.receipts, given.is_bulk_read);
        Prepared { execution: Execution { hold, state, account }, request, is_answered }.progress()
    }

    /// It was aborted while its store worked for it, which has ended so: what that means to others.
    pub fn abandon(mut self, completion: &Completion) {
        let hold = self.worker_hold();
        if hold.is_flushing() && completion.is_err() {
            hold.disk.flush_failed();
        }
        hold.end_flush();
    }

    pub(crate) fn resume(mut self, completion: Completion, memory: &Region) -> Progress {
        if self.state.is_of_medium_of(&self.hold.disk) {
            self.worker().note(completion.as_ref().err());
        }
        if completion.is_ok() && self.worker_hold().must_settle() {
            // Its store has nothing more to do.
            let request = Request::Flush;
            return Progress::Wait(Waiting::of(Prepared { execution: self, request, is_answered: false }));
        }
        self.go_on(completion, memory)
    }

    fn go_on(mut self, completion: Completion, memory: &Region) -> Progress {
        let (completion, receipt) = self.worker_hold().flushed(completion);
        if !matches!(self.state, State::Read { .. }) {
            self.worker().medium_changed();
        }
        let Execution { mut hold, state, account } = self;
        let step = state.next(&hold.disk, completion, memory).and_then(|step| {
            if let Step::Store(state, request) | Step::Later(state, request) = &step
                && state.is_by_pieces()
            {
                hold.go_to(state.claim(request));
                hold.check_not_busy()?;
            }
            Ok(step)
        });
        match step {
            Ok(Step::Store(state, request) | Step::Detached(state, request)) => {
                let execution = Execution { hold, state, account };
                Prepared { execution, request, is_answered: false }.progress()
            }
            Ok(Step::Later(state, request)) => {
                let execution = Execution { hold, state, account };
                Progress::Wait(Waiting::of(Prepared { execution, request, is_answered: false }))
            }
            // The steps after the first bring what was cut already.
            over => {
                let is_bulk_read = hold.is_bulk_read;
                account.close(&hold.disk, Reply { receipt, is_bulk_read, ..reply(&hold.disk, over, usize::MAX) })
            }
        }
    }
}

/// How a command of reservations goes on.
fn reserved(hold: Hold, step: Result<Step, Refusal>, account: Account) -> Progress {
    let step = match step {
        Ok(Step::Abort(scope)) => {
            return Progress::Abort(Execution { hold, state: State::Abort, account }, scope);
        }
        Ok(Step::Reserve(reserving)) => {
            let execution = Execution { hold, state: State::Reserve(reserving), account };
            // Its store has nothing to do.
            return Progress::Wait(Waiting::of(Prepared { execution, request: Request::Flush, is_answered: false }));
        }
        Ok(step) => Ok(step),
        Err(Refusal::Sense(sense)) => Err(sense),
        Err(Refusal::Conflict) => return Progress::Done(Reply::bare(Status::ReservationConflict)),
        Err(Refusal::Busy | Refusal::NoMemory) => Err(fault::INTERNAL),
    };
    account.close(&hold.disk, reply(&hold.disk, step, usize::MAX))
}

/// The reply to a command that is over.
fn reply(disk: &LogicalUnit, step: Result<Step, Sense>, room_bytes: usize) -> Reply {
    match step {
        Ok(Step::Answer(mut bytes)) => {
            bytes.truncate(room_bytes);
            Reply::good((!bytes.is_empty()).then(|| bytes.into()))
        }
        Ok(Step::Data(data)) => Reply::good(Some(data)),
        Ok(Step::ConditionMet) => Reply::bare(Status::ConditionMet),
        Ok(Step::Good | Step::Store(..) | Step::Detached(..) | Step::Later(..) | Step::Abort(_) | Step::Reserve(_)) => {
            Reply::good(None)
        }
        Err(sense) => disk.check_condition(&sense),
    }
}

impl State {
    fn next(self, disk: &LogicalUnit, completion: Completion, memory: &Region) -> Result<Step, Sense> {
        match self {
            State::Read { medium, .. } if medium != disk.server().medium() => Err(fault::MEDIUM_CHANGED),
            State::Read { room_bytes, .. } => match completion {
                Ok(Outcome::Read(mut frame)) => {
                    frame.truncate(room_bytes as usize);
                    Ok(Step::Data(frame.freeze().into()))
                }
                Ok(_) => Err(fault::INTERNAL),
                Err(error) => Err(disk.fault(&error)),
            },
            State::Write { flush } => {
                completion.map_err(|error| disk.fault(&error))?;
                Ok(finish(flush))
            }
            State::Flush | State::Abort | State::Reserve(_) => flushed(completion),
            State::PreFetch { is_all } => {
                completion.map_err(|error| disk.fault(&error))?;
                Ok(if is_all { Step::ConditionMet } else { Step::Good })
            }
            State::Ongoing(ongoing) => ongoing.next(disk, completion, memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Executions move by value through queues of the target: they stay small.
    #[test]
    fn an_execution_is_small() {
        assert!(size_of::<Execution>() <= 144, "{}", size_of::<Execution>());
        assert!(size_of::<Progress>() <= 200, "{}", size_of::<Progress>());
    }
}
