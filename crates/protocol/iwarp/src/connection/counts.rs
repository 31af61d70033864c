//! What has come, and how; what was registered; how long FPDUs are.

use super::Connection;
use crate::config::mulpdu_bytes;
use crate::wire::{Stag, fpdu_bytes};

impl Connection {
    /// How many bytes from the beginning of a window on the peer has written, without a gap; also when it has ended the window.
    #[must_use]
    pub fn written_bytes(&self, stag: Stag) -> usize {
        self.inbound.registrations.written_bytes(stag)
    }

    /// Bytes that have arrived in windows and in the frames of reads, copied or not.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        self.framer.moved_bytes()
    }

    /// Bytes that were received straight into their places, without a copy.
    #[must_use]
    pub fn placed_bytes(&self) -> u64 {
        self.framer.placed_bytes()
    }

    /// Those of them that have arrived in windows and in the frames of reads.
    #[must_use]
    pub fn direct_bytes(&self) -> u64 {
        self.framer.direct_bytes()
    }

    /// Registrations that there have been.
    #[must_use]
    pub fn registered_ever(&self) -> u64 {
        self.inbound.registrations.registered()
    }

    /// From now on no FPDU is sent that is longer than that: the length of TCP's segments, or more where TCP may cut as it likes. What can
    /// be is between 128 and 65,544 bytes.
    pub fn set_segment_bytes(&mut self, segment_bytes: usize) {
        self.inbound.outbound.set_mulpdu_bytes(mulpdu_bytes(segment_bytes));
    }

    /// Bytes of the longest FPDU that is sent.
    #[must_use]
    pub fn fpdu_max_bytes(&self) -> usize {
        fpdu_bytes(self.inbound.outbound.mulpdu_bytes())
    }
}
