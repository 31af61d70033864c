//! A task as it is given to its unit.

use sanwire_core::Instant;
use sanwire_scsi::Task;

use crate::abort_scope::UnitId;
use crate::judged::Judged;

/// A task, and what has been said of it before: it may come to its unit several times before it begins.
#[derive(Debug)]
pub struct Submission {
    /// The task.
    pub task: Task,
    /// Since when programs have deferred it.
    pub(crate) deferred_since: Option<Instant>,
    /// Programs have been asked about it, and let it pass.
    pub(crate) is_judged: bool,
    pub(crate) judged: Option<Box<Judged>>,
}

impl From<Task> for Submission {
    fn from(task: Task) -> Self {
        Submission { task, deferred_since: None, is_judged: false, judged: None }
    }
}

/// A command of which a piece is done, between two pieces: dropping it ends the command.
#[derive(Debug)]
pub struct Continuation {
    unit: UnitId,
    judged: Option<Box<Judged>>,
}

impl Continuation {
    pub(crate) fn new(unit: UnitId, judged: Option<Box<Judged>>) -> Self {
        Continuation { unit, judged }
    }

    /// Where it has begun.
    #[must_use]
    pub fn unit(&self) -> UnitId {
        self.unit
    }

    /// The same command with its next piece.
    #[must_use]
    pub fn with_piece(self, task: Task) -> Submission {
        Submission { task, deferred_since: None, is_judged: true, judged: self.judged }
    }
}
