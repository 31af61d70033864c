//! The client's region as something that can be waited for.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use sanwire_buffer::{Frame, Region};

use super::VolumeError;
use crate::queue::{Notify, Ticket, Turns};

/// The frames of one region, first come, first served. The volumes of one client share one pool by cloning it.
#[derive(Clone)]
pub struct BufferPool {
    region: Region,
    turns: Arc<Turns>,
    notify: Option<Notify>,
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferPool({:?})", self.region)
    }
}

impl BufferPool {
    /// A pool of the region's frames. Make one pool for a region: a second one would not hear of frames that go home.
    #[must_use]
    pub fn new(region: Region) -> Self {
        let turns = Arc::new(Turns::default());
        let woken = Arc::clone(&turns);
        region.on_release(move || woken.wake_first());
        BufferPool { region, turns, notify: None }
    }

    /// The same, for a driver that keeps frames back and lets them go when somebody waits: `notify` wakes it then.
    pub(crate) fn notifying(self, notify: Notify) -> Self {
        BufferPool { notify: Some(notify), ..self }
    }

    /// Whether somebody waits for a frame.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.turns.is_empty()
    }

    /// The region behind the pool.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// A frame of `length_bytes`; waits its turn while the region has no room.
    ///
    /// # Errors
    /// [`VolumeError::TooLong`] when the whole region would not be enough.
    pub async fn frame(&self, length_bytes: usize) -> Result<Frame, VolumeError> {
        if length_bytes > self.region.length_bytes() {
            return Err(VolumeError::TooLong {
                length_bytes: length_bytes as u64,
                max_bytes: self.region.length_bytes() as u64,
            });
        }
        let mut place = Place { turns: &self.turns, ticket: Ticket::default() };
        // Only who finds none has the region tell of the next.
        let attempt = || {
            self.region.frame(length_bytes).or_else(|| {
                self.region.await_release();
                self.region.frame(length_bytes)
            })
        };
        let frame = poll_fn(|context| match self.turns.poll(&mut place.ticket, context, attempt) {
            Some(frame) => std::task::Poll::Ready(frame),
            None => {
                self.notify.iter().for_each(|notify| notify());
                std::task::Poll::Pending
            }
        })
        .await;
        Ok(frame)
    }
}

/// Leaves the line when the future is dropped before its turn.
struct Place<'a> {
    turns: &'a Turns,
    ticket: Ticket,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.turns.leave(&mut self.ticket);
    }
}
