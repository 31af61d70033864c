//! The seam between the handles of a volume and the driver that serves it.
//!
//! Handles push [`Op`]s on a bounded queue, the driver pops them and completes each. Both may be on one thread (then
//! nothing here makes a system call) or on several (then a sleeping driver is woken by its [`Notify`]).

mod counts;
mod operation;
mod turns;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::volume::VolumeError;
pub use counts::{OpClass, OpCounts, OpDurations, VolumeLooker};
use counts::{Timekeeper, Timer};
pub use operation::{AllocatedRun, OpKind, OpOutput};
pub(crate) use turns::{Ticket, Turns};

/// Operations that a queue holds at the most; further ones wait their turn in their futures.
pub const QUEUE_OPS_MAX: usize = 1024;

/// Wakes a sleeping driver (writes to its eventfd).
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// One operation and the way to answer it.
#[derive(Debug)]
pub struct Op {
    /// What to do.
    pub kind: OpKind,
    /// Whom to tell.
    pub completer: Completer,
}

/// The answer's way back to the future that waits for it. Dropped unused, it answers [`VolumeError::Closed`].
#[derive(Debug)]
pub struct Completer {
    slot: Option<Arc<Slot>>,
    timer: Option<Timer>,
}

impl Completer {
    /// Stores the result and wakes the future that waits for it. If that was dropped, so is the result.
    pub fn complete(mut self, result: Result<OpOutput, VolumeError>) {
        self.end(result);
    }

    fn end(&mut self, result: Result<OpOutput, VolumeError>) {
        if let Some(timer) = self.timer.take() {
            timer.stop();
        }
        if let Some(slot) = self.slot.take() {
            slot.fill(result);
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.end(Err(VolumeError::Closed));
    }
}

/// Where one result waits for its future: the only allocation of an operation.
#[derive(Debug)]
struct Slot(Mutex<SlotState>);

#[derive(Debug)]
enum SlotState {
    Pending(Option<Waker>),
    Done(Result<OpOutput, VolumeError>),
    Abandoned,
}

impl Slot {
    fn fill(&self, result: Result<OpOutput, VolumeError>) {
        let previous = {
            let mut state = self.lock();
            match &*state {
                SlotState::Pending(_) => std::mem::replace(&mut *state, SlotState::Done(result)),
                _ => return,
            }
        };
        if let SlotState::Pending(Some(waker)) = previous {
            waker.wake();
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<OpOutput, VolumeError>> {
        let mut state = self.lock();
        if let SlotState::Pending(waker) = &mut *state {
            match waker {
                Some(kept) => kept.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, SlotState::Abandoned) {
            SlotState::Done(result) => Poll::Ready(result),
            _ => Poll::Ready(Err(VolumeError::Closed)),
        }
    }

    /// Nobody waits any more; a result that is there goes with its frame.
    fn abandon(&self) {
        let previous = std::mem::replace(&mut *self.lock(), SlotState::Abandoned);
        drop(previous);
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        // Nothing panics while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The driver's end of the queue. Dropping it closes the queue with [`VolumeError::Closed`].
pub struct OpQueue(Arc<Channel>);

/// What both ends share.
pub(crate) struct Channel {
    ops: Mutex<Ops>,
    durations: Timekeeper,
    full: Turns,
    sleeping: AtomicBool,
    /// What is to be stable at once is written and flushed.
    lacks_fua: AtomicBool,
    notify: Notify,
}

#[derive(Default)]
struct Ops {
    queue: VecDeque<Op>,
    closed: Option<VolumeError>,
    counts: OpCounts,
    abandoned: bool,
    abandonment_seen: bool,
}

impl OpQueue {
    /// A queue whose sleeping driver is woken by `notify`. Its handles are made by [`crate::Volume::from_queue`].
    #[must_use]
    pub fn new(notify: Notify) -> Self {
        OpQueue(Arc::new(Channel {
            ops: Mutex::default(),
            durations: Timekeeper::default(),
            full: Turns::default(),
            sleeping: AtomicBool::new(false),
            lacks_fua: AtomicBool::new(false),
            notify,
        }))
    }

    /// The next operation, oldest first.
    #[must_use]
    pub fn pop(&self) -> Option<Op> {
        let op = self.0.lock().queue.pop_front();
        if op.is_some() {
            self.0.full.wake_first();
        }
        op
    }

    /// Operations that wait to be popped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().queue.len()
    }

    /// Whether no operation waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Announces that the driver is about to sleep. `false` means that there is work: do not sleep.
    ///
    /// After `true` the next submission calls the [`Notify`]; the driver calls [`OpQueue::awake`] when it wakes.
    #[must_use]
    pub fn prepare_to_sleep(&self) -> bool {
        self.0.sleeping.store(true, Ordering::SeqCst);
        let ops = self.0.lock();
        // The lock orders this look against every push: a later push sees the flag, an earlier one is seen here.
        let work = !ops.queue.is_empty() || (ops.abandoned && !ops.abandonment_seen);
        if work {
            self.0.sleeping.store(false, Ordering::SeqCst);
        }
        !work
    }

    /// The driver is awake again and needs no wake-up.
    pub fn awake(&self) {
        self.0.sleeping.store(false, Ordering::SeqCst);
    }

    /// Whether the last handle is gone: nothing will be submitted any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        let mut ops = self.0.lock();
        ops.abandonment_seen |= ops.abandoned;
        ops.abandoned
    }

    /// Fails everything queued, and everything submitted from now on, with `error`.
    pub fn close(&self, error: VolumeError) {
        let failed = {
            let mut ops = self.0.lock();
            ops.closed.get_or_insert_with(|| error.clone());
            std::mem::take(&mut ops.queue)
        };
        for op in failed {
            op.completer.complete(Err(error.clone()));
        }
        self.0.full.wake_first();
    }

    /// Whether the unit has a write cache and no way around it, for single writes.
    pub(crate) fn set_lacks_fua(&self, lacks_fua: bool) {
        self.0.lacks_fua.store(lacks_fua, Ordering::Relaxed);
    }

    pub(crate) fn channel(&self) -> Arc<Channel> {
        Arc::clone(&self.0)
    }
}

impl Drop for OpQueue {
    fn drop(&mut self) {
        self.close(VolumeError::Closed);
    }
}

impl fmt::Debug for OpQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpQueue({} waiting)", self.len())
    }
}

impl Channel {
    /// The last handle is gone.
    pub(crate) fn abandon(&self) {
        self.lock().abandoned = true;
        self.wake_driver();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    pub(crate) fn lacks_fua(&self) -> bool {
        self.lacks_fua.load(Ordering::Relaxed)
    }

    /// The result of an operation, which is queued at the first poll.
    pub(crate) fn submit(&self, kind: OpKind) -> Submission<'_> {
        Submission { channel: self, stage: Stage::Fresh(kind), ticket: Ticket::default() }
    }

