//! What an ATA device says at the end of a command, as sense data carries it (SAT-4 12.2.2.6 and 12.2.2.7).

/// The descriptor's additional length, in bytes.
pub(super) const DESCRIPTOR_BYTES: usize = 12;

/// The registers of an ATA device at the end of a command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtaStatus {
    /// Whether the command was one with 48-bit addresses.
    pub is_extended: bool,
    /// ERROR.
    pub error: u8,
    /// STATUS.
    pub status: u8,
    /// DEVICE.
    pub device: u8,
    /// COUNT; the fixed format has its lower byte only.
    pub count: u16,
    /// LBA, 48 bits; the fixed format has the lower 24 only.
    pub lba: u64,
    /// What is missing there was not zero: of COUNT, ...
    pub has_more_count: bool,
    /// ... of LBA.
    pub has_more_lba: bool,
}

/// Of byte 8 of the fixed format.
const EXTEND: u8 = 0x80;
const COUNT_UPPER_NONZERO: u8 = 0x40;
const LBA_UPPER_NONZERO: u8 = 0x20;

impl AtaStatus {
    /// The body of the ATA status return descriptor: byte pairs of LBA are those of the register that was written twice.
    pub(super) fn to_descriptor(self) -> [u8; DESCRIPTOR_BYTES] {
        let [_, _, l5, l4, l3, l2, l1, l0] = self.lba.to_be_bytes();
        let [c1, c0] = self.count.to_be_bytes();
        [u8::from(self.is_extended), self.error, c1, c0, l3, l0, l4, l1, l5, l2, self.device, self.status]
    }

    pub(super) fn from_descriptor(body: &[u8]) -> Option<Self> {
        let [flags, error, c1, c0, l3, l0, l4, l1, l5, l2, device, status] = *body.first_chunk::<DESCRIPTOR_BYTES>()?;
        Some(AtaStatus {
            is_extended: flags & 1 != 0,
            error,
            status,
            device,
            count: u16::from_be_bytes([c1, c0]),
            lba: u64::from_be_bytes([0, 0, l5, l4, l3, l2, l1, l0]),
            has_more_count: false,
            has_more_lba: false,
        })
    }

    /// The INFORMATION and COMMAND-SPECIFIC INFORMATION fields of the fixed format.
    pub(super) fn to_fixed(self) -> ([u8; 4], [u8; 4]) {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let flags = flag(self.is_extended, EXTEND)
            | flag(self.has_more_count || self.count > 0xff, COUNT_UPPER_NONZERO)
            | flag(self.has_more_lba || self.lba > 0xff_ffff, LBA_UPPER_NONZERO);
        let [.., l2, l1, l0] = self.lba.to_be_bytes();
        ([self.error, self.status, self.device, self.count as u8], [flags, l0, l1, l2])
    }

    pub(super) fn from_fixed(information: [u8; 4], specific: [u8; 4]) -> Self {
        let ([error, status, device, count], [flags, l0, l1, l2]) = (information, specific);
        AtaStatus {
            is_extended: flags & EXTEND != 0,
            error,
            status,
            device,
            count: count.into(),
            lba: u32::from_be_bytes([0, l2, l1, l0]).into(),
            has_more_count: flags & COUNT_UPPER_NONZERO != 0,
            has_more_lba: flags & LBA_UPPER_NONZERO != 0,
        }
    }
}
