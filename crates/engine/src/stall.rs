//! Commands that wait until their store can do its work again: it is full, or gone for a while.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sanwire_buffer::{Region, UNIT_BYTES};
use sanwire_core::Instant;
use sanwire_device::{Execution, StoreRetry};
use sanwire_scsi::{Reply, Status};
use sanwire_store::{Completion, ErrorKind, Patience, Request, Retry, StoreError};

use crate::engine::{Engine, Handle, Running};
use crate::notice::Notice;

/// A store that could not do its work is asked again after this, and then after twice as long each time.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// When what waits for stores keeps more than such a part of the memory, its clients are to send no more; and they go on when it
/// is less than the half of that.
const KEPT_MAX_PARTS: usize = 2;

/// What a store was asked, of a volume with patience.
pub(crate) struct Attempt {
    patience: Patience,
    retry: Retry,
    /// Where the memory of a read comes from.
    memory: Option<Region>,
    stall: Option<Stall>,
}

/// The command waits.
struct Stall {
    kind: ErrorKind,
    offset_bytes: u64,
    since: Instant,
    until: Instant,
    wait: Duration,
    _counted: Counted,
}

/// What commands of a shard that wait for stores keep, and what is to be told of them. It is the engine's own, which may go to another
/// thread as a whole.
#[derive(Default)]
pub(crate) struct Ledger {
    kept: Mutex<Kept>,
    notices: Mutex<VecDeque<Notice>>,
}

/// The commands of a shard that wait for stores, and the memory that their data takes.
#[derive(Clone, Copy, Default)]
struct Kept {
    commands: usize,
    bytes: usize,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // It is replaced as a whole.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    pub(crate) fn poll_notice(&self) -> Option<Notice> {
        lock(&self.notices).pop_front()
    }

    fn tell(&self, notice: Notice) {
        lock(&self.notices).push_back(notice);
    }
}

/// What more may wait for stores.
pub(crate) struct Room {
    ledger: Arc<Ledger>,
    /// `None`: too much waits already.
    bytes: Option<usize>,
}

/// What becomes of a command when its store has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It goes on, or fails.
    Over,
    /// The store is asked again at this moment: it could not do its work, and there is patience left with that, and room.
    Retry(Instant),
    /// There would be patience, but no room: its initiator is to give it again.
    NoRoom,
}

/// The answer to a command whose store cannot do its work now, and that there is no room to wait for.
pub(crate) fn no_room_to_wait() -> Reply {
    Reply::bare(Status::TaskSetFull)
}

impl Attempt {
    /// What is kept of a request that is about to be started; nothing where commands do not wait.
    pub(crate) fn of(execution: &Execution, request: &Request) -> Option<Box<Self>> {
        let patience = execution.stalls().patience();
        if patience.is_none() {
            return None;
        }
        let memory = if let Request::Read { buffer, .. } = request { buffer.region().cloned() } else { None };
        Some(Box::new(Attempt { patience, retry: Retry::of(request)?, memory, stall: None }))
    }

    /// What becomes of the command, after its store has said this.
    pub(crate) fn judge(
        &mut self,
        completion: &Completion,
        execution: &Execution,
        room: &Room,
        now: Instant,
    ) -> Verdict {
        let (Err(error), stalls) = (completion, execution.stalls()) else { return Verdict::Over };
        let StoreError { kind, offset_bytes, .. } = *error;
        let since = self.stall.as_ref().map_or(now, |stall| stall.since);
        let until = self.patience.with(kind).map(|most| since + most);
        let more_bytes = if self.stall.is_some() { 0 } else { self.kept_bytes() };
        let has_room = room.bytes.is_some_and(|bytes| more_bytes <= bytes);
        let until = until.filter(|until| now < *until && !stalls.is_over());
        if until.is_some() && !has_room && execution.is_repeatable() {
            return Verdict::NoRoom;
        }
        let Some(until) = until.filter(|_| has_room) else {
            if self.stall.is_some() || self.patience.with(kind).is_some() && stalls.waiting() > 0 {
                stalls.fail();
            }
            return Verdict::Over;
        };
        let kept_bytes = self.kept_bytes();
        let stall = self.stall.get_or_insert_with(|| {
            let _counted = Counted::new(stalls, &room.ledger, kept_bytes, now);
            Stall { kind, offset_bytes, since, until, wait: RETRY_FIRST, _counted }
        });
        (stall.kind, stall.offset_bytes, stall.until) = (kind, offset_bytes, until);
        tell(stalls, kind, &room.ledger, now);
        let at = (now + stall.wait).min(until);
        stall.wait = (2 * stall.wait).min(RETRY_MAX);
        Verdict::Retry(at)
    }

    /// How the command fails, when it has waited for as long as it may.
    fn failure(&self, stalls: &StoreRetry, now: Instant) -> Option<StoreError> {
        let stall = self.stall.as_ref().filter(|stall| stall.until <= now || stalls.is_over())?;
        Some(StoreError::new(stall.kind, stall.offset_bytes))
    }

