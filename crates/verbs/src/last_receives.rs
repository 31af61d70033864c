//! Queue pairs that have done with the last receive that they took of a shared queue (`IBV_EVENT_QP_LAST_WQE_REACHED`).
//!
//! The kernel tells of it where it tells of all that an adapter has to say besides completions: at one place for all of this process that
//! has the adapter. So whoever waits for one keeps what it hears of others.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::Error;
use crate::ffi::{self, AsyncEvent, Context, EVENT_LAST_RECEIVE, QP_STATE, QP_STATE_ERROR, QpAttributes, QueuePair};
use crate::readiness::set_nonblocking;

/// How long an adapter may take to tell. It is a matter of microseconds, and whoever waits does nothing else.
const PATIENCE: Duration = Duration::from_millis(5);

/// The addresses of those that are told of and that nobody has asked for.
static DONE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Has the place be read without waiting.
///
/// # Safety
/// `context` is that of an adapter that is open.
///
/// # Errors
/// The kernel's.
pub(crate) unsafe fn prepare(context: *mut Context) -> Result<(), Error> {
    // SAFETY: the descriptor is open as long as the adapter is, which the caller promises.
    let descriptor = unsafe { BorrowedFd::borrow_raw((*context).events) };
    set_nonblocking(descriptor)
        .map_err(|source| Error::Adapter { what: "the events of an RDMA adapter cannot be asked for", source })
}

/// Nothing is known of a queue pair that is new, whatever was at its place before.
pub(crate) fn begin(queue_pair: *mut QueuePair) {
    done(|done| done.remove(&queue_pair.addr()));
}

/// Has a queue pair take no more receives, and waits a moment until it has done with those that it has. Gives whether it is known to have.
///
/// # Safety
/// Both live, and the queue pair is of this adapter, for which [`prepare`] was called.
pub(crate) unsafe fn end(context: *mut Context, queue_pair: *mut QueuePair) -> bool {
    let Ok(api) = ffi::load() else { return false };
    let mut attributes = QpAttributes::new(QP_STATE_ERROR, 0);
    // SAFETY: the caller promises that it lives; the attributes are read during the call. It may be in that state already.
    let failed = unsafe { (api.ibv_modify_qp)(queue_pair, &raw mut attributes, QP_STATE) };
    if failed != 0 {
        // The adapter is gone, and tells nothing any more.
        return false;
    }
    // SAFETY: as in `prepare`.
    let descriptor = unsafe { BorrowedFd::borrow_raw((*context).events) };
    let until = Instant::now() + PATIENCE;
    loop {
        // SAFETY: the caller promises that the adapter is open.
        unsafe { hear(context, api) };
        let left = until.saturating_duration_since(Instant::now());
        if done(|done| done.remove(&queue_pair.addr())) {
            return true;
        }
        if left.is_zero() {
            return false;
        }
        // Another one that waits may hear it first: so nobody sleeps long.
        let timeout = Timespec { tv_sec: 0, tv_nsec: left.min(Duration::from_millis(1)).subsec_nanos().into() };
        let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout));
    }
}

/// Hears all that there is.
///
/// # Safety
/// `context` is that of an adapter that is open.
unsafe fn hear(context: *mut Context, api: &ffi::Api) {
    let mut event = AsyncEvent { element: ptr::null_mut(), kind: 0 };
    // SAFETY: the caller promises that it is open, and reading there does not block; the event is written to during the call.
    while unsafe { (api.ibv_get_async_event)(context, &raw mut event) } == 0 {
        if event.kind == EVENT_LAST_RECEIVE {
            done(|done| done.insert(event.element.addr()));
        }
        // SAFETY: it was got above, and is acknowledged once: destroying what it is of waits for that.
        unsafe { (api.ibv_ack_async_event)(&raw mut event) };
    }
}

fn done<T>(act: impl FnOnce(&mut BTreeSet<usize>) -> T) -> T {
    act(&mut DONE.lock().unwrap_or_else(PoisonError::into_inner))
}
