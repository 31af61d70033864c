//! A command that is on its way: what it has done, what comes next.

use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_scsi::{Reply, Sense, Task};
use sanwire_store::{Completion, Outcome, Request, Store};

use crate::disk::Disk;
use crate::fault;
use crate::fill::Fill;
use crate::step::Step;
use crate::unmap::Unmapping;
use crate::verify::Verification;

/// What became of a task, so far.
#[derive(Debug)]
#[must_use = "a task ends only when its store's work is done and its reply is sent"]
pub enum Progress {
    /// It is over.
    Done(Reply),
    /// The store must do this, by `execution.store().start(request)`; its completion goes to
    /// [`crate::LogicalUnits::resume`] together with the execution.
    Store(Execution, Request),
    /// The region has no frame free: nothing has happened, begin the task again later.
    NoMemory(Task),
}

/// A command that waits for its store. Dropping it aborts the command between two requests.
#[derive(Debug)]
pub struct Execution {
    disk: Arc<Disk>,
    state: State,
}

/// Where a command stands while the store works for it.
#[derive(Debug)]
pub(crate) enum State {
    /// Reading; the initiator has room for so much.
    Read { room_bytes: usize },
    /// Writing; then flushing, if this write must be stable before it is answered.
    Write { flush: bool },
    /// Flushing, the last thing to do.
    Flush,
    /// Flushing before the unit is stopped.
    Stop,
    /// Reading and comparing, perhaps after writing.
    Verify(Verification),
    /// Writing the same block again and again.
    Fill(Fill),
    /// Giving space back, extent after extent.
    Unmap(Unmapping),
}

impl Execution {
    /// The store that must do the request.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        self.disk.store()
    }

    /// The disk that executes the command.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Wraps the first or next step.
    pub(crate) fn progress(disk: Arc<Disk>, step: Result<Step, Sense>, room_bytes: usize) -> Progress {
        match step {
            Ok(Step::Good) => Progress::Done(Reply::good(None)),
            Ok(Step::Answer(mut bytes)) => {
                bytes.truncate(room_bytes);
                Progress::Done(Reply::good((!bytes.is_empty()).then(|| bytes.into())))
            }
            Ok(Step::Data(data)) => Progress::Done(Reply::good(Some(data))),
            Ok(Step::Store(state, request)) => Progress::Store(Execution { disk, state }, request),
            Err(sense) => Progress::Done(disk.check_condition(&sense)),
        }
    }

    pub(crate) fn resume(self, completion: Completion, memory: &Region) -> Progress {
        let Execution { disk, state } = self;
        disk.note(completion.as_ref().err());
        let step = state.next(&disk, completion, memory);
        // The steps after the first bring no parameter data, only whole frames that were cut already.
        Execution::progress(disk, step, usize::MAX)
    }
}

impl State {
    fn next(self, disk: &Disk, completion: Completion, memory: &Region) -> Result<Step, Sense> {
        match self {
            State::Read { room_bytes } => match completion {
                Ok(Outcome::Read(mut frame)) => {
                    frame.truncate(room_bytes);
                    Ok(Step::Data(frame.freeze()))
                }
                Ok(Outcome::Done) => Err(fault::INTERNAL),
                Err(error) => Err(disk.fault(&error)),
            },
            State::Write { flush } => {
                completion.map_err(|error| disk.fault(&error))?;
                Ok(finish(flush))
            }
            State::Flush => flushed(completion),
            State::Stop => {
                flushed(completion)?;
                disk.set_stopped(true);
                Ok(Step::Good)
            }
            State::Verify(verification) => verification.next(disk, completion),
            State::Fill(fill) => fill.next(disk, completion, memory),
            State::Unmap(unmapping) => unmapping.next(disk, completion),
        }
    }
}

/// The end of a command that wrote: at once, or after a flush.
pub(crate) fn finish(flush: bool) -> Step {
    if flush { Step::Store(State::Flush, Request::Flush) } else { Step::Good }
}

fn flushed(completion: Completion) -> Result<Step, Sense> {
    completion.map(|_| Step::Good).map_err(|error| fault::sense(&error, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Executions move by value through queues of the target: they stay small.
    #[test]
    fn an_execution_is_small() {
        assert!(size_of::<Execution>() <= 128, "{}", size_of::<Execution>());
        assert!(size_of::<Progress>() <= 192, "{}", size_of::<Progress>());
    }
}
