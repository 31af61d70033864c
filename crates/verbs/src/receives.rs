//! Buffers for the messages of the other end.

use std::sync::Arc;

use sanwire_buffer::Frame;
use sanwire_iwarp::Fault;

use crate::domain::Domain;
use crate::error::Error;
use crate::queue::{Queue, Work};
use crate::shared_receives::{Credit, SharedReceives};
use crate::slots::{Slot, Slots};

/// The receives of one connection.
pub(crate) enum Receives {
    /// Its own. What the other end sends beyond them waits there (InfiniBand, RoCE), or costs the connection (iWARP).
    Own(Own),
    /// Some of those that it shares with others.
    Shared(Credit),
}

/// Those that are posted to the queue pair of the connection.
#[derive(Default)]
pub(crate) struct Own {
    slots: Slots,
    posted: usize,
}

/// What has become of a receive.
pub(crate) enum Received {
    Message(Frame),
    /// It was more than the other end may send, or longer.
    Beyond(Fault),
    /// The receive cannot be posted again.
    Failed(Error),
}

impl Receives {
    /// Those of a connection that has its own, or shares these.
    pub(crate) fn new(shared: Option<Arc<SharedReceives>>) -> Self {
        shared.map_or_else(|| Receives::Own(Own::default()), |shared| Receives::Shared(Credit::new(shared)))
    }

    /// Has so many messages come, each of at most so many bytes.
    ///
    /// # Errors
    /// When there is no memory for them, or the adapter does not take them.
    pub(crate) fn expect(
        &mut self,
        count: usize,
        longest_bytes: usize,
        (domain, queue): (&Arc<Domain>, &mut Queue),
    ) -> Result<(), Error> {
        match self {
            Receives::Own(own) => own.expect(count, longest_bytes, (domain, queue)),
            Receives::Shared(credit) => credit.expect(count, longest_bytes),
        }
    }

    /// A message of so many bytes has come into the slot of this number.
    ///
    /// # Safety
    /// The adapter says so, and was not asked for that before.
    pub(crate) unsafe fn take(&mut self, number: u64, length_bytes: usize) -> Received {
        match self {
            // SAFETY: the caller promises it.
            Receives::Own(own) => Received::Message(unsafe { own.take(Slot::of(number), length_bytes) }),
            // SAFETY: as above.
            Receives::Shared(credit) => unsafe { credit.take(Slot::of(number), length_bytes) },
        }
    }

    /// No message has come into the slot of this number, nor will any.
    pub(crate) fn note_undone(&mut self, number: u64) {
        if let Receives::Shared(credit) = self {
            credit.note_undone(Slot::of(number));
        }
    }

    /// Messages that may come.
    pub(crate) fn posted(&self) -> usize {
        match self {
            Receives::Own(own) => own.posted,
            Receives::Shared(credit) => credit.left(),
        }
    }
}

impl Own {
    /// Posts until so many are posted, each for a message of at most so many bytes.
    fn expect(
        &mut self,
        count: usize,
        longest_bytes: usize,
        (domain, queue): (&Arc<Domain>, &mut Queue),
    ) -> Result<(), Error> {
        let missing = count.saturating_sub(self.posted);
        if missing == 0 {
            return Ok(());
        }
        let slots = self.slots.take(missing, longest_bytes, domain)?;
        slots.into_iter().try_for_each(|slot| {
            // SAFETY: the slot lies in a pool that is dropped after the queue pair, and it is looked at by `take` only.
            unsafe { queue.post_receive(Work::Receive(slot.number()), self.slots.piece(slot))? };
            self.posted += 1;
            Ok(())
        })
    }

    /// # Safety
    /// As for [`Receives::take`].
    unsafe fn take(&mut self, slot: Slot, length_bytes: usize) -> Frame {
        // SAFETY: the caller promises that its receive has ended.
        let frame = unsafe { self.slots.copy(slot, length_bytes) };
        self.slots.give_back(slot);
        self.posted -= 1;
        frame
    }
}
