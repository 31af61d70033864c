//! The pages of block devices: limits, characteristics, provisioning (SBC-4 6.6).

use super::{build, page, parse};
use crate::bytes::{AnswerError, put, u16_at, u32_at, u64_at};

const BODY_BYTES: usize = 0x3c;

/// The block limits page (SBC-4 6.6.4). Counts are logical blocks; zero means that nothing is said.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BlockLimits {
    /// WRITE SAME with no blocks is refused (WSNZ).
    pub write_same_not_zero: bool,
    /// The most blocks of one COMPARE AND WRITE command; zero when it has none.
    pub maximum_compare_and_write: u8,
    /// The grain of good transfers.
    pub optimal_transfer_granularity: u16,
    /// The longest transfer of one command.
    pub maximum_transfer: u32,
    /// The longest transfer that is still fast.
    pub optimal_transfer: u32,
    /// The most blocks of one UNMAP command; zero when it has no UNMAP.
    pub maximum_unmap: u32,
    /// The most descriptors of one UNMAP command.
    pub maximum_unmap_descriptors: u32,
    /// The grain in which space is given back.
    pub optimal_unmap_granularity: u32,
    /// The first LBA of that grain, if one is said.
    pub unmap_alignment: Option<u32>,
    /// The most blocks of one WRITE SAME command.
    pub maximum_write_same: u64,
    /// The most blocks that WRITE ATOMIC (16) writes; zero when it has none. It has no alignment and no granularity.
    pub maximum_atomic: u32,
}

impl BlockLimits {
    /// The page.
    #[must_use]
    pub fn to_page(&self) -> Vec<u8> {
        let mut body = [0; BODY_BYTES];
        body[0] = self.write_same_not_zero.into();
        body[1] = self.maximum_compare_and_write;
        put(&mut body, 2, self.optimal_transfer_granularity.to_be_bytes());
        put(&mut body, 4, self.maximum_transfer.to_be_bytes());
        put(&mut body, 8, self.optimal_transfer.to_be_bytes());
        put(&mut body, 16, self.maximum_unmap.to_be_bytes());
        put(&mut body, 20, self.maximum_unmap_descriptors.to_be_bytes());
        put(&mut body, 24, self.optimal_unmap_granularity.to_be_bytes());
        let alignment = self.unmap_alignment.map_or(0, |lba| 1 << 31 | lba & (u32::MAX >> 1));
        put(&mut body, 28, alignment.to_be_bytes());
        put(&mut body, 32, self.maximum_write_same.to_be_bytes());
        put(&mut body, 40, self.maximum_atomic.to_be_bytes());
        build(page::BLOCK_LIMITS, &body)
    }

    /// Reads the page; fields that an older device does not send are zero.
    ///
    /// # Errors
    /// [`AnswerError`] when it is another page or cut short.
    pub fn parse(bytes: &[u8]) -> Result<Self, AnswerError> {
        let body = parse(bytes, page::BLOCK_LIMITS)?;
        let count = |at| u32_at(body, at).unwrap_or(0);
        Ok(BlockLimits {
            write_same_not_zero: body.first().is_some_and(|flags| flags & 1 != 0),
            maximum_compare_and_write: body.get(1).copied().unwrap_or(0),
            optimal_transfer_granularity: u16_at(body, 2).unwrap_or(0),
            maximum_transfer: count(4),
            optimal_transfer: count(8),
            maximum_unmap: count(16),
            maximum_unmap_descriptors: count(20),
            optimal_unmap_granularity: count(24),
            unmap_alignment: Some(count(28)).filter(|field| field >> 31 != 0).map(|field| field & (u32::MAX >> 1)),
            maximum_write_same: u64_at(body, 32).unwrap_or(0),
            maximum_atomic: count(40),
        })
    }
}

/// The block device characteristics page (SBC-4 6.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BlockCharacteristics {
    /// 0001h: it does not rotate; 0000h: not said; else rotations per minute.
    pub medium_rotation_rate: u16,
    /// WABEREQ 01b: after SANITIZE with BLOCK ERASE, blocks can be read before they are written again.
    pub reads_after_block_erase: bool,
}

impl BlockCharacteristics {
    /// Flash, memory, or files on whatever: no place is slower to reach than another.
    pub const NON_ROTATING: BlockCharacteristics =
        BlockCharacteristics { medium_rotation_rate: 1, reads_after_block_erase: false };

    /// The page.
    #[must_use]
    pub fn to_page(&self) -> Vec<u8> {
        let mut body = [0; BODY_BYTES];
        put(&mut body, 0, self.medium_rotation_rate.to_be_bytes());
        body[3] = u8::from(self.reads_after_block_erase) << 6;
        build(page::BLOCK_DEVICE_CHARACTERISTICS, &body)
    }

    /// Reads the page.
    ///
    /// # Errors
    /// [`AnswerError`] when it is another page or cut short.
    pub fn parse(bytes: &[u8]) -> Result<Self, AnswerError> {
        let body = parse(bytes, page::BLOCK_DEVICE_CHARACTERISTICS)?;
        let medium_rotation_rate = u16_at(body, 0).ok_or(AnswerError::Short("INQUIRY for page B1h"))?;
        let reads_after_block_erase = body.get(3).is_some_and(|flags| flags >> 6 == 1);
        Ok(BlockCharacteristics { medium_rotation_rate, reads_after_block_erase })
    }
}

