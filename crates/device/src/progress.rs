//! How a command goes on, from its first step to its reply.

use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::NexusId;
use sanwire_scsi::{Reply, Sense, Status};
use sanwire_store::{Completion, Outcome, Request};

use crate::abort_scope::AbortScope;
use crate::beginning::Account;
use crate::command_program::Keeping;
use crate::derived::Guest;
use crate::execution::Execution;
use crate::fault;
use crate::hold::{Hold, Turn};
use crate::judged::{Judged, Wishes};
use crate::refusal::Refusal;
use crate::step::{CommandState, Step, finish, flushed};
use crate::submission::{Continuation, Submission};
use crate::unit_state::UnitState;
use crate::waiting::{Answer, Next, Prepared, Waiting};

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
    /// the end is not sent.
    Answered(Execution, Request),
    /// Another command changes the same blocks, and this one goes on after it: ask [`crate::LogicalUnits::retry`] again soon.
    Wait(Waiting),
    /// Every command that the scope covers must be ended by the caller: dropped before its store begins, waited for when
    /// it has begun, and its initiator answered TASK ABORTED (the control mode page has TAS). Then `Ok(Outcome::Done)`
    /// goes to [`crate::LogicalUnits::resume`] together with the execution.
    Abort(Execution, AbortScope),
    /// A piece of it is done. When its data has been sent, or more of what the initiator sends has come, the same task
    /// begins with the next [`sanwire_scsi::Piece`], by [`Continuation::with_piece`]: [`Reply::rest`] says which. Until then nothing is
    /// held; to abort the command is to forget it.
    Piece(Reply, Continuation),
    /// The region has no frame free: nothing has happened, begin the task again later.
    NoMemory(Box<Submission>),
    /// A program wants it to wait: nothing has happened, begin the task again after so long.
    Deferred(Box<Submission>, Duration),
}

/// What an execution keeps of its task.
#[derive(Debug)]
pub(crate) struct Given<'a> {
    pub(crate) nexus: NexusId,
    /// The same as a unit that is derived knows it.
    pub(crate) guest: Option<&'a Guest>,
    pub(crate) judged: Option<Box<Judged>>,
    /// See [`sanwire_scsi::Task::receipts`].
    pub(crate) receipts: u64,
    /// See [`Reply::is_bulk_read`].
    pub(crate) is_bulk_read: bool,
}

impl Progress {
    /// Wraps the first step.
    pub(crate) fn begin(
        unit: &Arc<UnitState>,
        step: Result<Step, Sense>,
        room_bytes: usize,
        account: Account,
        given: Given<'_>,
        memory: &Region,
    ) -> Progress {
        let (state, request, is_answered) = match step {
            Ok(Step::Store(state, request) | Step::Later(state, request)) => (state, request, false),
            Ok(Step::Detached(state, request)) => (state, request, true),
            Ok(step @ (Step::Abort(_) | Step::Reserve(_))) => {
                let mut hold = Hold::new(Arc::clone(unit), None, given.nexus);
                hold.judged = given.judged;
                return reserved(hold, Ok(step), account, memory);
            }
            Ok(Step::AwaitCopy(end)) => {
                let mut hold = Hold::new(Arc::clone(unit), None, given.nexus);
                hold.judged = given.judged;
                let execution = Execution { hold, state: CommandState::Record, account };
                return Prepared { execution, next: Next::Copy(end) }.progress(None, memory);
            }
            over => {
                let reply = Reply { is_bulk_read: given.is_bulk_read, ..reply(unit, over, room_bytes) };
                if given.judged.is_none() {
                    return account.close(unit, reply, None);
                }
                let mut hold = Hold::new(Arc::clone(unit), None, given.nexus);
                hold.judged = given.judged;
                return close(hold, account, reply, memory);
            }
        };
        let outlives_its_task = matches!(&state, CommandState::Ongoing(ongoing) if ongoing.outlives_its_task());
        let mut hold = Hold::new(Arc::clone(unit), state.claim(&request), given.nexus);
        (hold.outlives_its_task, hold.receipts, hold.is_bulk_read) =
            (outlives_its_task, given.receipts, given.is_bulk_read);
        hold.judged = given.judged;
        let next = Next::Store { request, is_answered };
        Prepared { execution: Execution { hold, state, account }, next }.progress(given.guest, memory)
    }
}

