//! A queue pair: what an adapter is to do for one connection.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use crate::completions::Completions;
use crate::domain::Domain;
use crate::error::{Error, check};
use crate::ffi::{
    self, QP_NOT_READY_TIMER, QP_PATH_MTU, QP_RELIABLE, QpAttributes, QpInitAttributes, QpLimits, QueuePair,
    ReceiveRequest, ScatterGather, SendRequest, mtu_bytes,
};
use crate::last_receives;
use crate::manager::Manager;
use crate::shared_receives::SharedReceives;

/// What a posted request is, by its identifier: the only thing that a failed one tells of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// A receive into this slot.
    Receive(u64),
    /// An order of this number.
    Order(u64),
    /// A read of this number.
    Read(u64),
}

const NUMBER_BITS: u32 = 56;

/// 640 microseconds, as InfiniBand numbers times (IBA 9.7.5.2.8).
const RETRY_AFTER: u8 = 12;

impl Work {
    pub(crate) fn id(self) -> u64 {
        let (kind, number) = match self {
            Work::Receive(number) => (0, number),
            Work::Order(number) => (1, number),
            Work::Read(number) => (2, number),
        };
        kind << NUMBER_BITS | number
    }

    pub(crate) fn of(id: u64) -> Work {
        let number = id & ((1 << NUMBER_BITS) - 1);
        match id >> NUMBER_BITS {
            0 => Work::Receive(number),
            1 => Work::Order(number),
            _ => Work::Read(number),
        }
    }
}

/// The queue pair of a connection. It is gone when this is dropped: then the adapter touches nothing of what was posted.
pub(crate) struct Queue {
    pointer: *mut QueuePair,
    manager: Arc<Manager>,
    /// Why the adapter has not taken something.
    failure: Option<Error>,
}

// SAFETY: the library may be called from any thread.
unsafe impl Send for Queue {}
// SAFETY: the library has locks of its own for what is posted.
unsafe impl Sync for Queue {}

impl Queue {
    /// One with room for so many requests of either kind; it may share receives with others.
    ///
    /// # Errors
    /// The adapter's.
    pub(crate) fn new(
        manager: &Arc<Manager>,
        domain: &Domain,
        completions: &Completions,
        [sends, receives]: [u32; 2],
        shared: Option<&SharedReceives>,
    ) -> Result<Self, Error> {
        let receives = if shared.is_some() { 0 } else { receives };
        let mut attributes = QpInitAttributes {
            context: ptr::null_mut(),
            send_queue: completions.queue,
            receive_queue: completions.queue,
            shared_receives: shared.map_or(ptr::null_mut(), |shared| shared.queue),
            limits: QpLimits { sends, receives, send_pieces: 1, receive_pieces: 1, inline_bytes: 0 },
            kind: QP_RELIABLE,
            signals_all: 0,
        };
        // SAFETY: manager, domain, completion queue and shared receives live, and are of one adapter; whoever has this drops it before them.
        let result = unsafe { (ffi::load()?.rdma_create_qp)(manager.id(), domain.pointer, &raw mut attributes) };
        check("an RDMA adapter has no queue pair", result)?;
        // SAFETY: the call has put it there.
        let pointer = unsafe { (*manager.id()).queue_pair };
        last_receives::begin(pointer);
        Ok(Queue { pointer, manager: Arc::clone(manager), failure: None })
    }

    /// The most data of a packet on the path of its connection, once that is there and if the adapter tells.
    pub(crate) fn path_mtu_bytes(&self) -> Option<u32> {
        let mut attributes = QpAttributes::new(0, 0);
        let mut beginning = MaybeUninit::<QpInitAttributes>::uninit();
        // SAFETY: the queue pair lives; both places are written to during the call, and the second is not looked at.
        let failed = unsafe {
            (ffi::load().ok()?.ibv_query_qp)(self.pointer, &raw mut attributes, QP_PATH_MTU, beginning.as_mut_ptr())
        };
        (failed == 0).then(|| mtu_bytes(attributes.path_mtu)).flatten()
    }

    /// For who has this as long.
    pub(crate) fn pointer(&self) -> *mut QueuePair {
        self.pointer
    }

    /// Has the other end try again soon when there is no receive for its message: without this it does so after 655 ms.
    pub(crate) fn hurry(&self) -> Result<(), Error> {
        let mut attributes = QpAttributes::new(0, RETRY_AFTER);
        // SAFETY: the queue pair lives; the attributes are read during the call.
        let failed = unsafe { (ffi::load()?.ibv_modify_qp)(self.pointer, &raw mut attributes, QP_NOT_READY_TIMER) };
        if failed == 0 { Ok(()) } else { Err(Error::number("an RDMA adapter keeps its timer", failed)) }
    }

    /// Why the adapter has not taken what was posted last, if it has not.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Has the adapter do these, one after the other. Gives whether it has taken them: if not, the first of them may be under way, and
    /// [`Queue::failure`] says why.
    ///
    /// # Safety
    /// The pieces of memory that they name stay where they are until their completions, or until this is gone. Nobody else writes to
    /// what is sent, nor looks at what is read into.
    #[must_use]
    pub(crate) unsafe fn post(&mut self, requests: &mut [SendRequest], pieces: &mut [ScatterGather]) -> bool {
        debug_assert_eq!(requests.len(), pieces.len());
        let mut next = ptr::null_mut();
        for (request, piece) in requests.iter_mut().zip(pieces).rev() {
            (request.pieces, request.piece_count) = (&raw mut *piece, i32::from(piece.length > 0));
            request.next = next;
            next = &raw mut *request;
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair and its context live; the chain is read during the call. The caller promises the rest.
        let failed = unsafe {
            let post = (*(*self.pointer).context).operations.post_send;
            post(self.pointer, next, &raw mut bad)
        };
        self.failure = (failed != 0).then(|| Error::number("an RDMA adapter takes no more work", failed));
        failed == 0
    }

    /// Has the adapter put the next message there.
    ///
    /// # Safety
    /// The memory stays until the completion, or until this is gone, and nobody looks there before.
    ///
    /// # Errors
    /// The adapter's.
    pub(crate) unsafe fn post_receive(&mut self, work: Work, mut piece: ScatterGather) -> Result<(), Error> {
        let mut request =
            ReceiveRequest { id: work.id(), next: ptr::null_mut(), pieces: &raw mut piece, piece_count: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: as in `post`.
        let failed = unsafe {
            let post = (*(*self.pointer).context).operations.post_recv;
            post(self.pointer, &raw mut request, &raw mut bad)
        };
        if failed == 0 { Ok(()) } else { Err(Error::number("an RDMA adapter takes no more receives", failed)) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let Ok(api) = ffi::load() else { return };
        // SAFETY: the identifier lives as long as the manager, and has this queue pair.
        unsafe { (api.rdma_destroy_qp)(self.manager.id()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_known_by_its_identifier() {
        for work in [Work::Receive(0), Work::Receive(7 << 32 | 9), Work::Order(1 << 55), Work::Read(3)] {
            assert_eq!(Work::of(work.id()), work);
        }
    }
}
