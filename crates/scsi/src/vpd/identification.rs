//! The device identification page (SPC-5 7.7.6): what a logical unit is called.

use std::fmt::Write;

use sanwire_core::limits::VOLUME_NAME_MAX_BYTES;

use super::{build, page, parse};
use crate::bytes::{AnswerError, u64_at};
use crate::inquiry::{VENDOR, padded};

/// The name and the number of a volume: what a logical unit is, wherever it is served.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    name: String,
    uuid: [u8; 16],
}

/// A name that cannot stand in a designator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityError {
    /// No name at all.
    #[error("a volume must have a name")]
    Empty,
    /// Longer than [`VOLUME_NAME_MAX_BYTES`].
    #[error("a volume's name has at most {VOLUME_NAME_MAX_BYTES} bytes of UTF-8")]
    TooLong,
    /// A control character.
    #[error("a volume's name must not contain control characters")]
    Control,
}

impl Identity {
    /// # Errors
    /// [`IdentityError`] when the name is empty, too long or unprintable.
    pub fn new(name: &str, uuid: [u8; 16]) -> Result<Self, IdentityError> {
        if name.is_empty() {
            return Err(IdentityError::Empty);
        }
        if name.len() > VOLUME_NAME_MAX_BYTES {
            return Err(IdentityError::TooLong);
        }
        if name.chars().any(char::is_control) {
            return Err(IdentityError::Control);
        }
        Ok(Identity { name: name.to_owned(), uuid })
    }

    /// The volume's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The volume's number.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The unit serial number: the uuid in hexadecimal.
    #[must_use]
    pub fn serial(&self) -> String {
        hexadecimal(&self.uuid)
    }

    /// The locally assigned NAA designator (SPC-5 7.7.6.6.4). The other NAA forms need a company id of the IEEE, which
    /// nobody has assigned to Sanwire; 60 bits, folded from all of the uuid, remain.
    #[must_use]
    pub fn naa(&self) -> u64 {
        let folded = u64_at(&self.uuid, 0).unwrap_or(0) ^ u64_at(&self.uuid, 8).unwrap_or(0);
        3 << 60 | folded & (u64::MAX >> 4)
    }

    /// The device identification page: T10 vendor id (with the name), UUID, NAA and SCSI name string.
    #[must_use]
    pub fn to_page(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(192);
        let text_code = if self.name.is_ascii() { 2 } else { 3 };
        // The name alone is not unique in the world; with the uuid it is, as SPC-5 7.7.6.4 asks.
        let mut vendor = padded::<8>(VENDOR).to_vec();
        vendor.extend(format!("{}:{}", self.name, self.serial()).bytes());
        push(&mut body, text_code, 0x1, &vendor);
        let mut uuid = vec![0x10, 0];
        uuid.extend(self.uuid);
        push(&mut body, 1, 0xa, &uuid);
        push(&mut body, 1, 0x3, &self.naa().to_be_bytes());
        // SPC-5 7.7.6.11: UTF-8, ended by a zero, padded to four bytes.
        let mut name = format!("naa.{:016X}\0", self.naa()).into_bytes();
        name.resize(name.len().next_multiple_of(4), 0);
        push(&mut body, 3, 0x8, &name);
        build(page::DEVICE_IDENTIFICATION, &body)
    }
}

