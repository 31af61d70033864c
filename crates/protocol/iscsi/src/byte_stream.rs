//! The datamover of plain TCP: PDUs, one after the other (RFC 7143 4.2.3).

use sanwire_buffer::{Frame, Packet, Slices};
use sanwire_core::Movement;

use crate::datamover::Datamover;
use crate::outbox::Outbox;
use crate::parameters::ConnectionParameters;
use crate::receiver::{Destination, Receiver, Step};
use crate::wire::Header;

/// A stream of bytes, both ways.
pub struct ByteStream {
    receiver: Receiver,
    outbox: Outbox,
}

impl ByteStream {
    /// One that receives so many bytes at once, beyond what goes straight into a frame; at least the longest header.
    #[must_use]
    pub fn new(staging_bytes: usize) -> Self {
        ByteStream { receiver: Receiver::new(staging_bytes), outbox: Outbox::default() }
    }
}

impl Datamover for ByteStream {
    fn spaces(&mut self) -> [&mut [u8]; 2] {
        self.receiver.spaces()
    }

    fn filled(&mut self, count: usize) {
        self.receiver.filled(count);
    }

    fn take(&mut self, bytes: &[u8]) -> usize {
        self.receiver.take(bytes)
    }

    fn poll(&mut self) -> Step {
        self.receiver.poll()
    }

    fn place(&mut self, destination: Destination) {
        self.receiver.place(destination);
    }

    fn withdraw(&mut self) -> Vec<(u32, Frame)> {
        self.receiver.withdraw().into_iter().collect()
    }

    fn fills_frame_of(&self) -> Option<u64> {
        self.receiver.fills_frame_of()
    }

    fn placed_bytes(&self) -> u64 {
        self.receiver.placed_bytes()
    }

    fn movement(&self) -> Movement {
        let (placed_bytes, direct_bytes) = (self.receiver.placed_bytes(), self.receiver.direct_bytes());
        Movement { placed_bytes, direct_bytes, copied_bytes: placed_bytes - direct_bytes, rdma: None }
    }

    fn awaited_bytes(&self) -> u64 {
        self.receiver.awaited_bytes()
    }

    fn push_extended(&mut self, header: Header, additional: Vec<u8>, data: Option<Slices>) {
        self.outbox.push_extended(header, additional, data);
    }

    fn pop(&mut self) -> Option<Packet> {
        self.outbox.pop()
    }

    fn is_empty(&self) -> bool {
        self.outbox.is_empty()
    }

    fn queued_bytes(&self) -> usize {
        self.outbox.queued_bytes()
    }

    fn heap_bytes(&self) -> usize {
        self.outbox.heap_bytes()
    }

    fn lent_bytes(&self) -> usize {
        self.outbox.lent_bytes()
    }

    fn widen(&mut self, staging_bytes: usize) {
        self.receiver.widen(staging_bytes);
    }

    fn begin(&mut self, parameters: &ConnectionParameters, _commands_max: usize) {
        self.receiver.set_digests(parameters.digests);
        self.outbox.set_digests(parameters.digests);
    }
}
