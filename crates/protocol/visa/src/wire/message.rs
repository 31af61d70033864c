//! What a message is: a command or an answer, as it is cut into the payloads of data packets.
//!
//! ```text
//! offset bytes
//!      0     2  bytes of the head
//!      2     2  sent 0
//!      4     4  bytes of the data
//!      8        head: see `sanwire_exchange`; then the data, as SCSI has it
//! ```
//!
//! The first packet of a message holds the whole head.

use super::{Malformed, Reader};

/// Bytes before the head.
pub const PROLOGUE_BYTES: usize = 8;

/// The longest head: that of an answer with the longest sense data (252 bytes), or of a command with the longest block (260).
pub const HEAD_MAX_BYTES: usize = 320;

/// How long the parts of a message are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prologue {
    /// Of the head, in bytes.
    pub head_bytes: u16,
    /// Of the data, in bytes.
    pub data_bytes: u32,
}

impl Prologue {
    /// Splits the payload of a message's first packet.
    ///
    /// # Errors
    /// [`Malformed`] when the head is not in it whole.
    pub fn read(payload: &[u8]) -> Result<(Prologue, &[u8], &[u8]), Malformed> {
        let mut reader = Reader::new(payload);
        let head_bytes = reader.u16()?;
        reader.u16()?;
        let prologue = Prologue { head_bytes, data_bytes: reader.u32()? };
        if usize::from(head_bytes) > HEAD_MAX_BYTES {
            return Err(Malformed::Field("head length"));
        }
        let head = reader.bytes(usize::from(head_bytes))?;
        let data = reader.rest();
        if data.len() as u64 > u64::from(prologue.data_bytes) {
            return Err(Malformed::Field("data length"));
        }
        Ok((prologue, head, data))
    }

    /// The bytes.
    #[must_use]
    pub fn write(&self) -> [u8; PROLOGUE_BYTES] {
        let mut out = [0; PROLOGUE_BYTES];
        out[..2].copy_from_slice(&self.head_bytes.to_be_bytes());
        out[4..].copy_from_slice(&self.data_bytes.to_be_bytes());
        out
    }
}

/// Bytes at the beginning of a payload that steer: the prologue and the head. Nobody but the two ends makes or changes these, however
/// little the data is guarded.
#[must_use]
pub fn steering_bytes(is_first: bool, payload: &[u8]) -> &[u8] {
    let head_bytes = payload.first_chunk().map_or(0, |length| usize::from(u16::from_be_bytes(*length)));
    let steering = if is_first { PROLOGUE_BYTES + head_bytes } else { 0 };
    &payload[..steering.min(payload.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prologues_survive_the_wire_and_heads_are_whole() {
        let prologue = Prologue { head_bytes: 4, data_bytes: 10 };
        let payload = [&prologue.write()[..], b"headdata"].concat();
        assert_eq!(Prologue::read(&payload), Ok((prologue, &b"head"[..], &b"data"[..])));
        assert_eq!(steering_bytes(true, &payload).len(), 12);
        assert_eq!(steering_bytes(false, &payload).len(), 0);
        for length in 0..12 {
            assert!(Prologue::read(&payload[..length]).is_err());
        }
        let short = [&Prologue { head_bytes: 4, data_bytes: 3 }.write()[..], b"headdata"].concat();
        assert_eq!(Prologue::read(&short), Err(Malformed::Field("data length")));
        let long = Prologue { head_bytes: 400, data_bytes: 3 }.write();
        assert_eq!(Prologue::read(&[&long[..], &[0; 500]].concat()), Err(Malformed::Field("head length")));
    }
}
