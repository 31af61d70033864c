//! What is written: blocks that say which write they come from, and where they belong.

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 512;

/// Fills blocks from `lba` on with the content of write `version`. Version 0 is all zeroes.
pub fn fill(bytes: &mut [u8], lba: u64, version: u64) {
    for (index, block) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
        for (word, place) in block.chunks_exact_mut(8).enumerate() {
            place.copy_from_slice(&pattern(lba + index as u64, version, word).to_le_bytes());
        }
    }
}

/// The version that a block holds; `None` when it is no block that was ever written at `lba`.
#[must_use]
pub fn version_of(block: &[u8], lba: u64) -> Option<u64> {
    let mut words = block.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).enumerate();
    let (_, version) = words.next()?;
    words.all(|(word, found)| found == pattern(lba, version, word)).then_some(version)
}

fn pattern(lba: u64, version: u64, word: usize) -> u64 {
    match (version, word) {
        (0, _) => 0,
        (_, 0) => version,
        _ => version.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (lba << 20) ^ word as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_tells_its_version_only_where_it_belongs() {
        let mut bytes = [0; 2 * BLOCK_BYTES];
        assert_eq!(version_of(&bytes[..BLOCK_BYTES], 3), Some(0));
        fill(&mut bytes, 7, 42);
        assert_eq!(version_of(&bytes[..BLOCK_BYTES], 7), Some(42));
        assert_eq!(version_of(&bytes[BLOCK_BYTES..], 8), Some(42));
        assert_eq!(version_of(&bytes[BLOCK_BYTES..], 7), None);
        bytes[100] ^= 1;
        assert_eq!(version_of(&bytes[..BLOCK_BYTES], 7), None);
    }
}
