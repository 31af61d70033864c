//! The basic header segment: 48 bytes in which every PDU begins (RFC 7143 11.2.1).

use super::Opcode;

/// Bytes of a basic header segment.
pub const HEADER_BYTES: usize = 48;

/// The tag that stands for none: of a task (RFC 7143 11.2.1.8) or of a transfer (11.3.5).
pub const TAG_NONE: u32 = 0xffff_ffff;

/// A basic header segment, as it is on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header(pub(super) [u8; HEADER_BYTES]);

impl Header {
    /// A header of nothing but its operation code.
    pub(super) fn new(opcode: Opcode) -> Self {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = opcode as u8;
        Header(bytes)
    }

    /// The header in these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; HEADER_BYTES]) -> Self {
        Header(bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; HEADER_BYTES] {
        &self.0
    }

    /// What the PDU is; `None` for a reserved code.
    #[must_use]
    pub fn opcode(&self) -> Option<Opcode> {
        Opcode::from_code(self.0[0] & 0x3f)
    }

    /// The final bit, which most PDUs have at this place.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.0[1] & 0x80 != 0
    }

    /// Bytes of additional header segments: at most 1020.
    #[must_use]
    pub fn additional_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Bytes of the data segment, without padding.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        let [_, high, middle, low] = [0, self.0[5], self.0[6], self.0[7]];
        usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)
    }

    /// The initiator's task tag, at the same place in all PDUs.
    #[must_use]
    pub fn task_tag(&self) -> u32 {
        <super::field::U32<16> as super::field::Field>::get(self)
    }

    /// States how long the additional header segments are: a multiple of four bytes, at most 1020.
    pub fn set_additional_bytes(&mut self, length: usize) {
        debug_assert!(length.is_multiple_of(4) && length <= 1020);
        self.0[4] = (length / 4) as u8;
    }

    /// States how long the data segment is: at most 2^24 - 1 bytes.
    pub fn set_data_bytes(&mut self, length: usize) {
        debug_assert!(length < 1 << 24);
        let [_, high, middle, low] = (length as u32).to_be_bytes();
        self.0[5..8].copy_from_slice(&[high, middle, low]);
    }
}
