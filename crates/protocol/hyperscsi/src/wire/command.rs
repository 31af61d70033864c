//! Bodies of HCBE_REQUEST and HCBE_REPLY: a command with its data, a status with its data.
//!
//! The heads are those of [`sanwire_exchange`]. Every packet of a message starts its body with the fragment fields; then fragment 0 has the message head (a
//! command block or a status) and every fragment its part of the data.
//!
//! ```text
//! offset bytes   fragment fields, in every packet
//!      0     8  sequence: which data packet of this direction it is; the same in every transmission
//!      8     4  data offset: where this packet's data belongs
//!     12     4  data length of the whole message
//!     16     4  acknowledgement: low 32 bits of the lowest sequence not yet received from the peer
//!     20     2  length of the message head in this packet: 0 but in fragment 0
//!     22     2  flags: bit 0: to be acknowledged at once; bits 1-4: sent 0; bits 5-15: length of the data when it is
//!               expanded, in KiB, rounded up; 0: it is not compressed
//! ```

pub use sanwire_exchange::{Answer, Ask, Function, ReplyHead, RequestHead, SENSE_MAX_BYTES, UnitTerms};

use super::{Malformed, Reader};

/// Compressed data is never longer than so many KiB when it is expanded.
pub const EXPANDED_MAX_KIB: u16 = 0x7ff;

/// Where the length stands among the flags of the fragment fields.
const EXPANDED_SHIFT: u32 = 5;

/// Bytes of the fragment fields.
pub const FRAGMENT_BYTES: usize = 24;

/// The fragment fields' flag for [`Fragment::answer_at_once`].
const ANSWER_AT_ONCE: u16 = 1;

/// Bytes of a data packet's body that are not data: the fragment fields, and the message head whose length they tell.
pub(super) fn header_bytes(body: &[u8]) -> usize {
    let head_length = body.get(20..22).map_or(0, |bytes| usize::from(bytes[0]) << 8 | usize::from(bytes[1]));
    (FRAGMENT_BYTES + head_length).min(body.len())
}

/// The fields at the start of every data packet's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fragment {
    /// Which data packet of this direction it is: kept when it is sent again.
    pub sequence: u64,
    /// Where this packet's data belongs in the message's data.
    pub data_offset: u32,
    /// Data bytes of the whole message.
    pub data_length: u32,
    /// Low 32 bits of the lowest sequence that the sender of this packet has not received.
    pub acknowledgement: u32,
    /// Bytes of message head in this packet.
    pub head_length: u16,
    /// Its sender waits for an acknowledgement before it can send more.
    pub answer_at_once: bool,
    /// How long the message's data is when it is expanded, in KiB, rounded up; 0: it is not compressed. At most
    /// [`EXPANDED_MAX_KIB`].
    pub expanded_kib: u16,
}

impl Fragment {
    /// Splits a data packet's body into fields, message head and data.
    ///
    /// # Errors
    /// [`Malformed`] when the lengths do not fit together.
    pub fn read(body: &[u8]) -> Result<(Fragment, &[u8], &[u8]), Malformed> {
        let mut reader = Reader::new(body);
        let fragment = Fragment {
            sequence: reader.u64()?,
            data_offset: reader.u32()?,
            data_length: reader.u32()?,
            acknowledgement: reader.u32()?,
            head_length: reader.u16()?,
            ..Fragment::flags(reader.u16()?)
        };
        let head = reader.bytes(usize::from(fragment.head_length))?;
        let data = reader.rest();
        let end = u64::from(fragment.data_offset) + data.len() as u64;
        if end > u64::from(fragment.data_length) {
            return Err(Malformed::Field("data offset"));
        }
        Ok((fragment, head, data))
    }

    fn flags(flags: u16) -> Fragment {
        let answer_at_once = flags & ANSWER_AT_ONCE != 0;
        Fragment { answer_at_once, expanded_kib: flags >> EXPANDED_SHIFT, ..Fragment::default() }
    }

    /// The bytes of the fields.
    #[must_use]
    pub fn write(&self) -> [u8; FRAGMENT_BYTES] {
        let mut out = [0; FRAGMENT_BYTES];
        out[..8].copy_from_slice(&self.sequence.to_be_bytes());
        out[8..12].copy_from_slice(&self.data_offset.to_be_bytes());
        out[12..16].copy_from_slice(&self.data_length.to_be_bytes());
        out[16..20].copy_from_slice(&self.acknowledgement.to_be_bytes());
        out[20..22].copy_from_slice(&self.head_length.to_be_bytes());
        let at_once = u16::from(self.answer_at_once) * ANSWER_AT_ONCE;
        let flags = at_once | (self.expanded_kib.min(EXPANDED_MAX_KIB) << EXPANDED_SHIFT);
        out[22..].copy_from_slice(&flags.to_be_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_beyond_its_message_is_refused() {
        let fragment = Fragment { data_offset: u32::MAX, data_length: 4, ..Fragment::default() };
        let body = [&fragment.write()[..], b"data"].concat();
        assert_eq!(Fragment::read(&body), Err(Malformed::Field("data offset")));
    }
}
