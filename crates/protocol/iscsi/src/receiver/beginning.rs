//! The beginning of a data segment, kept in memory of its own that grows as the data comes.

use std::fmt;

use sanwire_buffer::Frame;

use crate::digest::{DIGEST_BYTES, RunningDigest};

/// A data segment of which no more is kept than a receiver wants, whatever length its header announces.
pub struct Beginning {
    bytes: Vec<u8>,
    max_bytes: usize,
    /// Of all that has arrived.
    digest: RunningDigest,
}

impl Beginning {
    /// One of which so many bytes are kept, at the most. It takes memory only for those that have arrived.
    #[must_use]
    pub fn of(max_bytes: usize) -> Box<Self> {
        Box::new(Beginning { bytes: Vec::new(), max_bytes, digest: RunningDigest::default() })
    }

    pub(super) fn take(&mut self, part: &[u8], has_digest: bool) {
        let room = self.max_bytes - self.bytes.len();
        self.bytes.extend_from_slice(&part[..part.len().min(room)]);
        if has_digest {
            self.digest.update(part);
        }
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// What is kept, and the digest of the whole segment with this padding.
    pub(super) fn end(mut self, padding: &[u8]) -> (Frame, [u8; DIGEST_BYTES]) {
        self.digest.update(padding);
        (self.bytes.into(), self.digest.end())
    }
}

impl fmt::Debug for Beginning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Beginning({} of {} bytes)", self.bytes.len(), self.max_bytes)
    }
}
