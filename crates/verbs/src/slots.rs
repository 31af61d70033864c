//! Memory for the messages of other ends.

use std::sync::Arc;

use sanwire_buffer::Frame;

use crate::domain::Domain;
use crate::error::Error;
use crate::ffi::ScatterGather;
use crate::memory::{Access, Pool};

/// Slots begin so far apart, at the least, so that no two share a line of a cache.
const SLOT_ALIGNMENT_BYTES: usize = 64;

/// Slots of one length.
struct Array {
    pool: Pool,
    slot_bytes: usize,
}

/// A slot for one message, by its array and its place there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    array: u32,
    place: u32,
}

impl Slot {
    /// As requests name it.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.array) << 32 | u64::from(self.place)
    }

    pub(crate) fn of(number: u64) -> Slot {
        Slot { array: (number >> 32) as u32, place: number as u32 }
    }
}

/// Slots, of which some are free.
#[derive(Default)]
pub(crate) struct Slots {
    arrays: Vec<Array>,
    free: Vec<Slot>,
}

impl Slots {
    /// So many that are free, each for a message of at most so many bytes. Those that are too short are not used again.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub(crate) fn take(
        &mut self,
        count: usize,
        longest_bytes: usize,
        domain: &Arc<Domain>,
    ) -> Result<Vec<Slot>, Error> {
        let arrays = &self.arrays;
        self.free.retain(|slot| arrays[slot.array as usize].slot_bytes >= longest_bytes);
        if self.free.len() < count {
            self.add(count - self.free.len(), longest_bytes, domain)?;
        }
        Ok(self.free.split_off(self.free.len() - count))
    }

    fn add(&mut self, count: usize, longest_bytes: usize, domain: &Arc<Domain>) -> Result<(), Error> {
        let slot_bytes = longest_bytes.next_multiple_of(SLOT_ALIGNMENT_BYTES).max(SLOT_ALIGNMENT_BYTES);
        let access = Access { local_write: true, ..Access::default() };
        let pool = Pool::new(domain, count * slot_bytes, access)?;
        let array = self.arrays.len() as u32;
        self.arrays.push(Array { pool, slot_bytes });
        self.free.extend((0..count as u32).map(|place| Slot { array, place }));
        Ok(())
    }

    /// It is free again.
    pub(crate) fn give_back(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// As a receive names it.
    pub(crate) fn piece(&self, slot: Slot) -> ScatterGather {
        let Array { pool, slot_bytes } = &self.arrays[slot.array as usize];
        ScatterGather {
            address: (pool.base().addr() + slot.place as usize * slot_bytes) as u64,
            length: *slot_bytes as u32,
            local_key: pool.local_key(),
        }
    }

    /// A copy of the message of so many bytes that has come into it: messages are short, data moves by RDMA.
    ///
    /// # Safety
    /// Its receive has ended with so many bytes, and the adapter was not given it again.
    pub(crate) unsafe fn copy(&self, slot: Slot, length_bytes: usize) -> Frame {
        let Array { pool, slot_bytes } = &self.arrays[slot.array as usize];
        let (start, length_bytes) = (slot.place as usize * slot_bytes, length_bytes.min(*slot_bytes));
        // SAFETY: the slot lies in the pool; the caller promises that the adapter has written there and writes no more.
        let bytes = unsafe { std::slice::from_raw_parts(pool.base().add(start), length_bytes) };
        Frame::from(bytes.to_vec())
    }
}
