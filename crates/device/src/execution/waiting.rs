//! What a command waits for before it begins or goes on.

use sanwire_buffer::Region;
use sanwire_scsi::Sense;
use sanwire_store::{CompletionQueue, Outcome, Request};

use super::{Execution, Progress, reserved};
use crate::hold::{Flushing, Turn};
use crate::step::State;

/// A command that waits for another one. Dropping it aborts the command.
#[derive(Debug)]
pub struct Waiting(Box<Prepared>);

/// All that a command is when it may go on.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) execution: Execution,
    pub(super) request: Request,
    pub(super) is_answered: bool,
}

impl Waiting {
    pub(super) fn of(prepared: Prepared) -> Self {
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

    /// Bytes of data that it is going to write, and keeps until then.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        if let Request::Write { data, .. } = &self.0.request { data.len() } else { 0 }
    }

    /// See [`Execution::keep_blocks`]: it does so from when it begins.
    pub fn keep_blocks(&mut self) {
        self.0.execution.keep_blocks();
    }

    /// See [`Execution::keep_all_blocks`]: it does so from when it begins.
    pub fn keep_all_blocks(&mut self) {
        self.0.execution.keep_all_blocks();
    }

    /// Begins, or goes on waiting.
    pub(crate) fn retry(mut self, memory: &Region) -> Progress {
        let hold = self.0.execution.worker_hold();
        if hold.flushing() == Flushing::Settling {
            let is_settled = !hold.must_settle();
            return if is_settled { self.0.execution.go_on(Ok(Outcome::Done), memory) } else { Progress::Wait(self) };
        }
        match self.0.execution.may_go() {
            Turn::Now => self.0.go(),
            Turn::Later => Progress::Wait(self),
            Turn::Never(sense) => self.0.refuse(&sense),
        }
    }
}

impl Prepared {
    pub(super) fn progress(mut self) -> Progress {
        match self.execution.may_go() {
            Turn::Now => self.go(),
            Turn::Later => Progress::Wait(Waiting::of(self)),
            Turn::Never(sense) => self.refuse(&sense),
        }
    }

    fn refuse(self, sense: &Sense) -> Progress {
        Progress::Done(self.execution.hold.disk.check_condition(sense))
    }

    fn go(self) -> Progress {
        let Prepared { mut execution, request, is_answered } = self;
        if let State::Reserve(reserving) = execution.state {
            let Execution { hold, account, .. } = execution;
            let step = reserving.next(&hold.disk);
            return reserved(hold, step, account);
        }
        if execution.state.is_stable() {
            execution.worker_hold().expect_flush();
        }
        if matches!(request, Request::Flush) {
            let is_heard = !is_answered && !execution.outlives_its_task();
            execution.worker_hold().begin_flush(is_heard);
        }
        if is_answered { Progress::Answered(execution, request) } else { Progress::Store(execution, request) }
    }
}
