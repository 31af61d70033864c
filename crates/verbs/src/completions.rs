//! What an adapter has done: a completion queue, and the descriptor that tells of it.

use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use crate::domain::Domain;
use crate::error::Error;
use crate::ffi::{self, CompletionChannel, CompletionQueue, WorkCompletion};
use crate::readiness::{Readiness, Source};

/// A completion queue with a channel of its own.
///
/// The channel tells of the first completion after the queue was armed, and then of none before it is armed again. So whoever has found
/// the queue empty arms it and looks once more before sleeping.
pub(crate) struct Completions {
    pub(crate) queue: *mut CompletionQueue,
    channel: *mut CompletionChannel,
    is_armed: bool,
    /// Completions that it has room for.
    entries: usize,
    _domain: Arc<Domain>,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for Completions {}
// SAFETY: nothing is done by a shared reference.
unsafe impl Sync for Completions {}

impl Completions {
    /// # Errors
    /// The adapter's.
    pub(crate) fn new(domain: &Arc<Domain>, entries: u32, readiness: &Readiness) -> Result<Self, Error> {
        let api = ffi::load()?;
        // SAFETY: the context lives as long as the domain.
        let channel = unsafe { (api.ibv_create_comp_channel)(domain.context) };
        if channel.is_null() {
            return Err(Error::last("an RDMA adapter has no completion channel"));
        }
        // SAFETY: the channel was just made by this adapter. It outlives the queue.
        let queue = unsafe { (api.ibv_create_cq)(domain.context, entries as i32, ptr::null_mut(), channel, 0) };
        if queue.is_null() {
            let error = Error::last("an RDMA adapter has no completion queue");
            // SAFETY: nothing uses the channel.
            unsafe { (api.ibv_destroy_comp_channel)(channel) };
            return Err(error);
        }
        let entries = entries as usize;
        let completions = Completions { queue, channel, is_armed: false, entries, _domain: Arc::clone(domain) };
        // SAFETY: the descriptor is the channel's, which is open as long as this exists.
        let descriptor = unsafe { BorrowedFd::borrow_raw((*channel).descriptor) };
        readiness.add(descriptor, Source::Completions)?;
        Ok(completions)
    }

    /// Completions that it has room for.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// The next completions; gives their number.
    ///
    /// # Errors
    /// The adapter's: its queue is not what it should be.
    pub(crate) fn poll(&mut self, into: &mut [WorkCompletion]) -> Result<usize, Error> {
        // SAFETY: the queue and its context live; the adapter writes no more completions than there is room for.
        let count = unsafe {
            let poll = (*(*self.queue).context).operations.poll_cq;
            poll(self.queue, into.len() as i32, into.as_mut_ptr())
        };
        usize::try_from(count).map_err(|_| Error::number("an RDMA adapter does not say what it has done", count))
    }

    /// Takes what the channel tells: that there is something in the queue.
    pub(crate) fn take_notice(&mut self) {
        let Ok(api) = ffi::load() else { return };
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel lives and does not block; both places are written to during the call.
        while unsafe { (api.ibv_get_cq_event)(self.channel, &raw mut queue, &raw mut context) } == 0 {
            // SAFETY: it is this queue, the only one of the channel; each event is acknowledged once, as destroying the queue demands.
            unsafe { (api.ibv_ack_cq_events)(queue, 1) };
            self.is_armed = false;
        }
    }

    /// Has the channel tell of the next completion. `false` when it was to do so already.
    ///
    /// # Errors
    /// The adapter's.
    pub(crate) fn arm(&mut self) -> Result<bool, Error> {
        if self.is_armed {
            return Ok(false);
        }
        // SAFETY: the queue and its context live.
        let failed = unsafe {
            let arm = (*(*self.queue).context).operations.req_notify_cq;
            arm(self.queue, 0)
        };
        if failed != 0 {
            return Err(Error::number("an RDMA adapter does not tell when it has done something", failed));
        }
        self.is_armed = true;
        Ok(true)
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        let Ok(api) = ffi::load() else { return };
        // SAFETY: the queue pair that used them is gone, all events that were read are acknowledged, and the queue goes before its channel.
        unsafe {
            (api.ibv_destroy_cq)(self.queue);
            (api.ibv_destroy_comp_channel)(self.channel);
        }
    }
}
