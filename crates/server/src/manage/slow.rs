//! The parts of requests that may take long: others are served meanwhile.

use std::time::Duration;

use super::{Answer, ManageError, Manager, Request};
use crate::counting::Counted;
use crate::removal::Removal;
use crate::server::Counter;

/// How long who removes a volume waits until all that was written to it is stable.
pub(super) const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);

/// How far a request is.
pub(crate) enum Step {
    /// It is done.
    Done(Answer),
    /// This is left, without the manager; then [`Manager::finish`].
    Slow(Slow),
}

/// What may take long.
pub(crate) enum Slow {
    /// To ask the shards for what they have counted.
    Count(Counter, Asked),
    /// To make stable what was written to a volume that is served no longer.
    Flush { name: String, removal: Removal, answer: Answer },
}

/// What is wanted of the counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    Statistics,
    Clients,
}

/// What may take long, and is over.
pub(crate) enum Finished {
    Counted(Vec<Counted>, Asked),
    Flushed(Result<Answer, ManageError>),
}

impl Slow {
    /// Does it.
    pub(super) fn run(self) -> Finished {
        match self {
            Slow::Count(counter, asked) => Finished::Counted(counter.count(), asked),
            Slow::Flush { name, removal, answer } => {
                let flushed = removal.wait(FLUSH_TIMEOUT);
                let unstable = |source| ManageError::Unstable { name, source };
                Finished::Flushed(flushed.map(|()| answer).map_err(unstable))
            }
        }
    }
}

impl Manager {
    /// Does what is asked, as far as that takes no time.
    ///
    /// # Errors
    /// [`ManageError`]; then nothing has changed.
    pub(super) fn begin(&mut self, request: Request) -> Result<Step, ManageError> {
        let count = |manager: &Manager, asked| Ok(Step::Slow(Slow::Count(manager.target.counter(), asked)));
        match request {
            Request::Statistics => count(self, Asked::Statistics),
            Request::Clients => count(self, Asked::Clients),
            Request::RemoveVolume { name, force } => self.remove_volume(&name, force),
            request => self.execute_at_once(request).map(Step::Done),
        }
    }

    /// The answer, after what took long.
    ///
    /// # Errors
    /// [`ManageError`].
    pub(super) fn finish(&self, finished: Finished) -> Result<Answer, ManageError> {
        match finished {
            Finished::Counted(counted, Asked::Statistics) => Ok(Answer::Statistics(self.statistics(&counted))),
            Finished::Counted(counted, Asked::Clients) => Ok(Answer::Clients(self.clients(counted))),
            Finished::Flushed(result) => result,
        }
    }
}
