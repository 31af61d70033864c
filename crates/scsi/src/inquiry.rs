//! Standard INQUIRY data (SPC-5 6.6.2).

use crate::bytes::{AnswerError, put, text};

/// Bytes of standard INQUIRY data as built here.
pub const STANDARD_INQUIRY_BYTES: usize = 96;

/// The T10 vendor identification of everything that Sanwire serves.
pub const VENDOR: &str = "SANWIRE";
/// The product identification of a disk.
pub const PRODUCT: &str = "Disk";
/// The product revision level.
pub const REVISION: &str = "1.0";

/// Whether a device server is behind a logical unit number (SPC-5 6.6.2, PERIPHERAL QUALIFIER).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Qualifier {
    /// 000b: it is there.
    Connected = 0,
    /// 001b: it could be there, but is not now.
    Disconnected = 1,
    /// 011b: there cannot be one.
    Incapable = 3,
}

/// What an initiator reads from standard INQUIRY data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StandardInquiry {
    /// Whether there is a device; `None` for the reserved and vendor specific codes.
    pub qualifier: Option<Qualifier>,
    /// The peripheral device type: 00h is a disk, 1Fh is none.
    pub device_type: u8,
    /// Whether the medium can be taken out.
    pub is_removable: bool,
    /// The T10 vendor identification, without padding.
    pub vendor: String,
    /// The product identification, without padding.
    pub product: String,
    /// The product revision level, without padding.
    pub revision: String,
}

/// Peripheral device types.
pub mod device_type {
    /// A block device.
    pub const DISK: u8 = 0x00;
    /// A CD, DVD or BD drive.
    pub const OPTICAL: u8 = 0x05;
    /// None that is known.
    pub const NONE: u8 = 0x1f;
}

/// The bytes of a disk's standard INQUIRY data.
#[must_use]
pub fn standard_inquiry(is_removable: bool) -> [u8; STANDARD_INQUIRY_BYTES] {
    // TPGS: states of port groups change by themselves and by command; 3PC: third-party copy. SBC-3.
    build(device_type::DISK, is_removable, PRODUCT, 0x38, &[0x04c0])
}

/// The bytes of an optical drive's standard INQUIRY data.
#[must_use]
pub fn optical_inquiry() -> [u8; STANDARD_INQUIRY_BYTES] {
    build(device_type::OPTICAL, true, "Optical", 0, &[])
}

fn build(device_type: u8, is_removable: bool, product: &str, flags: u8, own: &[u16]) -> [u8; STANDARD_INQUIRY_BYTES] {
    let mut bytes = [0; STANDARD_INQUIRY_BYTES];
    bytes[0] = device_type;
    bytes[1] = u8::from(is_removable) << 7;
    bytes[2] = 0x06; // SPC-4: initiators in the field take a later version for an unknown one
    bytes[3] = 0x12; // HISUP: REPORT LUNS tells all; response data format 2
    bytes[4] = (STANDARD_INQUIRY_BYTES - 5) as u8;
    bytes[5] = flags;
    bytes[7] = 0x02; // CMDQUE
    put(&mut bytes, 8, padded::<8>(VENDOR));
    put(&mut bytes, 16, padded::<16>(product));
    put(&mut bytes, 32, padded::<4>(REVISION));
    // Version descriptors: SAM-5, SPC-4, those of the type, iSCSI; no version claimed.
    let versions = [0x00a0_u16, 0x0460].iter().chain(own).chain(&[0x0960]);
    for (at, version) in versions.enumerate() {
        put(&mut bytes, 58 + 2 * at, version.to_be_bytes());
    }
    bytes
}

/// The answer of a target for a logical unit number that has no unit (SAM-5 4.7.1: 7Fh).
#[must_use]
pub fn absent_inquiry() -> [u8; STANDARD_INQUIRY_BYTES] {
    let mut bytes = standard_inquiry(false);
    bytes[0] = (Qualifier::Incapable as u8) << 5 | device_type::NONE;
    bytes[5] = 0;
    bytes
}

/// Left-aligned, filled with spaces (SPC-5 4.3.1).
pub(crate) fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (place, byte) in field.iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    field
}

impl StandardInquiry {
    /// Reads standard INQUIRY data.
    ///
    /// # Errors
    /// [`AnswerError::Short`] for less than the 36 bytes that every device sends.
    pub fn parse(bytes: &[u8]) -> Result<Self, AnswerError> {
        if bytes.len() < 36 {
            return Err(AnswerError::Short("INQUIRY"));
        }
        let qualifier = match bytes[0] >> 5 {
            0 => Some(Qualifier::Connected),
            1 => Some(Qualifier::Disconnected),
            3 => Some(Qualifier::Incapable),
            _ => None,
        };
        Ok(StandardInquiry {
            qualifier,
            device_type: bytes[0] & 0x1f,
            is_removable: bytes[1] & 0x80 != 0,
            vendor: text(&bytes[8..16]),
            product: text(&bytes[16..32]),
            revision: text(&bytes[32..36]),
        })
    }

    /// Whether a disk answers at this logical unit number.
    #[must_use]
    pub fn is_disk(&self) -> bool {
        self.qualifier == Some(Qualifier::Connected) && self.device_type == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_introduces_itself() {
        let bytes = standard_inquiry(false);
        assert_eq!(bytes[..8], [0, 0, 6, 0x12, 91, 0x38, 0, 2]);
        assert_eq!(&bytes[8..36], b"SANWIRE Disk            1.0 ");
        assert_eq!(bytes[58..68], [0, 0xa0, 4, 0x60, 4, 0xc0, 9, 0x60, 0, 0]);
        let parsed = StandardInquiry::parse(&bytes).unwrap();
        assert!(parsed.is_disk() && !parsed.is_removable);
        assert_eq!((&*parsed.vendor, &*parsed.product, &*parsed.revision), (VENDOR, PRODUCT, REVISION));
        assert!(StandardInquiry::parse(&standard_inquiry(true)).unwrap().is_removable);
        assert_eq!(StandardInquiry::parse(&bytes[..35]), Err(AnswerError::Short("INQUIRY")));
    }

    #[test]
    fn nobody_answers_with_7fh() {
        let bytes = absent_inquiry();
        assert_eq!(bytes[0], 0x7f);
        assert!(!StandardInquiry::parse(&bytes).unwrap().is_disk());
    }
}