    /// The memory that its data takes.
    fn kept_bytes(&self) -> usize {
        self.retry.kept_bytes().next_multiple_of(UNIT_BYTES)
    }
}

/// A command that is counted among those of its disk, and of its shard, that wait.
struct Counted {
    stalls: Arc<StoreRetry>,
    ledger: Arc<Ledger>,
    bytes: usize,
}

impl Counted {
    fn new(stalls: &Arc<StoreRetry>, ledger: &Arc<Ledger>, bytes: usize, now: Instant) -> Self {
        stalls.begin(now);
        let mut kept = lock(&ledger.kept);
        *kept = Kept { commands: kept.commands + 1, bytes: kept.bytes + bytes };
        drop(kept);
        Counted { stalls: Arc::clone(stalls), ledger: Arc::clone(ledger), bytes }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut kept = lock(&self.ledger.kept);
        *kept = Kept { commands: kept.commands - 1, bytes: kept.bytes - self.bytes };
        drop(kept);
        if let Some(failed) = self.stalls.end() {
            self.ledger.tell(Notice::Over { volume: self.stalls.volume().to_owned(), failed });
        }
    }
}

/// Tells that commands wait, if that is to be told.
fn tell(stalls: &StoreRetry, kind: ErrorKind, ledger: &Ledger, now: Instant) {
    if let Some(untold) = stalls.tidings(now) {
        let at_most = stalls.patience().with(kind).unwrap_or_default();
        ledger.tell(Notice::Stalled { volume: stalls.volume().to_owned(), kind, at_most, untold });
    }
}

impl<H: Handle> Engine<H> {
    /// What becomes of a parked command. It is kept if its store could not do its work, and there is patience with that.
    pub(crate) fn judge(&mut self, tag: u32, completion: &Completion, now: Instant) -> Verdict {
        let running = self.running.get_mut(tag as usize).and_then(Option::as_mut);
        if let Some(Running { attempt: Some(attempt), execution, .. }) = &running
            && attempt.stall.is_some()
        {
            execution.stalls().seen(now);
        }
        if completion.is_ok() {
            return Verdict::Over;
        }
        let room = self.room();
        let running = self.running.get_mut(tag as usize).and_then(Option::as_mut);
        let Some(running) = running.filter(|running| running.aborted.is_none()) else { return Verdict::Over };
        let Running { attempt: Some(attempt), execution, .. } = running else { return Verdict::Over };
        let verdict = attempt.judge(completion, execution, &room, now);
        if let Verdict::Retry(at) = verdict {
            self.stalled.insert((at, tag));
        }
        verdict
    }

    /// Asks those stores again that are due.
    pub(crate) fn retry_stalled(&mut self, now: Instant) {
        while let Some(&(at, tag)) = self.stalled.first()
            && at <= now
        {
            self.stalled.pop_first();
            let Some(running) = self.running.get(tag as usize).and_then(Option::as_ref) else { continue };
            let Some(attempt) = &running.attempt else { continue };
            let memory = attempt.memory.as_ref().unwrap_or(&self.memory);
            match attempt.retry.request(|bytes| memory.frame(bytes)) {
                Some(request) => {
                    let started = running.execution.store().start(request, &self.completions);
                    self.take_off(tag, started, now);
                }
                None => match attempt.failure(running.execution.stalls(), now) {
                    Some(error) => self.conclude(tag, Err(error), now),
                    None => drop(self.stalled.insert((now + RETRY_FIRST, tag))),
                },
            }
        }
    }

    /// The memory that is kept by what waits for stores, and by what waits for other commands meanwhile: perhaps for those.
    fn kept_bytes(&self) -> usize {
        let kept = *lock(&self.ledger.kept);
        let held_bytes = || self.held.iter().map(|held| held.kept_bytes).sum::<usize>();
        if kept.commands == 0 { 0 } else { kept.bytes + held_bytes() }
    }

    /// What more may wait for stores: the rest of the memory, and of the three quarters that a client that is alone has, is for
    /// commands whose stores work.
    pub(crate) fn room(&self) -> Room {
        let kept_max_bytes = self.memory.length_bytes() / 8 * 5;
        Room { ledger: Arc::clone(&self.ledger), bytes: kept_max_bytes.checked_sub(self.kept_bytes()) }
    }

    /// The commands that wait for stores, when they keep too much of the memory together: their sessions are to send no more, or no
    /// more for these logical units. None when they keep less.
    pub fn commands_to_pause(&mut self) -> impl Iterator<Item = H> {
        let parts = if self.keeps_too_much { 2 * KEPT_MAX_PARTS } else { KEPT_MAX_PARTS };
        self.keeps_too_much = self.kept_bytes() > self.memory.length_bytes() / parts;
        let running = self.running.iter().take(if self.keeps_too_much { usize::MAX } else { 0 });
        running.flatten().filter_map(Running::stalled)
    }
}

impl<H: Handle> Running<H> {
    /// Which command waits for its store, or asks it again.
    fn stalled(&self) -> Option<H> {
        self.attempt.as_ref().filter(|attempt| attempt.stall.is_some())?;
        Some(self.command?.handle)
    }
}
