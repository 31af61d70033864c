//! What stores have under way for the commands of a shard: operations of the kernel, of the stores themselves, and delays.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use sanwire_core::Instant;
use sanwire_store::{Delayed, Operation, Pending};

use crate::engine::Work;

/// The operations of all commands. Each has an id: the place of its command, and its number in the course of that.
#[derive(Default)]
pub(crate) struct Flights {
    /// For the kernel, and not taken yet.
    pub(crate) work: VecDeque<Work>,
    /// Waiting for their time.
    delayed: BTreeMap<(Instant, u64), Delayed>,
    /// At their stores.
    pending: BTreeMap<Pending, u64>,
}

impl Flights {
    pub(crate) fn begin(&mut self, tag: u32, number: u32, operation: Operation, now: Instant) {
        let id = u64::from(number) << u32::BITS | u64::from(tag);
        match operation {
            Operation::Kernel(op) => self.work.push_back(Work { id, op }),
            Operation::Later(delayed) => _ = self.delayed.insert((now + delayed.delay, id), delayed),
            Operation::Pending(pending) => _ = self.pending.insert(pending, id),
        }
    }

    /// The place of the command, and the number of the operation.
    pub(crate) fn split(id: u64) -> (u32, u32) {
        (id as u32, (id >> u32::BITS) as u32)
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// A store has completed this: which operation it was.
    pub(crate) fn landed(&mut self, pending: Pending) -> Option<u64> {
        self.pending.remove(&pending)
    }

    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((at, _), _)| *at)
    }

    /// A delay that has passed.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<(u64, Delayed)> {
        let entry = self.delayed.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((_, id), delayed) = entry.remove_entry();
        Some((id, delayed))
    }

    /// Takes back all that a command has under way, so many operations, if neither the kernel nor a store has begun any of them.
    pub(crate) fn withdraw(&mut self, tag: u32, under_way: u32) -> bool {
        let is_its = |id: u64| Self::split(id).0 == tag;
        let work = self.work.iter().filter(|work| is_its(work.id)).count();
        let delayed = self.delayed.keys().filter(|(_, id)| is_its(*id)).count();
        if work + delayed < under_way as usize {
            return false;
        }
        self.work.retain(|work| !is_its(work.id));
        self.delayed.retain(|(_, id), _| !is_its(*id));
        true
    }
}

impl fmt::Debug for Flights {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Flights")
            .field("for_the_kernel", &self.work.len())
            .field("delayed", &self.delayed.len())
            .field("pending", &self.pending.len())
            .finish()
    }
}
