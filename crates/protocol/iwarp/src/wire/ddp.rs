//! DDP: the header of a segment (RFC 5041 4), with the byte of it that is RDMAP's (RFC 5040 4.1).

use sanwire_buffer::Head;

use super::field::{Stag, array};

/// The version of DDP.
pub const DDP_VERSION: u8 = 1;

/// Bytes of the header of a tagged segment.
pub const TAGGED_BYTES: usize = 14;

/// Bytes of the header of an untagged segment.
pub const UNTAGGED_BYTES: usize = 18;

/// Bytes of the longest header.
pub const HEADER_MAX_BYTES: usize = UNTAGGED_BYTES;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;

/// Where a segment belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Into registered memory.
    Tagged {
        /// Its key.
        stag: Stag,
        /// Where in it.
        offset: u64,
    },
    /// Into the buffer of a queue.
    Untagged {
        /// The STag that ends with it (RFC 5040 4.3); 0 in other messages.
        invalidate: Stag,
        /// The number of the queue.
        queue: u32,
        /// The number of the message in it, from 1.
        sequence: u32,
        /// Where in the message.
        offset: u32,
    },
}

/// The header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Whether it ends its message.
    pub is_last: bool,
    /// The version of DDP.
    pub ddp_version: u8,
    /// The version of RDMAP.
    pub rdmap_version: u8,
    /// The operation, of four bits.
    pub opcode: u8,
    /// Where it belongs.
    pub target: Target,
}

impl Segment {
    /// Bytes of the header that begins with this byte.
    #[must_use]
    pub fn header_bytes(first: u8) -> usize {
        if first & TAGGED != 0 { TAGGED_BYTES } else { UNTAGGED_BYTES }
    }

    /// The header at the beginning of these bytes; `None` when it is not whole.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Segment> {
        let [first, second] = *bytes.first_chunk()?;
        let bytes = bytes.get(..Segment::header_bytes(first))?;
        let number = |at| u32::from_be_bytes(array(bytes, at));
        let target = if first & TAGGED != 0 {
            Target::Tagged { stag: Stag(number(2)), offset: u64::from_be_bytes(array(bytes, 6)) }
        } else {
            Target::Untagged { invalidate: Stag(number(2)), queue: number(6), sequence: number(10), offset: number(14) }
        };
        let (rdmap_version, opcode) = (second >> 6, second & 0xf);
        Some(Segment { is_last: first & LAST != 0, ddp_version: first & 3, rdmap_version, opcode, target })
    }

    /// Bytes of this header.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        if self.is_tagged() { TAGGED_BYTES } else { UNTAGGED_BYTES }
    }

    /// Whether it belongs into registered memory.
    #[must_use]
    pub fn is_tagged(&self) -> bool {
        matches!(self.target, Target::Tagged { .. })
    }

    /// Writes it.
    pub fn write(&self, to: &mut Head) {
        let flags = if self.is_tagged() { TAGGED } else { 0 } | if self.is_last { LAST } else { 0 };
        to.extend(&[flags | self.ddp_version & 3, self.rdmap_version << 6 | self.opcode & 0xf]);
        match self.target {
            Target::Tagged { stag, offset } => {
                to.extend(&stag.0.to_be_bytes());
                to.extend(&offset.to_be_bytes());
            }
            Target::Untagged { invalidate, queue, sequence, offset } => {
                [invalidate.0, queue, sequence, offset].iter().for_each(|number| to.extend(&number.to_be_bytes()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(segment: Segment) -> Vec<u8> {
        let mut head = Head::new();
        segment.write(&mut head);
        assert_eq!((head.len(), Segment::read(&head)), (segment.length_bytes(), Some(segment)));
        assert!((0..head.len()).all(|end| Segment::read(&head[..end]).is_none()));
        head.to_vec()
    }

    /// RFC 5041 figure 3 and RFC 5040 figure 4: T, L, reserved, DV; RV, reserved, opcode; STag; TO.
    #[test]
    fn a_tagged_header_stands_as_in_the_figure() {
        let target = Target::Tagged { stag: Stag(0x0102_0304), offset: 0x1112_1314_1516_1718 };
        let segment = Segment { is_last: true, ddp_version: 1, rdmap_version: 1, opcode: 2, target };
        let expected = [0xc1, 0x42, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
        assert_eq!(bytes(segment), expected);
        assert_eq!(bytes(Segment { is_last: false, opcode: 0, ..segment })[..2], [0x81, 0x40]);
    }

    /// RFC 5041 figure 4: the field of the ULP, QN, MSN, MO.
    #[test]
    fn an_untagged_header_stands_as_in_the_figure() {
        let target =
            Target::Untagged { invalidate: Stag(0x0a0b_0c0d), queue: 2, sequence: 0x0102_0304, offset: 0x0506_0708 };
        let segment = Segment { is_last: true, ddp_version: 1, rdmap_version: 1, opcode: 6, target };
        let expected = [0x41, 0x46, 0xa, 0xb, 0xc, 0xd, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(bytes(segment), expected);
    }
}
