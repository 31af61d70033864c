//! Receives that connections of one adapter share (a shared receive queue): so that many of them do not each lock memory for all the
//! messages that they might send at once.

use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_iwarp::Fault;

use crate::domain::Domain;
use crate::error::Error;
use crate::ffi::{self, QueuePair, ReceiveRequest, SharedReceiveQueue, SrqInitAttributes};
use crate::last_receives;
use crate::queue::Work;
use crate::receives::Received;
use crate::slots::{Slot, Slots};

/// Receives that may have been lost with connections before others begin with a new queue.
const LOST_MAX: usize = 64;

/// A shared receive queue, and the memory that is posted there.
///
/// A message is copied as soon as it is taken, and its receive posted again. So nothing but what adapters have received and nobody has
/// taken is missing from the queue. An end that sends more than it may is left as soon as that is taken ([`Credit`]). When all receives
/// are used up for a moment, senders try again (`IBV_WC_RNR_RETRY_EXC_ERR` never comes of it: they do so for ever).
pub(crate) struct SharedReceives {
    pub(crate) queue: *mut SharedReceiveQueue,
    /// Receives that it holds, at the most.
    most: usize,
    longest_bytes: usize,
    state: Mutex<State>,
    domain: Arc<Domain>,
}

// SAFETY: the library may be called from any thread; it has locks of its own for what is posted.
unsafe impl Send for SharedReceives {}
// SAFETY: as above.
unsafe impl Sync for SharedReceives {}

#[derive(Default)]
struct State {
    slots: Slots,
    posted: usize,
    /// Perhaps posted no more: adapters may have taken them for connections that are gone.
    lost: usize,
    /// Messages that all who share may send.
    demand: usize,
}