    /// Queues the operation in `kind`; leaves it there and gives `None` while the queue is full.
    fn push(&self, kind: &mut Option<OpKind>) -> Option<Result<Arc<Slot>, VolumeError>> {
        let mut ops = self.lock();
        if let Some(error) = &ops.closed {
            return Some(Err(error.clone()));
        }
        if ops.queue.len() >= QUEUE_OPS_MAX {
            return None;
        }
        let kind = kind.take()?;
        ops.counts.note(&kind);
        let slot = Arc::new(Slot(Mutex::new(SlotState::Pending(None))));
        let completer = Completer { slot: Some(Arc::clone(&slot)), timer: self.durations.start(&kind) };
        ops.queue.push_back(Op { kind, completer });
        drop(ops);
        self.wake_driver();
        Some(Ok(slot))
    }

    fn wake_driver(&self) {
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            (self.notify)();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ops> {
        // Nothing panics while the lock is held.
        self.ops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One operation on its way: waiting for a place in the queue, then for its result.
///
/// Dropping it early is safe: an operation that is queued still runs, and its frame goes home afterwards.
pub(crate) struct Submission<'a> {
    channel: &'a Channel,
    stage: Stage,
    ticket: Ticket,
}

enum Stage {
    Fresh(OpKind),
    Queued(Arc<Slot>),
    Over,
}

impl Future for Submission<'_> {
    type Output = Result<OpOutput, VolumeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let slot = match std::mem::replace(&mut this.stage, Stage::Over) {
            Stage::Fresh(kind) => {
                let mut kind = Some(kind);
                match this.channel.full.poll(&mut this.ticket, context, || this.channel.push(&mut kind)) {
                    Some(Ok(slot)) => slot,
                    Some(Err(error)) => return Poll::Ready(Err(error)),
                    None => {
                        if let Some(kind) = kind {
                            this.stage = Stage::Fresh(kind);
                        }
                        return Poll::Pending;
                    }
                }
            }
            Stage::Queued(slot) => slot,
            Stage::Over => return Poll::Ready(Err(VolumeError::Closed)),
        };
        let result = slot.poll(context);
        if result.is_pending() {
            this.stage = Stage::Queued(slot);
        }
        result
    }
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        self.channel.full.leave(&mut self.ticket);
        if let Stage::Queued(slot) = &self.stage {
            slot.abandon();
        }
    }
}

#[cfg(test)]
mod tests;
