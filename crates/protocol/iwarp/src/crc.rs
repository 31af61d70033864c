//! CRC32C, as MPA has it behind each FPDU (RFC 5044 4.4).

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

use crate::wire::CRC_BYTES;

/// The CRC of bytes in one piece, as it stands on the wire.
#[must_use]
pub(crate) fn crc(bytes: &[u8]) -> [u8; CRC_BYTES] {
    crc32_iscsi(bytes).to_le_bytes()
}

/// The CRC of bytes that come one after the other.
pub(crate) struct RunningCrc(Digest);

impl Default for RunningCrc {
    fn default() -> Self {
        RunningCrc(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl RunningCrc {
    pub(crate) fn update(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// As it stands on the wire.
    pub(crate) fn end(&self) -> [u8; CRC_BYTES] {
        (self.0.finalize() as u32).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7143 appendix A, whose CRC is the same (RFC 5044 4.4: as iSCSI's).
    #[test]
    fn the_examples_of_the_standard_hold() {
        assert_eq!(crc(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        let mut running = RunningCrc::default();
        (0..32).for_each(|byte| running.update(&[byte]));
        assert_eq!(running.end(), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(running.end(), crc(&(0..32).collect::<Vec<u8>>()));
    }
}
