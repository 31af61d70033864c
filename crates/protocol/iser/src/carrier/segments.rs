//! How long FPDUs are.

use super::Carrier;
use crate::wire::{SetUp, takes_long_fpdus};

impl Carrier {
    /// What the other end says of itself when the connection is set up.
    pub(super) fn meet(&mut self, private_data: &[u8]) {
        let other = SetUp::read(private_data);
        self.invalidates = !self.own.lacks_invalidation && !other.lacks_invalidation;
        self.takes_long_fpdus = takes_long_fpdus(private_data);
        self.fit();
    }

    /// TCP's segments have so many bytes.
    pub(crate) fn note_segment_bytes(&mut self, segment_bytes: usize) {
        self.segment_bytes = Some(segment_bytes);
        self.fit();
    }

    /// RFC 5044 5.1: an FPDU is to lie in one segment of TCP, and some adapters take no other ones. Only who says so gets longer ones, of
    /// which less is to be done.
    fn fit(&mut self) {
        let most = self.segment_bytes.filter(|_| !self.takes_long_fpdus);
        self.rdma.set_segment_bytes(most.unwrap_or(usize::MAX));
    }
}
