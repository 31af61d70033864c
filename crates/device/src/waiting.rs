//! What a command waits for before it begins or goes on, and what it does then.

use sanwire_scsi::Reply;
use sanwire_store::{CompletionQueue, Request};

use crate::command_program::Keeping;
use crate::copies::CopyEnd;
use crate::execution::Execution;
use crate::hold::Turn;
use crate::judged::{Judged, Wishes};
use crate::reservation::Reserving;

/// A command that waits for another one. Dropping it aborts the command.
#[derive(Debug)]
pub struct Waiting(pub(crate) Box<Prepared>);

/// A command, and what it does when it may go on.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) execution: Execution,
    pub(crate) next: Next,
}

/// What a command does when it may go on.
#[derive(Debug)]
pub(crate) enum Next {
    /// It has its store do this; if `is_answered`, GOOD is sent before.
    Store { request: Request, is_answered: bool },
    /// It changes reservations, or ends: when its record is kept, or that of the order before it.
    Record(Box<Reserving>),
    /// It ends. The store has done its flush; whether that is a success depends on others that are under way.
    Settle,
    /// It ends when that copy has.
    Copy(CopyEnd),
    /// It is over, and answered when programs have kept what they want to.
    Answer(Box<Answer>),
}

/// An answer that is not given yet.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) wishes: Wishes,
    /// Of a command of which only a piece is done.
    pub(crate) judged: Option<Box<Judged>>,
}

impl Answer {
    /// What has become of what must be kept before it is given.
    pub(crate) fn keeping(&mut self) -> Keeping {
        self.judged.as_mut().map_or_else(|| self.wishes.keeping(), |judged| judged.keeping())
    }
}

impl Prepared {
    pub(crate) fn may_go(&mut self) -> Turn {
        let must_wait = match &mut self.next {
            Next::Store { .. } => return self.execution.may_go(),
            Next::Record(reserving) => !reserving.may_go(),
            Next::Copy(end) => !end.is_there(),
            Next::Settle => self.execution.worker_hold().must_settle(),
            Next::Answer(answer) => !self.execution.hold.unit.is_revoked() && answer.keeping() == Keeping::Pending,
        };
        if must_wait { Turn::Later } else { Turn::Now }
    }
}

impl Waiting {
    pub(crate) fn of(prepared: Prepared) -> Self {
        Waiting(Box::new(prepared))
    }

    /// What waits.
    #[must_use]
    pub fn execution(&self) -> &Execution {
        &self.0.execution
    }

    /// Has this driver woken, once, when what it waits for may have ended; it is to be retried after this call in any case.
    pub fn wake(&mut self, driver: &CompletionQueue) {
        self.0.execution.wake(driver);
    }

    /// Bytes of memory that the data keeps that it is going to write.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        if let Next::Store { request: Request::Write { data, .. }, .. } = &self.0.next { data.kept_bytes() } else { 0 }
    }

    /// See [`Execution::keep_blocks`]: it does so from when it begins.
    pub fn keep_blocks(&mut self) {
        self.0.execution.keep_blocks();
    }

    /// See [`Execution::keep_all_blocks`]: it does so from when it begins.
    pub fn keep_all_blocks(&mut self) {
        self.0.execution.keep_all_blocks();
    }
}
