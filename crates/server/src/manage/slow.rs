//! Requests in steps: what may take long is done without the manager, while others are served.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sanwire_store::Cancellation;

use super::busy::Hold;
use super::course::Course;
use super::usage::ENDING;
use super::{Answer, ManageError, Manager};
use crate::counting::User;
use crate::removal::Removal;

/// How long a request waits at the most until all that was written to a volume that goes is stable.
pub(super) const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);

/// How far a request is.
pub(crate) enum Step {
    /// It is done.
    Done(Answer),
    /// This is left, without the manager.
    Slow(Slow),
}

/// What may take long.
pub(crate) struct Slow {
    /// What it is, for people: "opening the store of a".
    pub(super) what: String,
    /// Whether the server does not end before it.
    pub(super) is_awaited: bool,
    /// How far it is, of what tells that in numbers, and can be cancelled.
    pub(super) course: Option<Arc<Course>>,
    /// By this it ends before it is done, of what tells nothing.
    pub(super) cancellation: Option<Cancellation>,
    pub(super) work: Box<dyn FnOnce() -> Next + Send>,
}

/// How a request goes on after what took long.
pub(crate) enum Next {
    /// It is over.
    Over(Box<Result<Answer, ManageError>>),
    /// With the manager.
    Then(Then),
}

/// What is done at the end of a request.
type End = Box<dyn FnOnce() + Send>;

type Then = Box<dyn FnOnce(&mut Manager) -> Result<Step, ManageError>>;

/// What is found among users that keeps a request from being done.
type Find = Box<dyn Fn(&Manager, &[User]) -> Vec<String> + Send>;

impl Slow {
    /// Does it.
    pub(super) fn run(self) -> Next {
        (self.work)()
    }
}

impl Step {
    /// `work` is done without the manager, and with what it gives the request goes on.
    pub(super) fn slow<T: 'static>(
        what: impl Into<String>,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut Manager, T) -> Result<Step, ManageError> + Send + 'static,
    ) -> Step {
        let work = move || {
            let done = work();
            Next::Then(Box::new(move |manager| then(manager, done)))
        };
        Step::Slow(Slow {
            what: what.into(),
            is_awaited: false,
            course: None,
            cancellation: None,
            work: Box::new(work),
        })
    }

    /// The same for what the server does not end before, as long as that takes.
    pub(super) fn slow_awaited<T: 'static>(
        what: impl Into<String>,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut Manager, T) -> Result<Step, ManageError> + Send + 'static,
    ) -> Step {
        match Step::slow(what, work, then) {
            Step::Slow(slow) => Step::Slow(Slow { is_awaited: true, ..slow }),
            done => done,
        }
    }

    /// The same, which tells how far it is by this, and can be cancelled.
    pub(super) fn telling(self, course: Arc<Course>) -> Step {
        match self {
            Step::Slow(slow) => Step::Slow(Slow { course: Some(course), ..slow }),
            done => done,
        }
    }

    /// The same, which can only be cancelled.
    pub(super) fn cancelled_by(self, cancellation: Cancellation) -> Step {
        match self {
            Step::Slow(slow) => Step::Slow(Slow { cancellation: Some(cancellation), ..slow }),
            done => done,
        }
    }

    /// When the request is done, `done` is called; when it is refused after all, `undo` is done first, without the manager.
    pub(super) fn done_or_undone(
        self,
        done: impl FnOnce() + Send + 'static,
        undo: impl FnOnce() + Send + 'static,
    ) -> Step {
        self.ended_by(Box::new(done), Box::new(undo))
    }

    fn ended_by(self, done: End, undo: End) -> Step {
        let Step::Slow(Slow { what, is_awaited, course, cancellation, work }) = self else {
            done();
            return self;
        };
        let work = move || match work() {
            Next::Over(result) => {
                if result.is_ok() {
                    done()
                } else {
                    undo()
                }
                Next::Over(result)
            }
            Next::Then(then) => Next::Then(Box::new(move |manager| match then(manager) {
                Ok(step) => Ok(step.ended_by(done, undo)),
                Err(error) => Ok(Step::undoing(undo, error)),
            })),
        };
        Step::Slow(Slow { what, is_awaited, course, cancellation, work: Box::new(work) })
    }

    /// Undoes what was begun, without the manager, and is refused then.
    pub(super) fn undoing(undo: impl FnOnce() + Send + 'static, error: ManageError) -> Step {
        Step::slow_awaited("undoing what was begun", undo, move |_, ()| Err(error))
    }

    /// Waits until what was written to a volume that is served no longer is stable, as does the end of the server.
    pub(super) fn flush(name: String, removal: Removal, hold: Hold, answer: Result<Answer, ManageError>) -> Step {
        let what = format!("making stable what was written to {name}");
        let work = move || {
            let _hold = hold;
            let flushed = removal.wait(FLUSH_TIMEOUT);
            let unstable = |source| ManageError::Unstable { name, source };
            Next::Over(Box::new(answer.and_then(|answer| flushed.map(|()| answer).map_err(unstable))))
        };
        Step::Slow(Slow { what, is_awaited: true, course: None, cancellation: None, work: Box::new(work) })
    }

    /// Goes on with what keeps a request from being done, as far as it is there twice: sessions that are just ending use nothing
    /// any more.
    pub(super) fn seen_twice(
        manager: &Manager,
        find: impl Fn(&Manager, &[User]) -> Vec<String> + Send + 'static,
        then: impl FnOnce(&mut Manager, Vec<String>) -> Result<Step, ManageError> + Send + 'static,
    ) -> Step {
        seen(manager, Duration::ZERO, Box::new(find), move |manager, find, found| {
            if found.is_empty() {
                return then(manager, found);
            }
            Ok(seen(manager, ENDING, find, move |manager, _, found| then(manager, found)))
        })
    }
}

/// Goes on with what is found among those who use volumes after this time.
fn seen(
    manager: &Manager,
    after: Duration,
    find: Find,
    then: impl FnOnce(&mut Manager, Find, Vec<String>) -> Result<Step, ManageError> + Send + 'static,
) -> Step {
    let counter = manager.target.counter();
    let count = move || {
        thread::sleep(after);
        counter.count()
    };
    Step::slow("seeing who uses the volumes", count, move |manager, counted| {
        let found = find(manager, &manager.users(counted)?);
        then(manager, find, found)
    })
}