impl SharedReceives {
    /// One with at most so many receives, each for a message of at most so many bytes.
    ///
    /// # Errors
    /// The adapter's.
    pub(crate) fn new(domain: &Arc<Domain>, most: u32, longest_bytes: usize) -> Result<Self, Error> {
        let mut attributes = SrqInitAttributes { context: ptr::null_mut(), receives: most, pieces: 1, limit: 0 };
        // SAFETY: the domain lives as long as what belongs to it.
        let queue = unsafe { (ffi::load()?.ibv_create_srq)(domain.pointer, &raw mut attributes) };
        if queue.is_null() {
            return Err(Error::last("an RDMA adapter has no shared receive queue"));
        }
        let (state, domain) = (Mutex::default(), Arc::clone(domain));
        let shared = SharedReceives { queue, most: most as usize, longest_bytes, state, domain };
        // SAFETY: the context lives as long as the domain.
        unsafe { last_receives::prepare(shared.domain.context)? };
        Ok(shared)
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// So much may be lost that others should not begin with it.
    pub(crate) fn is_worn(&self) -> bool {
        self.lock().lost >= LOST_MAX
    }

    /// One of those who share may send so many messages from now on, instead of so many.
    fn change_demand(&self, before: usize, now: usize) -> Result<(), Error> {
        let mut state = self.lock();
        state.demand = (state.demand + now).saturating_sub(before);
        let missing = state.demand.min(self.most).saturating_sub(state.posted);
        self.add(missing, &mut state)
    }

    fn add(&self, count: usize, state: &mut State) -> Result<(), Error> {
        if count == 0 {
            return Ok(());
        }
        let slots = state.slots.take(count, self.longest_bytes, &self.domain)?;
        slots.into_iter().try_for_each(|slot| {
            self.post(slot, state)?;
            state.posted += 1;
            Ok(())
        })
    }

    /// Has the adapter put a message there.
    fn post(&self, slot: Slot, state: &State) -> Result<(), Error> {
        let mut piece = state.slots.piece(slot);
        let id = Work::Receive(slot.number()).id();
        let mut request = ReceiveRequest { id, next: ptr::null_mut(), pieces: &raw mut piece, piece_count: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue and its context live; the slot lies in memory that is dropped after the queue, and is looked at only when its
        // receive has ended.
        let failed = unsafe {
            let post = (*(*self.queue).context).operations.post_srq_recv;
            post(self.queue, &raw mut request, &raw mut bad)
        };
        if failed == 0 { Ok(()) } else { Err(Error::number("an RDMA adapter takes no more receives", failed)) }
    }

    /// A receive has ended: it is posted again.
    fn post_again(&self, slot: Slot, state: &mut State) -> Result<(), Error> {
        self.post(slot, state).inspect_err(|_| {
            state.slots.give_back(slot);
            state.posted -= 1;
        })
    }

    /// Nobody knows whether an adapter has taken a receive for a connection that is gone: another one is posted in its place.
    fn note_lost(&self) {
        let mut state = self.lock();
        state.lost += 1;
        if state.posted < self.most
            && let Err(error) = self.add(1, &mut state)
        {
            tracing::debug!("a receive that may be lost is not replaced: {error}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedReceives {
    fn drop(&mut self) {
        let Ok(api) = ffi::load() else { return };
        // SAFETY: the queue pairs that shared it are gone: whoever has one holds this.
        unsafe { (api.ibv_destroy_srq)(self.queue) };
    }
}

/// What one connection may take of it.
pub(crate) struct Credit {
    shared: Arc<SharedReceives>,
    /// Messages that the other end may send: counted when they are taken.
    left: usize,
    longest_bytes: usize,
    /// What is reckoned for it.
    reckoned: usize,
}

impl Credit {
    pub(crate) fn new(shared: Arc<SharedReceives>) -> Self {
        Credit { shared, left: 0, longest_bytes: 0, reckoned: 0 }
    }

    /// From now on so many messages may come, if not more may already.
    ///
    /// # Errors
    /// As for [`crate::receives::Receives::expect`].
    pub(crate) fn expect(&mut self, count: usize, longest_bytes: usize) -> Result<(), Error> {
        if longest_bytes > self.shared.longest_bytes {
            return Err(Error::number("messages are longer than the receives that connections share", libc::EMSGSIZE));
        }
        self.longest_bytes = longest_bytes;
        self.left = self.left.max(count);
        if count > self.reckoned {
            let before = std::mem::replace(&mut self.reckoned, count);
            self.shared.change_demand(before, count)?;
        }
        Ok(())
    }

    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// # Safety
    /// As for [`crate::receives::Receives::take`].
    pub(crate) unsafe fn take(&mut self, slot: Slot, length_bytes: usize) -> Received {
        let fault = if self.left == 0 {
            Some(Fault::NoBuffer)
        } else {
            (length_bytes > self.longest_bytes).then_some(Fault::TooLong)
        };
        self.left = self.left.saturating_sub(1);
        let mut state = self.shared.lock();
        // SAFETY: the caller promises it.
        let frame = fault.is_none().then(|| unsafe { state.slots.copy(slot, length_bytes) });
        match (self.shared.post_again(slot, &mut state), frame, fault) {
            (Err(error), _, _) => Received::Failed(error),
            (Ok(()), Some(frame), _) => Received::Message(frame),
            (Ok(()), None, fault) => Received::Beyond(fault.unwrap_or(Fault::NoBuffer)),
        }
    }

    /// A receive has ended without a message.
    pub(crate) fn note_undone(&self, slot: Slot) {
        let mut state = self.shared.lock();
        if let Err(error) = self.shared.post_again(slot, &mut state) {
            tracing::debug!("a receive is not posted again: {error}");
        }
    }

    /// Ends what a queue pair has of the receives (IBA 10.2.9.5): it takes no more of them, and all that it has taken is told of by its
    /// completions, once the adapter says that it is done with the last one; one that does not say so may keep one.
    ///
    /// # Safety
    /// The queue pair lives, and is of the adapter of the receives.
    pub(crate) unsafe fn end(&self, queue_pair: *mut QueuePair) {
        // SAFETY: the caller promises it; the context lives as long as the domain.
        let is_told = unsafe { last_receives::end(self.shared.domain.context, queue_pair) };
        if !is_told || self.shared.domain.capabilities.keeps_receives {
            self.shared.note_lost();
        }
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.demand = state.demand.saturating_sub(self.reckoned);
    }
}