/// How space stands behind blocks (SBC-4 6.6.5, PROVISIONING TYPE).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum ProvisioningType {
    /// 000b: fully provisioned, or not said.
    #[default]
    Full = 0,
    /// 001b: resource provisioned.
    Resource = 1,
    /// 010b: thin provisioned.
    Thin = 2,
}

/// The supported block lengths and protection types page (SBC-4 6.6.9): the one length that the unit has, without protection
/// information.
#[must_use]
pub fn supported_block_lengths(block_bytes: u32) -> Vec<u8> {
    const NO_PROTECTION: u8 = 0x01; // T0PS
    let mut body = block_bytes.to_be_bytes().to_vec();
    body.extend([0, NO_PROTECTION, 0, 0]);
    build(page::SUPPORTED_BLOCK_LENGTHS, &body)
}

/// The logical block provisioning page (SBC-4 6.6.5). No block can be anchored (ANC_SUP is zero).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Provisioning {
    /// Blocks of a threshold set, as a power of two; zero when it has no thresholds.
    pub threshold_exponent: u8,
    /// It has UNMAP (LBPU).
    pub unmap: bool,
    /// WRITE SAME (16) can unmap (LBPWS).
    pub write_same_16: bool,
    /// WRITE SAME (10) can unmap (LBPWS10).
    pub write_same_10: bool,
    /// Unmapped blocks read as zeroes (LBPRZ 001b).
    pub reads_zeroes: bool,
    /// How space stands behind blocks.
    pub kind: ProvisioningType,
}

impl Provisioning {
    /// The page.
    #[must_use]
    pub fn to_page(&self) -> Vec<u8> {
        let flags = u8::from(self.unmap) << 7
            | u8::from(self.write_same_16) << 6
            | u8::from(self.write_same_10) << 5
            | u8::from(self.reads_zeroes) << 2;
        build(page::LOGICAL_BLOCK_PROVISIONING, &[self.threshold_exponent, flags, self.kind as u8, 0])
    }

    /// Reads the page.
    ///
    /// # Errors
    /// [`AnswerError`] when it is another page or cut short.
    pub fn parse(bytes: &[u8]) -> Result<Self, AnswerError> {
        let [threshold_exponent, flags, kind, ..] = parse(bytes, page::LOGICAL_BLOCK_PROVISIONING)? else {
            return Err(AnswerError::Short("INQUIRY for page B2h"));
        };
        Ok(Provisioning {
            threshold_exponent: *threshold_exponent,
            unmap: flags & 0x80 != 0,
            write_same_16: flags & 0x40 != 0,
            write_same_10: flags & 0x20 != 0,
            reads_zeroes: (flags >> 2) & 0x07 == 1,
            kind: match kind & 0x07 {
                1 => ProvisioningType::Resource,
                2 => ProvisioningType::Thin,
                _ => ProvisioningType::Full,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_limits_have_the_bytes_of_the_standard() {
        let limits = BlockLimits {
            write_same_not_zero: true,
            maximum_compare_and_write: 255,
            optimal_transfer_granularity: 8,
            maximum_transfer: 2048,
            optimal_transfer: 1024,
            maximum_unmap: 0x0102_0304,
            maximum_unmap_descriptors: 256,
            optimal_unmap_granularity: 9,
            unmap_alignment: Some(3),
            maximum_write_same: 0x0506_0708_090a_0b0c,
            maximum_atomic: 0x0d0e_0f10,
        };
        let page = limits.to_page();
        let expected = [
            0, 0xb0, 0, 0x3c, 1, 255, 0, 8, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 1, 0, 0, 0, 0, 9,
            0x80, 0, 0, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
        ];
        assert_eq!((page.len(), &page[..48]), (64, &expected[..]));
        assert_eq!(BlockLimits::parse(&page), Ok(limits));
        let old = [0, 0xb0, 0, 0x0c, 0, 0, 0, 8, 0, 0, 8, 0, 0, 0, 4, 0];
        let parsed = BlockLimits::parse(&old).unwrap();
        assert_eq!((parsed.maximum_transfer, parsed.maximum_unmap, parsed.unmap_alignment), (2048, 0, None));
    }

    #[test]
    fn characteristics_and_provisioning_have_the_bytes_of_the_standard() {
        let page = BlockCharacteristics::NON_ROTATING.to_page();
        assert_eq!((page.len(), &page[..6]), (64, &[0, 0xb1, 0, 0x3c, 0, 1][..]));
        assert_eq!(BlockCharacteristics::parse(&page), Ok(BlockCharacteristics::NON_ROTATING));
        let erasable = BlockCharacteristics { reads_after_block_erase: true, ..BlockCharacteristics::NON_ROTATING };
        assert_eq!(erasable.to_page()[7], 0x40);
        assert_eq!(BlockCharacteristics::parse(&erasable.to_page()), Ok(erasable));
        let thin = Provisioning {
            threshold_exponent: 11,
            unmap: true,
            write_same_16: true,
            write_same_10: true,
            reads_zeroes: true,
            kind: ProvisioningType::Thin,
        };
        assert_eq!(thin.to_page(), [0, 0xb2, 0, 4, 11, 0xe4, 2, 0]);
        assert_eq!(supported_block_lengths(4096), [0, 0xb4, 0, 8, 0, 0, 0x10, 0, 0, 1, 0, 0]);
        for provisioning in [thin, Provisioning::default()] {
            assert_eq!(Provisioning::parse(&provisioning.to_page()), Ok(provisioning));
        }
    }
}
