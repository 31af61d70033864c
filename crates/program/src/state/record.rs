//! How a state is written down: what it is, how long, and whether it is whole.

use crc_fast::{CrcAlgorithm, checksum};

/// What a record begins with. The figure is the version of what follows: length and CRC32C of the state, 32 bits each, the lowest byte
/// first, and the state.
const MAGIC: [u8; 8] = *b"SWDVDST1";
const HEAD_BYTES: usize = 16;

/// The record of a state.
pub(super) fn encode(state: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEAD_BYTES + state.len());
    record.extend(MAGIC);
    record.extend((state.len() as u32).to_le_bytes());
    record.extend(crc(state).to_le_bytes());
    record.extend(state);
    record
}

/// The state in a record; `None` when it is no record, or not as it was written.
pub(super) fn decode(record: &[u8]) -> Option<&[u8]> {
    let (head, state) = record.split_at_checked(HEAD_BYTES)?;
    let number = |at: usize| head.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let is_whole = head.starts_with(&MAGIC) && number(8)? as usize == state.len() && number(12)? == crc(state);
    is_whole.then_some(state)
}

fn crc(bytes: &[u8]) -> u32 {
    // A checksum of 32 bits stands in the low half.
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_was_cut_or_changed_is_none() {
        for state in [&b""[..], b"x", &[7; 1000]] {
            let record = encode(state);
            assert_eq!(decode(&record), Some(state));
            for end in 0..record.len() {
                assert_eq!(decode(&record[..end]), None, "cut at {end}");
            }
            for at in 0..record.len() {
                let mut changed = record.clone();
                changed[at] ^= 1;
                assert_eq!(decode(&changed), None, "changed at {at}");
            }
        }
    }
}
