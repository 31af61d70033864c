//! Buffers for the messages of the other end.

use std::sync::Arc;

use sanwire_buffer::Frame;

use crate::adapter::Domain;
use crate::error::Error;
use crate::ffi::ScatterGather;
use crate::memory::{Access, Pool};
use crate::queue::{Queue, Work};

/// Slots of an array are no less than that apart, so that no two share a line of a cache.
const SLOT_ALIGNMENT_BYTES: usize = 64;

/// Slots of one length.
struct Array {
    pool: Pool,
    slot_bytes: usize,
}

/// All receives of one connection. A message is copied from its slot, for messages are short: data moves by RDMA. So the slot is free for
/// the next one at once.
#[derive(Default)]
pub(crate) struct Receives {
    arrays: Vec<Array>,
    posted: usize,
    /// How many are to be posted, and how long they are to be.
    wanted: usize,
    longest_bytes: usize,
}

impl Receives {
    /// Posts as many as are wanted from now on. Longer ones than before take the place of those that are used.
    ///
    /// # Errors
    /// When there is no memory for them, or the adapter does not take them.
    pub(crate) fn expect(
        &mut self,
        count: usize,
        longest_bytes: usize,
        domain: &Arc<Domain>,
        queue: &mut Queue,
    ) -> Result<(), Error> {
        self.wanted = self.wanted.max(count);
        self.longest_bytes = self.longest_bytes.max(longest_bytes);
        self.fill(domain, queue)
    }

    fn fill(&mut self, domain: &Arc<Domain>, queue: &mut Queue) -> Result<(), Error> {
        let count = self.wanted.saturating_sub(self.posted);
        if count == 0 {
            return Ok(());
        }
        let slot_bytes = self.longest_bytes.next_multiple_of(SLOT_ALIGNMENT_BYTES).max(SLOT_ALIGNMENT_BYTES);
        let access = Access { local_write: true, ..Access::default() };
        let pool = Pool::new(domain, count * slot_bytes, access)?;
        self.arrays.push(Array { pool, slot_bytes });
        let number = self.arrays.len() - 1;
        (0..count).try_for_each(|slot| self.post(number, slot, queue))
    }

    fn post(&mut self, array: usize, slot: usize, queue: &mut Queue) -> Result<(), Error> {
        let Array { pool, slot_bytes } = &self.arrays[array];
        let piece = ScatterGather {
            address: (pool.base().addr() + slot * slot_bytes) as u64,
            length: *slot_bytes as u32,
            local_key: pool.local_key(),
        };
        let work = Work::Receive((array as u64) << 32 | slot as u64);
        // SAFETY: the slot lies in the pool, which is dropped after the queue pair, and it is looked at by `take` only.
        unsafe { queue.post_receive(work, piece)? };
        self.posted += 1;
        Ok(())
    }

    /// A message of so many bytes has come into this slot.
    ///
    /// # Errors
    /// When the slot cannot be posted again.
    pub(crate) fn take(
        &mut self,
        slot: u64,
        length_bytes: usize,
        domain: &Arc<Domain>,
        queue: &mut Queue,
    ) -> Result<Frame, Error> {
        let (array, slot) = ((slot >> 32) as usize, slot as u32 as usize);
        self.posted -= 1;
        let Array { pool, slot_bytes } = &self.arrays[array];
        let length_bytes = length_bytes.min(*slot_bytes);
        // SAFETY: the slot lies in the pool; its receive has ended, so the adapter has written so many bytes there and writes no more.
        let bytes = unsafe { std::slice::from_raw_parts(pool.base().add(slot * slot_bytes), length_bytes) };
        let frame = Frame::from(bytes.to_vec());
        if *slot_bytes >= self.longest_bytes {
            self.post(array, slot, queue)?;
        } else {
            self.fill(domain, queue)?;
        }
        Ok(frame)
    }

    pub(crate) fn posted(&self) -> usize {
        self.posted
    }
}
