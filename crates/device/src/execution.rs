//! A command that is on its way: what it holds, and what is asked of it.

use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_store::{Completion, CompletionQueue, Request, Store};

use crate::abort_scope::AbortScope;
use crate::beginning::Account;
use crate::derived::Guest;
use crate::hold::{Hold, Turn};
use crate::range::Range;
use crate::step::CommandState;
use crate::store_retry::StoreRetry;
use crate::unit_state::UnitState;

/// A command that waits for its store. Dropping it aborts the command between two requests.
#[derive(Debug)]
pub struct Execution {
    pub(crate) hold: Hold,
    pub(crate) state: CommandState,
    pub(crate) account: Account,
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

    /// Counts what that store has answered, if it has failed: each time that it was asked.
    pub fn count(&self, completion: &Completion) {
        if let Err(error) = completion {
            self.worker().store_errors().note(error);
        }
    }

    /// The unit whose store works for the command: its own, or one that it copies from or to.
    pub(crate) fn worker(&self) -> &UnitState {
        match &self.state {
            CommandState::Ongoing(ongoing) => ongoing.worker().unwrap_or(&self.hold.unit),
            _ => &self.hold.unit,
        }
    }

    /// What it holds of that unit.
    pub(crate) fn worker_hold(&mut self) -> &mut Hold {
        match &mut self.state {
            CommandState::Ongoing(ongoing) => ongoing.worker_hold().unwrap_or(&mut self.hold),
            _ => &mut self.hold,
        }
    }

    /// Whether no other command is in its way.
    pub(crate) fn may_go(&mut self) -> Turn {
        let turn = match &mut self.state {
            CommandState::Ongoing(ongoing) => ongoing.may_go(),
            _ => Turn::Now,
        };
        if turn == Turn::Now { self.hold.may_go() } else { turn }
    }

    /// Has this driver woken when what it waits for may have ended.
    pub(crate) fn wake(&mut self, driver: &CompletionQueue) {
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
        let ahead = if let CommandState::Ongoing(ongoing) = &self.state { ongoing.ahead() } else { None };
        self.keep(ahead);
    }

    fn keep(&mut self, ahead: Option<Range>) {
        self.hold.keep(ahead);
        if let CommandState::Ongoing(ongoing) = &mut self.state {
            ongoing.keep_blocks();
        }
    }

    /// Whether it does the same when its initiator gives it once more, after its store has failed.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        matches!(self.state, CommandState::Read { .. } | CommandState::Write { .. })
    }

    /// Whether it goes on to other blocks, which others may have written meanwhile, when its store has done what it is doing.
    #[must_use]
    pub fn goes_from_blocks_to_blocks(&self) -> bool {
        matches!(&self.state, CommandState::Ongoing(ongoing) if ongoing.goes_from_blocks_to_blocks())
    }

    /// The unit that executes the command.
    #[must_use]
    pub fn unit(&self) -> &UnitState {
        &self.hold.unit
    }

    /// Whether PREEMPT AND ABORT ends it, when it is a command of this nexus: for its unit, or as a copy from or to the scope's.
    #[must_use]
    pub fn is_covered_by(&self, scope: &AbortScope, nexus: NexusId) -> bool {
        let is_covered_elsewhere =
            || matches!(&self.state, CommandState::Ongoing(ongoing) if ongoing.is_covered_by(scope));
        scope.covers(self.unit().id(), nexus) || is_covered_elsewhere()
    }

    /// Whether neither a reset nor an abort nor the loss of the nexus may end it: a sanitize goes on without the nexus
    /// that asked for it (SBC-4 4.11.2). Its reply then goes to none.
    #[must_use]
    pub fn outlives_its_task(&self) -> bool {
        self.hold.outlives_its_task
    }

    /// Its store begins with this request; if `is_answered`, no nexus hears how that ends. `guest`: who gave it, where that is known.
    pub(crate) fn note_start(&mut self, request: &Request, is_answered: bool, guest: Option<&Guest>) {
        self.worker_hold().note_moved(request, guest);
        if self.state.is_stable() {
            self.worker_hold().expect_flush();
        }
        if matches!(request, Request::Flush) {
            let is_heard = !is_answered && !self.outlives_its_task();
            self.worker_hold().begin_flush(is_heard);
        }
    }

    /// It was aborted while its store worked for it, which has ended so: what that means to others.
    pub fn abandon(mut self, completion: &Completion) {
        let hold = self.worker_hold();
        if hold.is_flushing() && completion.is_err() {
            hold.unit.flush_failed();
        }
        hold.end_flush();
    }
}
