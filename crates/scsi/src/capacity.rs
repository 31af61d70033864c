//! READ CAPACITY data (SBC-4 5.20 and 5.21).

use crate::bytes::{AnswerError, put, u16_at, u32_at, u64_at};

/// How large a disk is and how its blocks behave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Capacity {
    /// The number of logical blocks; at least one.
    pub blocks: u64,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Logical blocks of a physical block, as a power of two.
    pub physical_block_exponent: u8,
    /// Blocks may be unmapped (LBPME).
    pub provisioning_management: bool,
    /// Unmapped blocks read as zeroes (LBPRZ).
    pub reads_zeroes: bool,
}

impl Capacity {
    /// READ CAPACITY (10) data; FFFF_FFFFh sends the initiator to the sixteen-byte command.
    #[must_use]
    pub fn to_ten(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        let last_lba = u32::try_from(self.blocks.saturating_sub(1)).unwrap_or(u32::MAX);
        put(&mut bytes, 0, last_lba.to_be_bytes());
        put(&mut bytes, 4, self.block_bytes.to_be_bytes());
        bytes
    }

    /// READ CAPACITY (16) data.
    #[must_use]
    pub fn to_sixteen(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        put(&mut bytes, 0, self.blocks.saturating_sub(1).to_be_bytes());
        put(&mut bytes, 8, self.block_bytes.to_be_bytes());
        bytes[13] = self.physical_block_exponent & 0x0f;
        bytes[14] = u8::from(self.provisioning_management) << 7 | u8::from(self.reads_zeroes) << 6;
        bytes
    }

    /// Reads READ CAPACITY (10) data.
    ///
    /// # Errors
    /// [`AnswerError`] when it is cut short, the block has an impossible size, or the disk is larger than it can say.
    pub fn parse_ten(bytes: &[u8]) -> Result<Self, AnswerError> {
        const WHAT: &str = "READ CAPACITY (10)";
        let last_lba = u32_at(bytes, 0).ok_or(AnswerError::Short(WHAT))?;
        let block_bytes = u32_at(bytes, 4).ok_or(AnswerError::Short(WHAT))?;
        if block_bytes == 0 || last_lba == u32::MAX {
            return Err(AnswerError::Invalid(WHAT));
        }
        Ok(Capacity {
            blocks: u64::from(last_lba) + 1,
            block_bytes,
            physical_block_exponent: 0,
            provisioning_management: false,
            reads_zeroes: false,
        })
    }

    /// Reads READ CAPACITY (16) data.
    ///
    /// # Errors
    /// [`AnswerError`] when it is cut short, or the block or the whole has an impossible size.
    pub fn parse_sixteen(bytes: &[u8]) -> Result<Self, AnswerError> {
        const WHAT: &str = "READ CAPACITY (16)";
        let last_lba = u64_at(bytes, 0).ok_or(AnswerError::Short(WHAT))?;
        let block_bytes = u32_at(bytes, 8).ok_or(AnswerError::Short(WHAT))?;
        let blocks = last_lba.checked_add(1).ok_or(AnswerError::Invalid(WHAT))?;
        if block_bytes == 0 || blocks.checked_mul(block_bytes.into()).is_none() {
            return Err(AnswerError::Invalid(WHAT));
        }
        let provisioning = u16_at(bytes, 14).unwrap_or(0);
        Ok(Capacity {
            blocks,
            block_bytes,
            physical_block_exponent: bytes.get(13).map_or(0, |byte| byte & 0x0f),
            provisioning_management: provisioning & 0x8000 != 0,
            reads_zeroes: provisioning & 0x4000 != 0,
        })
    }

    /// Bytes of the whole disk; saturating.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_have_the_bytes_of_the_standard() {
        let capacity = Capacity {
            blocks: 0x1_0000_0000,
            block_bytes: 512,
            physical_block_exponent: 3,
            provisioning_management: true,
            reads_zeroes: true,
        };
        assert_eq!(capacity.to_ten(), [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0], "the last block that fits in 32 bits");
        let bytes = capacity.to_sixteen();
        assert_eq!(bytes[..16], [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0, 0, 3, 0xc0, 0]);
        assert_eq!(Capacity::parse_sixteen(&bytes), Ok(capacity));
        let larger = Capacity { blocks: 1 << 40, ..capacity };
        assert_eq!(larger.to_ten()[..4], [0xff; 4]);
        assert!(Capacity::parse_ten(&larger.to_ten()).is_err(), "more than ten bytes can say");
        let old = Capacity::parse_ten(&[0, 0, 0x0f, 0xff, 0, 0, 2, 0]).expect("a capacity");
        assert_eq!((old.blocks, old.block_bytes), (4096, 512));
    }

    #[test]
    fn impossible_capacities_are_refused() {
        let what = "READ CAPACITY (16)";
        assert_eq!(Capacity::parse_sixteen(&[0; 11]), Err(AnswerError::Short(what)));
        assert_eq!(Capacity::parse_sixteen(&[0; 32]), Err(AnswerError::Invalid(what)), "blocks of no bytes");
        assert_eq!(Capacity::parse_sixteen(&[0xff; 32]), Err(AnswerError::Invalid(what)), "more than 2^64");
    }
}
