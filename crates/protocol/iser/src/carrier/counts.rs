//! What has come over a connection, and how.

use sanwire_iscsi::{Carried, Movement, Rdma};
use sanwire_iwarp::Stag;

use super::Carrier;
use super::below::Below;

impl Carrier {
    /// Bytes that have come into memory that is open, or is being read into.
    pub(crate) fn moved_bytes(&self) -> u64 {
        let told_bytes = match &self.below {
            Below::Stream(_) => 0,
            Below::Adapter(adapter) => adapter.told_bytes,
        };
        self.below.pair().counts().moved_bytes + told_bytes
    }

    /// How many bytes of memory that is open, from its beginning, the other end has written, of so many of which it says so. Adapters do
    /// not know it: there it is believed.
    pub(crate) fn written_bytes(&mut self, stag: Stag, told_bytes: usize) -> usize {
        match &mut self.below {
            Below::Stream(stream) => told_bytes.min(stream.rdma.written_bytes(stag)),
            Below::Adapter(adapter) => {
                adapter.told_bytes += told_bytes as u64;
                told_bytes
            }
        }
    }

    /// What has passed by an adapter.
    pub(crate) fn carried(&self) -> Option<Carried> {
        self.has_adapter().then(|| Carried {
            received_bytes: self.message_bytes + self.moved_bytes(),
            sent_bytes: self.orders.sent_bytes(),
        })
    }

    /// Keys of memory that this end has given out: now, and ever.
    pub(crate) fn registered(&self) -> [u64; 2] {
        let counts = self.below.pair().counts();
        [counts.registered, counts.registered_ever]
    }

    /// How data has come, so many bytes of it in messages; and keys of memory, now and ever.
    pub(crate) fn movement(&self, in_messages: u64, [stags, stags_ever]: [u64; 2]) -> Movement {
        let (counts, moved_bytes) = (self.below.pair().counts(), self.moved_bytes());
        let copied_bytes = counts.copied_bytes.min(moved_bytes);
        let fpdu_max_bytes = match &self.below {
            Below::Stream(stream) => stream.rdma.fpdu_max_bytes(),
            Below::Adapter(_) => 0,
        };
        let rdma = Rdma {
            stags,
            stags_ever,
            credits: counts.receives,
            fpdu_max_bytes: fpdu_max_bytes as u32,
            segment_bytes: counts.segment_bytes,
        };
        Movement {
            placed_bytes: moved_bytes + in_messages,
            direct_bytes: moved_bytes - copied_bytes,
            // From where it was received into the message, and from there into the frame.
            copied_bytes: copied_bytes + 2 * in_messages,
            rdma: Some(rdma),
        }
    }
}
