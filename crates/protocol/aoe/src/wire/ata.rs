//! The argument of an ATA command: the registers, twelve bytes, before the data.

use sanwire_ata::{DEVICE_LBA, Registers, TaskFile};

/// Bytes of the argument.
pub const ATA_BYTES: usize = 12;

/// The command has 48-bit fields.
const EXTENDED: u8 = 0x40;
/// Data goes to the device.
const WRITE: u8 = 0x01;

/// Registers of a request or of its response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtaHeader {
    /// The flags.
    pub flags: u8,
    /// FEATURES of a request, ERROR of a response.
    pub feature: u8,
    /// COUNT.
    pub count: u8,
    /// COMMAND of a request, STATUS of a response.
    pub command: u8,
    /// The lowest byte first; of a 28-bit command the fourth has its upper four bits, with the upper half of DEVICE.
    pub lba: [u8; 6],
}

impl AtaHeader {
    /// The argument, and the data behind it.
    #[must_use]
    pub fn parse(argument: &[u8]) -> Option<(AtaHeader, &[u8])> {
        let ([flags, feature, count, command, b0, b1, b2, b3, b4, b5, _, _], data) =
            argument.split_first_chunk::<ATA_BYTES>()?;
        let lba = [*b0, *b1, *b2, *b3, *b4, *b5];
        Some((AtaHeader { flags: *flags, feature: *feature, count: *count, command: *command, lba }, data))
    }

    /// The argument as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ATA_BYTES] {
        let [b0, b1, b2, b3, b4, b5] = self.lba;
        [self.flags, self.feature, self.count, self.command, b0, b1, b2, b3, b4, b5, 0, 0]
    }

    /// That of a command; `None` for one that the wire cannot say: it has 8 bits for features and sectors.
    #[must_use]
    pub fn of(task_file: &TaskFile, has_data_out: bool) -> Option<AtaHeader> {
        let feature = u8::try_from(task_file.features).ok()?;
        let count = u8::try_from(task_file.count).ok()?;
        let [b0, b1, b2, b3, b4, b5, ..] = task_file.lba.to_le_bytes();
        let write = if has_data_out { WRITE } else { 0 };
        let (flags, lba) = match task_file.is_long {
            true => (EXTENDED | write, [b0, b1, b2, b3, b4, b5]),
            false => (write, [b0, b1, b2, task_file.device, 0, 0]),
        };
        Some(AtaHeader { flags, feature, count, command: task_file.command, lba })
    }

    /// The command. Addresses are always LBAs, whether an initiator has set that bit of DEVICE or not.
    #[must_use]
    pub fn task_file(&self) -> TaskFile {
        let [b0, b1, b2, b3, ..] = self.lba;
        match self.flags & EXTENDED {
            0 => TaskFile::short(self.command, self.feature, self.count, [b0, b1, b2], b3 | DEVICE_LBA),
            _ => TaskFile::long(self.command, self.feature.into(), self.count.into(), self.lba, DEVICE_LBA),
        }
    }

    /// The response to this request.
    #[must_use]
    pub fn response(&self, registers: &Registers) -> AtaHeader {
        let [b0, b1, b2, b3, b4, b5, ..] = registers.lba.to_le_bytes();
        let lba = match self.flags & EXTENDED {
            0 => [b0, b1, b2, self.lba[3] & 0xf0 | if b3 == 0 { self.lba[3] & 0x0f } else { b3 & 0x0f }, 0, 0],
            _ => [b0, b1, b2, b3, b4, b5],
        };
        AtaHeader {
            flags: self.flags,
            feature: registers.error,
            count: registers.count as u8,
            command: registers.status,
            lba,
        }
    }

    /// The registers of a response to this command.
    #[must_use]
    pub fn registers(&self, of: &TaskFile) -> Registers {
        let [b0, b1, b2, b3, b4, b5] = self.lba;
        let lba = match of.is_long {
            true => u64::from_le_bytes([b0, b1, b2, b3, b4, b5, 0, 0]),
            false => u32::from_le_bytes([b0, b1, b2, b3 & 0x0f]).into(),
        };
        Registers { status: self.command, error: self.feature, count: self.count.into(), lba, device: of.device }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_as_it_is_written() {
        let long = TaskFile::long(0x34, 0, 2, [1, 2, 3, 4, 5, 6], DEVICE_LBA);
        let header = AtaHeader::of(&long, true).unwrap();
        assert_eq!(header.to_bytes(), [0x41, 0, 2, 0x34, 1, 2, 3, 4, 5, 6, 0, 0]);
        assert_eq!(header.task_file(), long);
        let short = TaskFile::short(0x20, 0, 2, [1, 2, 3], 0xe4);
        let header = AtaHeader::of(&short, false).unwrap();
        assert_eq!(header.to_bytes(), [0, 0, 2, 0x20, 1, 2, 3, 0xe4, 0, 0, 0, 0]);
        assert_eq!(header.task_file(), short);
        assert_eq!(AtaHeader::of(&TaskFile { count: 256, ..long }, true), None);
        assert_eq!(AtaHeader::parse(&header.to_bytes()), Some((header, &[][..])));
    }

    #[test]
    fn a_response_has_the_registers() {
        let short = TaskFile::short(0x20, 0, 2, [1, 2, 3], 0xe4);
        let request = AtaHeader::of(&short, false).unwrap();
        let response = request.response(&Registers::success(&short));
        assert_eq!(response.lba, [1, 2, 3, 0xe4, 0, 0], "as it was given");
        let failed = Registers { lba: 0x0403_0209, ..Registers::failure(&short, 0x40) };
        let response = request.response(&failed);
        assert_eq!((response.feature, response.command & 1, response.registers(&short).lba), (0x40, 1, 0x0403_0209));
    }
}
