//! Buffers for the messages of the other end.

use std::sync::Arc;

use sanwire_buffer::Frame;

use crate::domain::Domain;
use crate::error::Error;
use crate::ffi::ScatterGather;
use crate::memory::{Access, Pool};
use crate::queue::{Queue, Work};

/// Slots begin so far apart, at the least, so that no two share a line of a cache.
const SLOT_ALIGNMENT_BYTES: usize = 64;

/// Slots of one length.
struct Array {
    pool: Pool,
    slot_bytes: usize,
}

/// A slot, by its array and its place there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    array: u32,
    place: u32,
}

impl Slot {
    fn number(self) -> u64 {
        u64::from(self.array) << 32 | u64::from(self.place)
    }

    fn of(number: u64) -> Slot {
        Slot { array: (number >> 32) as u32, place: number as u32 }
    }
}

/// All receives of one connection. A message is copied from its slot, for messages are short: data moves by RDMA.
#[derive(Default)]
pub(crate) struct Receives {
    arrays: Vec<Array>,
    free: Vec<Slot>,
    posted: usize,
}

impl Receives {
    /// Posts until so many are posted, each for a message of at most so many bytes. A slot that is too short is not used again.
    ///
    /// # Errors
    /// When there is no memory for them, or the adapter does not take them.
    pub(crate) fn expect(
        &mut self,
        count: usize,
        longest_bytes: usize,
        (domain, queue): (&Arc<Domain>, &mut Queue),
    ) -> Result<(), Error> {
        let missing = count.saturating_sub(self.posted);
        if missing == 0 {
            return Ok(());
        }
        let arrays = &self.arrays;
        self.free.retain(|slot| arrays[slot.array as usize].slot_bytes >= longest_bytes);
        if self.free.len() < missing {
            self.add(missing - self.free.len(), longest_bytes, domain)?;
        }
        let slots = self.free.split_off(self.free.len() - missing);
        slots.into_iter().try_for_each(|slot| self.post(slot, queue))
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

    fn post(&mut self, slot: Slot, queue: &mut Queue) -> Result<(), Error> {
        let Array { pool, slot_bytes } = &self.arrays[slot.array as usize];
        let piece = ScatterGather {
            address: (pool.base().addr() + slot.place as usize * slot_bytes) as u64,
            length: *slot_bytes as u32,
            local_key: pool.local_key(),
        };
        // SAFETY: the slot lies in the pool, which is dropped after the queue pair, and it is looked at by `take` only.
        unsafe { queue.post_receive(Work::Receive(slot.number()), piece)? };
        self.posted += 1;
        Ok(())
    }

    /// A message of so many bytes has come into the slot of this number, which is free then.
    pub(crate) fn take(&mut self, number: u64, length_bytes: usize) -> Frame {
        let slot = Slot::of(number);
        let Array { pool, slot_bytes } = &self.arrays[slot.array as usize];
        let (start, length_bytes) = (slot.place as usize * slot_bytes, length_bytes.min(*slot_bytes));
        // SAFETY: the slot lies in the pool; its receive has ended, so the adapter has written so many bytes there and writes no more.
        let bytes = unsafe { std::slice::from_raw_parts(pool.base().add(start), length_bytes) };
        let frame = Frame::from(bytes.to_vec());
        self.free.push(slot);
        self.posted -= 1;
        frame
    }

    /// How many are posted.
    pub(crate) fn posted(&self) -> usize {
        self.posted
    }
}
