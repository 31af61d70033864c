//! Commands that wait until their store can do its work again: it is full, or gone for a while.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sanwire_core::{Instant, NexusId};
use sanwire_device::{Execution, Stalls};
use sanwire_io::file::FileEngine;
use sanwire_store::{Completion, ErrorKind, Patience, Request, Retry, Started};

use super::{CommandHandle, Ended, Runner, Running};

/// A store that could not do its work is asked again after this, and then after twice as long each time.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// When what waits for stores keeps more than such a part of the memory, its clients are to send no more; and they go on when it
/// is less than the half of that.
const CROWDED_PARTS: usize = 2;

/// What a store was asked, of a volume with patience.
pub(super) struct Attempt {
    patience: Patience,
    retry: Retry,
    stall: Option<Stall>,
}

/// The command waits.
struct Stall {
    kind: ErrorKind,
    until: Instant,
    wait: Duration,
    counted: Counted,
}

impl Attempt {
    /// What is kept of a request that is about to be started; nothing where nobody has patience.
    pub(super) fn of(execution: &Execution, request: &Request) -> Option<Box<Self>> {
        let patience = execution.stalls().patience();
        if patience.is_none() {
            return None;
        }
        Some(Box::new(Attempt { patience, retry: Retry::of(request)?, stall: None }))
    }

    /// When the store is to be asked again, if it could not do its work and there is patience left with that.
    pub(super) fn again_at(&mut self, completion: &Completion, stalls: &Arc<Stalls>, now: Instant) -> Option<Instant> {
        let kind = completion.as_ref().err()?.kind;
        let stall = match &mut self.stall {
            Some(stall) if stall.kind == kind => stall,
            other => {
                let until = now + self.patience.with(kind)?;
                let counted = Counted::new(stalls, kind);
                other.insert(Stall { kind, until, wait: RETRY_FIRST, counted })
            }
        };
        if stall.until <= now || stalls.is_over() {
            stall.counted.0.fail();
            return None;
        }
        let at = (now + stall.wait).min(stall.until);
        stall.wait = (2 * stall.wait).min(RETRY_MAX);
        Some(at)
    }
}

/// A command that is counted among those of its disk that wait.
struct Counted(Arc<Stalls>);

impl Counted {
    fn new(stalls: &Arc<Stalls>, kind: ErrorKind) -> Self {
        if stalls.begin() {
            let (volume, what) = (stalls.volume(), if kind == ErrorKind::Full { "full" } else { "gone" });
            let most = stalls.patience().with(kind).unwrap_or_default();
            tracing::warn!("the store of {volume} is {what}: its commands wait, each {most:?} at the most");
        }
        Counted(Arc::clone(stalls))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(failed) = self.0.end() {
            let volume = self.0.volume();
            tracing::warn!("no command waits for the store of {volume} any more; {failed} failed after waiting");
        }
    }
}

impl Runner {
    /// Keeps a parked command whose store could not do its work, if there is patience with that.
    pub(super) fn endure(&mut self, tag: u32, completion: &Completion, now: Instant) -> bool {
        let running = self.running.get_mut(tag as usize).and_then(Option::as_mut);
        let Some(running) = running.filter(|running| running.aborted.is_none()) else { return false };
        let stalls = running.execution.stalls();
        let again_at = running.attempt.as_mut().and_then(|attempt| attempt.again_at(completion, stalls, now));
        self.stalled.extend(again_at.map(|at| (at, tag)));
        again_at.is_some()
    }

    /// Asks the stores again whose time has come.
    pub(super) fn retry_stalled(&mut self, engine: &mut FileEngine, now: Instant, ended: &mut Vec<Ended>) {
        while let Some(&(at, tag)) = self.stalled.first()
            && at <= now
        {
            self.stalled.pop_first();
            let Some(running) = self.running.get(tag as usize).and_then(Option::as_ref) else { continue };
            let Some(attempt) = &running.attempt else { continue };
            match attempt.retry.request(|bytes| self.memory.frame(bytes)) {
                Some(request) => match running.execution.store().start(request) {
                    Started::Done(completion) => self.completed(u64::from(tag), completion, engine, now, ended),
                    started => self.wait(tag, started, engine, now),
                },
                None => drop(self.stalled.insert((now + RETRY_FIRST, tag))),
            }
        }
    }

    /// The HyperSCSI sessions that are to send no more, because what waits for stores keeps too much of the memory.
    pub(crate) fn crowding(&mut self) -> BTreeSet<NexusId> {
        if self.stalled.is_empty() {
            self.is_crowded = false;
            return BTreeSet::new();
        }
        let stalled = || self.running.iter().flatten().filter_map(Running::stalled);
        let kept_bytes: usize = stalled().map(|(_, bytes)| bytes).sum();
        let parts = if self.is_crowded { 2 * CROWDED_PARTS } else { CROWDED_PARTS };
        self.is_crowded = kept_bytes > self.memory.length_bytes() / parts;
        let commands = stalled().filter_map(|(command, _)| match command {
            CommandHandle::HyperScsi(handle) => Some(handle.nexus()),
            CommandHandle::Iscsi(_) => None,
        });
        if self.is_crowded { commands.collect() } else { BTreeSet::new() }
    }
}

impl Running {
    /// Which command waits for its store, and what memory that keeps.
    fn stalled(&self) -> Option<(CommandHandle, usize)> {
        let attempt = self.attempt.as_ref().filter(|attempt| attempt.stall.is_some())?;
        Some((self.handle?.command, attempt.retry.data_bytes()))
    }
}
