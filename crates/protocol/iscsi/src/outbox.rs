//! From PDUs to a stream of bytes: padding and digests are added here.

use std::collections::VecDeque;
use std::vec;

use sanwire_buffer::{Head, Packet, Slice, Slices};

use crate::digest::{DIGEST_BYTES, Digests, RunningDigest, digest, padding_bytes};
use crate::wire::Header;

/// Places in an empty queue; those of more are given back.
const PLACES_KEPT: usize = 128;

/// What waits to be sent on one connection, in its order.
#[derive(Default)]
pub struct Outbox {
    queue: VecDeque<Entry>,
    queued_bytes: usize,
    heap_bytes: usize,
    lent_bytes: usize,
    digests: Digests,
    /// The further pieces of the PDU that was begun.
    rest: vec::IntoIter<Slice>,
    /// Padding and data digest of the packet before: they go out at the front of the next one.
    carry: Tail,
}

struct Entry {
    header: Header,
    additional: Vec<u8>,
    data: Option<Slices>,
    digests: Digests,
}

#[derive(Clone, Copy, Default)]
struct Tail {
    bytes: [u8; 3 + DIGEST_BYTES],
    length: usize,
}

impl Outbox {
    /// From the next PDU on there are these digests.
    pub fn set_digests(&mut self, digests: Digests) {
        self.digests = digests;
    }

    /// Queues a PDU. The header is told the length of the data, which is below 2^24 bytes.
    pub fn push(&mut self, header: Header, data: Option<Slices>) {
        self.push_extended(header, Vec::new(), data);
    }

    /// Queues a PDU with additional header segments: a multiple of four bytes, at most 1020.
    pub fn push_extended(&mut self, mut header: Header, additional: Vec<u8>, data: Option<Slices>) {
        let data = data.filter(|data| !data.is_empty());
        header.set_data_bytes(data.as_ref().map_or(0, |data| data.len()));
        header.set_additional_bytes(additional.len());
        let entry = Entry { header, additional, data, digests: self.digests };
        self.queued_bytes += entry.length_bytes();
        self.heap_bytes += entry.heap_bytes();
        self.lent_bytes += entry.lent_bytes();
        self.queue.push_back(entry);
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.rest.len() == 0 && self.carry.length == 0
    }

    /// Bytes that wait, without padding and digests.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Bytes that what waits takes outside any region and any store.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// What it keeps of the memory of stores.
    #[must_use]
    pub fn lent_bytes(&self) -> usize {
        self.lent_bytes
    }

    /// The next bytes of the stream. Packets must be sent in this order, whole. A PDU whose data lies in several pieces is as many
    /// packets, of which only the first has a head.
    pub fn pop(&mut self) -> Option<Packet> {
        if let Some(piece) = self.rest.next() {
            return Some(Packet::new(Head::new(), Some(piece)));
        }
        let mut head = Head::new();
        let carry = std::mem::take(&mut self.carry);
        head.extend(&carry.bytes[..carry.length]);
        let Some(entry) = self.queue.pop_front() else {
            return (carry.length > 0).then_some(Packet::new(head, None));
        };
        self.queued_bytes -= entry.length_bytes();
        self.heap_bytes -= entry.heap_bytes();
        self.lent_bytes -= entry.lent_bytes();
        if self.queue.is_empty() {
            self.queue.shrink_to(PLACES_KEPT);
        }
        let Entry { header, additional, data, digests } = entry;
        head.extend(header.as_bytes());
        head.extend(&additional);
        if digests.header {
            head.extend(&digest(&[header.as_bytes(), &additional]));
        }
        let Some(data) = data else { return Some(Packet::new(head, None)) };
        self.carry = tail(data.pieces(), digests);
        let (first, rest) = data.split_first();
        self.rest = rest.into_iter();
        Some(Packet::new(head, Some(first)))
    }
}

impl Entry {
    /// Without padding and digests.
    fn length_bytes(&self) -> usize {
        self.header.as_bytes().len() + self.additional.len() + self.data.as_ref().map_or(0, |data| data.len())
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Entry>() + self.additional.len() + self.data.as_ref().map_or(0, Slices::heap_bytes)
    }

    fn lent_bytes(&self) -> usize {
        self.data.as_ref().map_or(0, Slices::lent_bytes)
    }
}

fn tail(data: &[Slice], digests: Digests) -> Tail {
    let data_bytes = data.iter().map(|piece| piece.len()).sum();
    let mut tail = Tail { length: padding_bytes(data_bytes), ..Tail::default() };
    if digests.data {
        let padding = &tail.bytes[..tail.length];
        let found = if let [only] = data { digest(&[only, padding]) } else { digest_of_several(data, padding) };
        tail.bytes[tail.length..tail.length + DIGEST_BYTES].copy_from_slice(&found);
        tail.length += DIGEST_BYTES;
    }
    tail
}

fn digest_of_several(data: &[Slice], padding: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut running = RunningDigest::default();
    data.iter().for_each(|piece| running.update(piece));
    running.update(padding);
    running.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::NopIn;

    #[test]
    fn an_outbox_that_was_long_gives_its_memory_back_when_it_is_empty() {
        let mut outbox = Outbox::default();
        for _ in 0..2 {
            (0..10_000).for_each(|_| outbox.push(NopIn::default().write(), Some(vec![1; 5].into())));
            assert!(outbox.heap_bytes() > 10_000 * size_of::<Entry>());
            while outbox.pop().is_some() {}
            assert!(outbox.queue.capacity() < 2 * PLACES_KEPT && outbox.heap_bytes() == 0 && outbox.is_empty());
        }
    }
}
