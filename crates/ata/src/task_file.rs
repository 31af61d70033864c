//! The registers by which a host gives a command, and by which the device answers.

/// The registers of a command.
///
/// A *long* task file has 16 bits of FEATURES and COUNT and 48 of LBA; a *short* one has 8, 8 and 24, and the lower half of DEVICE
/// for the 4 bits of a 28-bit LBA.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TaskFile {
    /// COMMAND: the operation code.
    pub command: u8,
    /// FEATURES; a short one has the lower byte only.
    pub features: u16,
    /// COUNT; a short one has the lower byte only.
    pub count: u16,
    /// LBA: 48 bits of a long one, 24 of a short one.
    pub lba: u64,
    /// DEVICE: [`DEVICE_LBA`], and bits 27 to 24 of the LBA of a 28-bit command.
    pub device: u8,
    /// Whether it is a long one.
    pub is_long: bool,
}

/// DEVICE: the address is an LBA. Without it, that of a 28-bit command is a cylinder, a head and a sector, as ATA-5 had them.
pub const DEVICE_LBA: u8 = 0x40;

/// The largest number of sectors that 28-bit commands reach: words 61:60 of IDENTIFY DEVICE data say no more.
pub const SECTORS_OF_28_BITS: u64 = 0x0fff_ffff;

impl TaskFile {
    /// A short one; the lowest byte of the LBA is the first.
    #[must_use]
    pub fn short(command: u8, features: u8, count: u8, lba: [u8; 3], device: u8) -> Self {
        let [low, middle, high] = lba;
        let lba = u32::from_le_bytes([low, middle, high, 0]).into();
        TaskFile { command, features: features.into(), count: count.into(), lba, device, is_long: false }
    }

    /// A long one; the lowest byte of the LBA is the first.
    #[must_use]
    pub fn long(command: u8, features: u16, count: u16, lba: [u8; 6], device: u8) -> Self {
        let [b0, b1, b2, b3, b4, b5] = lba;
        let lba = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, 0, 0]);
        TaskFile { command, features, count, lba, device, is_long: true }
    }

    /// The LBA of a 28-bit command.
    pub(crate) fn lba_of_28_bits(&self) -> u64 {
        self.lba & 0xff_ffff | u64::from(self.device & 0x0f) << 24
    }

    /// Whether it says something that a 28-bit command cannot take: it would go to another place than was meant.
    pub(crate) fn exceeds_28_bits(&self) -> bool {
        self.lba > 0xff_ffff || self.count > 0xff || self.features > 0xff
    }
}

/// The bits of STATUS.
pub mod status {
    /// The device is busy: no other bit counts.
    pub const BSY: u8 = 0x80;
    /// The device takes commands.
    pub const DRDY: u8 = 0x40;
    /// Device fault: it could not do what it should.
    pub const DF: u8 = 0x20;
    /// Seek complete, until ATA-3; hosts have always seen it.
    pub const DSC: u8 = 0x10;
    /// Data is to be transferred.
    pub const DRQ: u8 = 0x08;
    /// ERROR says what is the matter.
    pub const ERR: u8 = 0x01;
}

/// The bits of ERROR.
pub mod error {
    /// Of reads: the data cannot be read.
    pub const UNC: u8 = 0x40;
    /// Of writes, the same bit: the medium is write protected.
    pub const WP: u8 = 0x40;
    /// There is no such address.
    pub const IDNF: u8 = 0x10;
    /// The command is not supported, or was aborted.
    pub const ABRT: u8 = 0x04;
    /// There is no medium.
    pub const NM: u8 = 0x02;
}

/// The registers at the end of a command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registers {
    /// STATUS.
    pub status: u8,
    /// ERROR; zero after a success.
    pub error: u8,
    /// COUNT: what the command tells there; after a transfer, the sectors that were not done.
    pub count: u16,
    /// LBA: what the command tells there; after a failure, the sector that failed. The address of a 28-bit command is in 28 bits here.
    pub lba: u64,
    /// DEVICE, as it was given.
    pub device: u8,
}

impl Registers {
    /// Those of a command that has done what it should; LBA is where it began.
    #[must_use]
    pub fn success(of: &TaskFile) -> Self {
        Registers { status: status::DRDY | status::DSC, error: 0, count: 0, lba: of.lba, device: of.device }
    }

    /// Those of a command that has failed with these bits of ERROR.
    #[must_use]
    pub fn failure(of: &TaskFile, error: u8) -> Self {
        let success = Registers::success(of);
        Registers { status: success.status | status::ERR, error, count: of.count, ..success }
    }

    /// Whether they tell of a success, as Linux judges it (BSY, DF, DRQ and ERR are clear).
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status & (status::BSY | status::DF | status::DRQ | status::ERR) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_byte_of_an_address_is_the_first() {
        let short = TaskFile::short(0x20, 1, 2, [3, 4, 5], 0xe6);
        assert_eq!((short.features, short.count, short.lba), (1, 2, 0x05_0403));
        assert_eq!((short.lba_of_28_bits(), short.exceeds_28_bits()), (0x0605_0403, false));
        let long = TaskFile::long(0x24, 0x0102, 0x0304, [1, 2, 3, 4, 5, 6], 0x40);
        assert_eq!((long.features, long.count, long.lba), (0x0102, 0x0304, 0x0605_0403_0201));
        assert!(long.exceeds_28_bits());
    }

    #[test]
    fn linux_takes_a_success_for_one_and_a_failure_for_none() {
        let of = TaskFile::short(0x20, 0, 8, [1, 0, 0], 0xe0);
        let (success, failure) = (Registers::success(&of), Registers::failure(&of, error::ABRT));
        assert!(success.is_success() && success.status & 0xa9 == 0);
        assert!(!failure.is_success() && failure.status & 0xa9 == 0x01);
    }
}
