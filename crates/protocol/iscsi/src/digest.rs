//! Header and data digests: CRC32C (RFC 7143 13.1).

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 4;

/// Which digests a connection carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Digests {
    /// After the header segments.
    pub header: bool,
    /// After the data segment and its padding.
    pub data: bool,
}

/// The digest of these bytes and what follows them, as it stands on the wire.
#[must_use]
pub(crate) fn digest(parts: &[&[u8]]) -> [u8; DIGEST_BYTES] {
    // Setting up a sum of several parts takes three times as long as that of a header.
    let mut filled = parts.iter().filter(|part| !part.is_empty());
    if let (Some(only), None) = (filled.next(), filled.next()) {
        return crc32_iscsi(only).to_le_bytes();
    }
    let mut digest = RunningDigest::default();
    parts.iter().for_each(|part| digest.update(part));
    digest.end()
}

/// The digest of bytes that come one after the other.
pub(crate) struct RunningDigest(Digest);

impl Default for RunningDigest {
    fn default() -> Self {
        RunningDigest(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl RunningDigest {
    pub(crate) fn update(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// As it stands on the wire.
    pub(crate) fn end(self) -> [u8; DIGEST_BYTES] {
        (self.0.finalize() as u32).to_le_bytes()
    }
}

/// Bytes of padding that bring a data segment to a multiple of four.
#[must_use]
pub(crate) fn padding_bytes(data_bytes: usize) -> usize {
    data_bytes.wrapping_neg() % 4
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7143 appendix A.
    #[test]
    fn the_examples_of_the_standard_hold() {
        assert_eq!(digest(&[&[0; 32]]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(digest(&[&[0xff; 16], &[0xff; 16]]), [0x43, 0xab, 0xa8, 0x62]);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(digest(&[&rising]), [0x4e, 0x79, 0xdd, 0x46]);
    }

    #[test]
    fn padding_fills_to_four() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(padding_bytes), [0, 3, 2, 1, 0, 3]);
    }
}