impl Execution {
    pub(crate) fn resume(mut self, completion: Completion, memory: &Region) -> Progress {
        if self.state.is_of_medium_of(&self.hold.unit) {
            self.worker().note(completion.as_ref().err());
        }
        if completion.is_ok() && self.worker_hold().must_settle() {
            return Progress::Wait(Waiting::of(Prepared { execution: self, next: Next::Settle }));
        }
        self.go_on(completion, memory)
    }

    fn go_on(mut self, completion: Completion, memory: &Region) -> Progress {
        let (completion, receipt) = self.worker_hold().flushed(completion);
        if !matches!(self.state, CommandState::Read { .. }) {
            self.worker().medium_changed();
        }
        let Execution { mut hold, state, account } = self;
        let step = state.next(&hold.unit, completion, memory).and_then(|step| {
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
                let next = Next::Store { request, is_answered: false };
                Prepared { execution: Execution { hold, state, account }, next }.progress(None, memory)
            }
            Ok(Step::Later(state, request)) => {
                let next = Next::Store { request, is_answered: false };
                Progress::Wait(Waiting::of(Prepared { execution: Execution { hold, state, account }, next }))
            }
            // The steps after the first bring what was cut already.
            over => {
                // What was read by then is nobody's business any more.
                let over = if hold.unit.is_revoked() { Err(fault::NOT_SUPPORTED) } else { over };
                let reply = Reply { receipt, is_bulk_read: hold.is_bulk_read, ..reply(&hold.unit, over, usize::MAX) };
                close(hold, account, reply, memory)
            }
        }
    }
}

impl Waiting {
    /// Begins, goes on, or goes on waiting.
    pub(crate) fn retry(mut self, memory: &Region) -> Progress {
        match self.0.may_go() {
            Turn::Now => self.0.go(None, memory),
            Turn::Later => Progress::Wait(self),
            Turn::Never(sense) => self.0.refuse(&sense),
        }
    }
}

impl Prepared {
    /// Begins, goes on, or waits; `guest`: who gave the command, where that is known.
    fn progress(mut self, guest: Option<&Guest>, memory: &Region) -> Progress {
        match self.may_go() {
            Turn::Now => self.go(guest, memory),
            Turn::Later => Progress::Wait(Waiting::of(self)),
            Turn::Never(sense) => self.refuse(&sense),
        }
    }

    fn refuse(self, sense: &Sense) -> Progress {
        Progress::Done(self.execution.hold.unit.check_condition(sense))
    }

    fn go(self, guest: Option<&Guest>, memory: &Region) -> Progress {
        let Prepared { mut execution, next } = self;
        match next {
            Next::Store { request, is_answered } => {
                execution.note_start(&request, is_answered, guest);
                if is_answered { Progress::Answered(execution, request) } else { Progress::Store(execution, request) }
            }
            Next::Record(reserving) => {
                let Execution { hold, account, .. } = execution;
                let step = reserving.next(&hold.unit);
                reserved(hold, step, account, memory)
            }
            Next::Copy(_) => {
                let Execution { hold, account, .. } = execution;
                close(hold, account, Reply::good(None), memory)
            }
            Next::Settle => execution.go_on(Ok(Outcome::Done), memory),
            Next::Answer(answer) => {
                let mut answer = *answer;
                let Execution { hold: Hold { unit, .. }, account, .. } = &execution;
                let failure = match answer.keeping() {
                    _ if unit.is_revoked() => Some(fault::NOT_SUPPORTED),
                    Keeping::Failed => Some(fault::NOT_ACCESSIBLE),
                    Keeping::Kept | Keeping::Pending => None,
                };
                let reply = failure.map_or(answer.reply, |sense| unit.check_condition(&sense));
                account.close(unit, reply, answer.judged)
            }
        }
    }
}

