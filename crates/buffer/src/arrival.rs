//! A packet on its way in: bytes in place, and the right to keep them where there is one.

use std::ops::{Deref, Range};

use crate::frame::Slice;

/// A packet that has arrived, in the memory that it arrived in. That memory is used again afterwards, unless a part was kept.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    bytes: &'a [u8],
    frame: Option<&'a Slice>,
}

impl<'a> Arrival<'a> {
    /// The part `range` of a frame, of which parts may be kept.
    ///
    /// # Panics
    /// When the range is not within the frame.
    #[must_use]
    pub fn in_frame(frame: &'a Slice, range: Range<usize>) -> Self {
        Arrival { bytes: &frame[range], frame: Some(frame) }
    }

    /// The packet's bytes.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// What comes after so many bytes, of which there are no fewer.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn behind(self, bytes: usize) -> Self {
        Arrival { bytes: &self.bytes[bytes..], frame: self.frame }
    }

    /// Shares a part of these very bytes, without a copy; `None` when it is not a part of them, or they cannot be kept: then whoever
    /// wants to have them later copies them.
    #[must_use]
    pub fn keep(self, part: &[u8]) -> Option<Slice> {
        let frame = self.frame?;
        let is_inside = self.bytes.as_ptr_range().start <= part.as_ptr_range().start
            && part.as_ptr_range().end <= self.bytes.as_ptr_range().end;
        let start = part.as_ptr().addr().checked_sub(frame.as_ptr().addr()).filter(|_| is_inside)?;
        Some(frame.slice(start..start + part.len()))
    }
}

impl<'a> From<&'a [u8]> for Arrival<'a> {
    /// Bytes that are gone when they have been looked at.
    fn from(bytes: &'a [u8]) -> Self {
        Arrival { bytes, frame: None }
    }
}

impl Deref for Arrival<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_frame_are_kept_and_other_bytes_are_not() {
        let frame = Slice::from((0..100).collect::<Vec<u8>>());
        let arrival = Arrival::in_frame(&frame, 10..60);
        assert_eq!((arrival.len(), arrival[0]), (50, 10));
        let kept = arrival.keep(&arrival.bytes()[5..20]).unwrap();
        assert_eq!((&kept[..3], kept.as_ptr()), (&[15, 16, 17][..], frame[15..].as_ptr()));
        assert!(arrival.keep(&frame[0..20]).is_none(), "it begins before the packet");
        assert!(arrival.keep(&frame[50..61]).is_none(), "it ends behind it");
        assert!(arrival.keep(&[1, 2, 3]).is_none());
        let bytes = [1, 2, 3];
        assert!(Arrival::from(&bytes[..]).keep(&bytes).is_none());
    }
}
