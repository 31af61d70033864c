//! A packet on its way out: header bytes that the protocol wrote, payload that it never copied.

use std::ops::Deref;

use crate::frame::Slice;

/// Head bytes that a [`Head`] holds without allocating: every header of the data path fits.
pub const HEAD_INLINE_BYTES: usize = 152;

/// What a driver sends as one frame or datagram: `head` followed by `payload`.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The first bytes.
    pub head: Head,
    /// The bytes after them, shared with the copy that is kept for retransmission.
    pub payload: Option<Slice>,
}

impl Packet {
    /// Bytes of the whole packet.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.head.len() + self.payload.as_ref().map_or(0, |payload| payload.len())
    }
}

/// A short run of bytes, inline when it fits.
#[derive(Clone, Debug)]
pub struct Head(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Inline { length: u8, bytes: [u8; HEAD_INLINE_BYTES] },
    Heap(Vec<u8>),
}

impl Head {
    /// No bytes yet.
    #[must_use]
    pub fn new() -> Self {
        Head(Repr::Inline { length: 0, bytes: [0; HEAD_INLINE_BYTES] })
    }

    /// Appends bytes; past [`HEAD_INLINE_BYTES`] they move to the heap.
    #[inline]
    pub fn extend(&mut self, more: &[u8]) {
        if let Repr::Inline { length, bytes } = &mut self.0
            && let Some(place) = bytes[usize::from(*length)..].get_mut(..more.len())
        {
            place.copy_from_slice(more);
            *length += more.len() as u8;
        } else {
            self.extend_on_heap(more);
        }
    }

    fn extend_on_heap(&mut self, more: &[u8]) {
        let mut bytes = match std::mem::take(self).0 {
            Repr::Heap(bytes) => bytes,
            Repr::Inline { length, bytes } => bytes[..usize::from(length)].to_vec(),
        };
        bytes.extend_from_slice(more);
        self.0 = Repr::Heap(bytes);
    }

    /// The bytes, to be filled in.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Repr::Inline { length, bytes } => &mut bytes[..usize::from(*length)],
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl Default for Head {
    fn default() -> Self {
        Head::new()
    }
}

impl From<Vec<u8>> for Head {
    fn from(bytes: Vec<u8>) -> Self {
        Head(Repr::Heap(bytes))
    }
}

impl Deref for Head {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Repr::Heap(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_keeps_its_bytes_when_it_outgrows_its_place() {
        let mut head = Head::new();
        let bytes: Vec<u8> = (0..=255).collect();
        for chunk in bytes.chunks(7) {
            head.extend(chunk);
        }
        assert_eq!(&*head, &bytes[..]);
        head.as_mut_slice()[0] = 9;
        assert_eq!(head[0], 9);
    }
}