/// The end of a command, or of a piece of it: an answer, when what its programs want to be kept is kept.
fn close(mut hold: Hold, account: Account, reply: Reply, memory: &Region) -> Progress {
    let Some(judged) = hold.judged.take() else { return account.close(&hold.unit, reply, None) };
    let is_good = matches!(reply.status, Status::Good | Status::ConditionMet);
    let answer = if is_good && matches!(account, Account::Left(_)) {
        Answer { reply, wishes: Wishes::default(), judged: Some(judged) }
    } else {
        Answer { reply, wishes: judged.end(is_good), judged: None }
    };
    let next = Next::Answer(Box::new(answer));
    Prepared { execution: Execution { hold, state: CommandState::Record, account }, next }.progress(None, memory)
}

/// How a command of reservations goes on.
fn reserved(hold: Hold, step: Result<Step, Refusal>, account: Account, memory: &Region) -> Progress {
    let step = match step {
        Ok(Step::Abort(scope)) => {
            return Progress::Abort(Execution { hold, state: CommandState::Record, account }, scope);
        }
        Ok(Step::Reserve(reserving)) => {
            let execution = Execution { hold, state: CommandState::Record, account };
            return Progress::Wait(Waiting::of(Prepared { execution, next: Next::Record(reserving) }));
        }
        Ok(step) => Ok(step),
        Err(Refusal::Sense(sense)) => Err(sense),
        Err(Refusal::Conflict) => return Progress::Done(Reply::bare(Status::ReservationConflict)),
        Err(Refusal::Busy | Refusal::NoMemory | Refusal::Defer(_)) => Err(fault::INTERNAL),
    };
    let reply = reply(&hold.unit, step, usize::MAX);
    close(hold, account, reply, memory)
}

/// The reply to a command that is over.
fn reply(unit: &UnitState, step: Result<Step, Sense>, room_bytes: usize) -> Reply {
    match step {
        Ok(Step::Answer(mut bytes)) => {
            bytes.truncate(room_bytes);
            Reply::good((!bytes.is_empty()).then(|| bytes.into()))
        }
        Ok(Step::Data(data)) => Reply::good(Some(data)),
        Ok(Step::ConditionMet) => Reply::bare(Status::ConditionMet),
        Ok(
            Step::Good
            | Step::Store(..)
            | Step::Detached(..)
            | Step::Later(..)
            | Step::Abort(_)
            | Step::Reserve(_)
            | Step::AwaitCopy(_),
        ) => Reply::good(None),
        Err(sense) => unit.check_condition(&sense),
    }
}

impl Account {
    /// The end of a command, or of a piece of it.
    fn close(self, unit: &UnitState, reply: Reply, judged: Option<Box<Judged>>) -> Progress {
        match self {
            Account::Left(rest) if reply.status == Status::Good => {
                Progress::Piece(Reply { rest: Some(rest), ..reply }, Continuation::new(unit.id(), judged))
            }
            Account::Takes(bytes) => Progress::Done(Reply { data_out_bytes: Some(bytes), ..reply }),
            Account::Even | Account::Left(_) => Progress::Done(reply),
        }
    }
}

impl CommandState {
    fn next(self, unit: &UnitState, completion: Completion, memory: &Region) -> Result<Step, Sense> {
        match self {
            CommandState::Read { medium, .. } if medium != unit.medium() => Err(fault::MEDIUM_CHANGED),
            CommandState::Read { room_bytes, .. } => match completion {
                Ok(Outcome::Read(mut frame)) => {
                    frame.truncate(room_bytes as usize);
                    Ok(Step::Data(frame.freeze().into()))
                }
                Ok(_) => Err(fault::INTERNAL),
                Err(error) => Err(unit.fault(&error)),
            },
            CommandState::Write { flush } => {
                completion.map_err(|error| unit.fault(&error))?;
                Ok(finish(flush))
            }
            CommandState::Flush | CommandState::Record => flushed(completion),
            CommandState::PreFetch { is_all } => {
                completion.map_err(|error| unit.fault(&error))?;
                Ok(if is_all { Step::ConditionMet } else { Step::Good })
            }
            CommandState::Ongoing(ongoing) => ongoing.next(unit, completion, memory),
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
