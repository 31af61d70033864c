//! A packet on its way out: header bytes that the protocol wrote, payload that it never copied, and a code behind that.

use std::ops::Deref;

use crate::frame::Slice;

/// Head bytes that a [`Head`] holds without allocating: every header of the data path fits.
pub const HEAD_INLINE_BYTES: usize = 152;

/// Bytes that a [`Tail`] holds at the most: the tag of a packet is as long.
pub const TAIL_BYTES_MAX: usize = 16;

/// What a driver sends as one frame or datagram: `head`, `payload` and `tail`, one behind the other.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The first bytes.
    pub head: Head,
    /// The bytes after them, shared with the copy that is kept for retransmission.
    pub payload: Option<Slice>,
    /// The last bytes; most packets have none.
    pub tail: Tail,
}

impl Packet {
    /// A packet that ends with its payload.
    #[must_use]
    pub fn new(head: Head, payload: Option<Slice>) -> Self {
        Packet { head, payload, tail: Tail::default() }
    }

    /// Its bytes, in the order in which they are sent. Each part may be empty.
    #[must_use]
    pub fn parts(&self) -> [&[u8]; 3] {
        [&self.head, self.payload.as_deref().unwrap_or_default(), &self.tail]
    }

    /// Bytes of the whole packet.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// A copy of the whole packet in one piece.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts().concat()
    }
}

/// A few bytes behind a payload: its code, which need not be where the payload is.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tail {
    length: u8,
    bytes: [u8; TAIL_BYTES_MAX],
}

impl Tail {
    /// These bytes; `None` when there are more than [`TAIL_BYTES_MAX`].
    #[must_use]
    pub fn new(of: &[u8]) -> Option<Tail> {
        let mut tail = Tail { length: of.len() as u8, ..Tail::default() };
        tail.bytes.get_mut(..of.len())?.copy_from_slice(of);
        Some(tail)
    }
}

impl Deref for Tail {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
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

    #[test]
    fn a_packet_is_its_head_its_payload_and_its_tail() {
        let mut packet = Packet::new(vec![1, 2].into(), None);
        assert_eq!((packet.to_vec(), packet.length_bytes()), (vec![1, 2], 2));
        packet.payload = Some(vec![3, 4, 5].into());
        packet.tail = Tail::new(&[6; TAIL_BYTES_MAX]).unwrap();
        assert_eq!((packet.to_vec(), packet.length_bytes()), ([&[1, 2, 3, 4, 5][..], &[6; 16]].concat(), 21));
        assert!(Tail::new(&[0; TAIL_BYTES_MAX + 1]).is_none());
        assert_eq!(*Tail::new(&[7]).unwrap(), [7]);
    }
}