/// One designator of the logical unit (association 00b). Ours are far below 256 bytes.
fn push(body: &mut Vec<u8>, code_set: u8, kind: u8, designator: &[u8]) {
    body.extend([code_set, kind, 0, designator.len() as u8]);
    body.extend(designator);
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What kind of name a designator is (SPC-5 7.7.6.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DesignatorKind {
    /// 1h: T10 vendor identification and what that vendor says.
    T10VendorId,
    /// 2h: EUI-64.
    Eui64,
    /// 3h: network address authority.
    Naa,
    /// 8h: SCSI name string.
    ScsiName,
    /// Ah: UUID.
    Uuid,
    /// Any other.
    Other(u8),
}

/// One designator as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Designator {
    /// What kind.
    pub kind: DesignatorKind,
    /// What it names: 0 the logical unit, 1 the target port, 2 the target device.
    pub association: u8,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A device identification page as an initiator reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceIdentification {
    /// All designators, in their order.
    pub designators: Vec<Designator>,
}

impl DeviceIdentification {
    /// Reads the page.
    ///
    /// # Errors
    /// [`AnswerError`] when it is another page, cut short, or a designator does not fit.
    pub fn parse(bytes: &[u8]) -> Result<Self, AnswerError> {
        let mut rest = parse(bytes, page::DEVICE_IDENTIFICATION)?;
        let mut designators = Vec::new();
        while !rest.is_empty() {
            let [_, flags, _, length, after @ ..] = rest else {
                return Err(AnswerError::Short("INQUIRY for the device identification page"));
            };
            let (designator, next) = after
                .split_at_checked(usize::from(*length))
                .ok_or(AnswerError::Short("INQUIRY for the device identification page"))?;
            let (kind, association) = (kind_of(flags & 0x0f), (flags >> 4) & 0x03);
            designators.push(Designator { kind, association, bytes: designator.to_vec() });
            rest = next;
        }
        Ok(DeviceIdentification { designators })
    }

    /// The name and number of a volume, when the unit is one of Sanwire's.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        let designator = self.of_unit(DesignatorKind::T10VendorId)?;
        let text = std::str::from_utf8(designator.strip_prefix(&padded::<8>(VENDOR))?).ok()?;
        let (name, serial) = text.rsplit_once(':')?;
        Identity::new(name, uuid_of(serial)?).ok()
    }

    /// The NAA designator, when it has eight bytes.
    #[must_use]
    pub fn naa(&self) -> Option<u64> {
        self.of_unit(DesignatorKind::Naa).filter(|bytes| bytes.len() == 8).and_then(|bytes| u64_at(bytes, 0))
    }

    fn of_unit(&self, kind: DesignatorKind) -> Option<&[u8]> {
        self.designators.iter().find(|d| d.kind == kind && d.association == 0).map(|d| &*d.bytes)
    }
}

fn kind_of(code: u8) -> DesignatorKind {
    match code {
        0x1 => DesignatorKind::T10VendorId,
        0x2 => DesignatorKind::Eui64,
        0x3 => DesignatorKind::Naa,
        0x8 => DesignatorKind::ScsiName,
        0xa => DesignatorKind::Uuid,
        other => DesignatorKind::Other(other),
    }
}

fn uuid_of(serial: &str) -> Option<[u8; 16]> {
    if serial.len() != 32 || !serial.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(serial, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: [u8; 16] = *b"\xf0\x01\x02\x03\x04\x05\x06\x07\x00\x00\x00\x00\x00\x00\x00\x08";

    #[test]
    fn the_page_has_the_bytes_of_the_standard() {
        let page = Identity::new("vol", UUID).unwrap().to_page();
        let mut expected = vec![0, 0x83, 0, 104, 2, 1, 0, 44];
        expected.extend(b"SANWIRE vol:f0010203040506070000000000000008");
        expected.extend([1, 0xa, 0, 18, 0x10, 0]);
        expected.extend(UUID);
        expected.extend([1, 3, 0, 8, 0x30, 1, 2, 3, 4, 5, 6, 0x0f]);
        expected.extend([3, 8, 0, 24]);
        expected.extend(b"naa.300102030405060F\0\0\0\0");
        expected[3] = (expected.len() - 4) as u8;
        assert_eq!(page, expected);
    }

    #[test]
    fn names_that_cannot_be_carried_are_refused() {
        assert_eq!(Identity::new("", UUID), Err(IdentityError::Empty));
        assert_eq!(Identity::new(&"x".repeat(65), UUID), Err(IdentityError::TooLong));
        assert_eq!(Identity::new("a\nb", UUID), Err(IdentityError::Control));
    }

    #[test]
    fn another_vendors_unit_is_no_volume() {
        let mut page = Identity::new("vol", UUID).unwrap().to_page();
        page[8] = b'X';
        assert_eq!(DeviceIdentification::parse(&page).unwrap().identity(), None);
    }

    proptest! {
        #[test]
        fn the_name_comes_back(name in "\\PC{1,20}|[a-z:]{1,64}", uuid: [u8; 16]) {
            prop_assume!(name.len() <= VOLUME_NAME_MAX_BYTES);
            let identity = Identity::new(&name, uuid);
            prop_assume!(identity.is_ok());
            let identity = identity.unwrap();
            let page = DeviceIdentification::parse(&identity.to_page()).unwrap();
            prop_assert_eq!(page.naa(), Some(identity.naa()));
            prop_assert_eq!(page.identity(), Some(identity));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = bytes;
            let _ = DeviceIdentification::parse(&bytes).map(|page| page.identity());
            if let [_, code, high, _, ..] = &mut *bytes {
                (*code, *high) = (page::DEVICE_IDENTIFICATION, 0);
                let _ = DeviceIdentification::parse(&bytes).map(|page| page.identity());
            }
        }
    }
}
