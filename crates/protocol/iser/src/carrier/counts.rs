//! What has come over a connection, and how.

use sanwire_iscsi::{Movement, Rdma};
use sanwire_iwarp::Stag;

use super::Carrier;

impl Carrier {
    /// Bytes that have come into memory that is open, or is being read into.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.rdma.moved_bytes()
    }

    /// How many bytes of memory that is open, from its beginning, the other end has written.
    pub(crate) fn written_bytes(&self, stag: Stag) -> usize {
        self.rdma.written_bytes(stag)
    }

    /// Keys of memory that this end has given out: now, and ever.
    pub(crate) fn registered(&self) -> [u64; 2] {
        [self.rdma.registered() as u64, self.rdma.registered_ever()]
    }

    /// How data has come, so many bytes of it in messages; and keys of memory, now and ever.
    pub(crate) fn movement(&self, in_messages: u64, [stags, stags_ever]: [u64; 2]) -> Movement {
        let (moved_bytes, direct_bytes) = (self.rdma.moved_bytes(), self.rdma.direct_bytes());
        let rdma = Rdma {
            stags,
            stags_ever,
            credits: self.rdma.receives_posted() as u64,
            fpdu_max_bytes: self.rdma.fpdu_max_bytes() as u32,
            segment_bytes: self.segment_bytes.map(|bytes| bytes as u32),
        };
        Movement {
            placed_bytes: moved_bytes + in_messages,
            direct_bytes,
            // From where it was received into the message, and from there into the frame.
            copied_bytes: moved_bytes - direct_bytes + 2 * in_messages,
            rdma: Some(rdma),
        }
    }
}
