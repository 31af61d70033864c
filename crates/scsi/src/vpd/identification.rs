//! The device identification page (SPC-5 7.7.6): what a logical unit is called.

use data_encoding::HEXLOWER;
use sanwire_core::limits::VOLUME_NAME_MAX_BYTES;

use super::{build, page, parse};
use crate::bytes::{AnswerError, u64_at};
use crate::inquiry::{VENDOR, padded};

/// The name and the number of a volume: what a logical unit is, wherever it is served.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    name: String,
    uuid: [u8; 16],
    /// Its own NAA name, where it has one that does not follow from the number.
    naa: Option<u64>,
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
        Ok(Identity { name: name.to_owned(), uuid, naa: None })
    }

    /// The same, for what has an NAA name of its own.
    #[must_use]
    pub fn with_naa(self, naa: Option<u64>) -> Self {
        Identity { naa, ..self }
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
        HEXLOWER.encode(&self.uuid)
    }

    /// Its own NAA designator, else a locally assigned one (SPC-5 7.7.6.6.4). The other NAA forms need a company id of the IEEE, which
    /// is not assigned to Sanwire; 60 bits, folded from all of the uuid, remain.
    #[must_use]
    pub fn naa(&self) -> u64 {
        self.naa.unwrap_or_else(|| naa_of(&self.uuid))
    }

    /// A locally administered EUI-64 (the quadrant of IEEE 802c that its owner assigns), folded from all of the uuid.
    #[must_use]
    pub fn eui_64(&self) -> u64 {
        let folded = u64_at(&self.uuid, 0).unwrap_or(0) ^ u64_at(&self.uuid, 8).unwrap_or(0).rotate_left(32);
        folded & !(0x0f << 56) | 0x02 << 56
    }

    /// The device identification page, as it is read through `port`: what the logical unit is called (T10 vendor id
    /// with the name, NAA, EUI-64, UUID and SCSI name string), then the port, then the device.
    #[must_use]
    pub fn to_page(&self, port: &TargetPort) -> Vec<u8> {
        let mut body = Vec::with_capacity(256);
        for (code_set, designator) in self.designators().iter().chain(&port.designators()) {
            body.extend(designation(*code_set, designator));
        }
        build(page::DEVICE_IDENTIFICATION, &body)
    }

    /// Whether the designator names this logical unit.
    #[must_use]
    pub fn is_named(&self, designator: &Designator) -> bool {
        self.designators().iter().any(|(_, own)| own == designator)
    }

    /// The designators of the logical unit, each after its code set.
    fn designators(&self) -> [(u8, Designator); 5] {
        let text = if self.name.is_ascii() { ASCII } else { UTF_8 };
        // The name alone is not unique in the world; with the uuid it is, as SPC-5 7.7.6.4 asks.
        let mut vendor = padded::<8>(VENDOR).to_vec();
        vendor.extend(format!("{}:{}", self.name, self.serial()).bytes());
        let naa = self.naa();
        let of_unit = |kind, bytes| Designator { kind, association: 0, bytes };
        [
            (text, of_unit(DesignatorKind::T10VendorId, vendor)),
            (BINARY, Designator::of_uuid(self.uuid)),
            (BINARY, of_unit(DesignatorKind::Naa, naa.to_be_bytes().to_vec())),
            (BINARY, of_unit(DesignatorKind::Eui64, self.eui_64().to_be_bytes().to_vec())),
            (UTF_8, of_unit(DesignatorKind::ScsiName, name_string(&format!("naa.{naa:016X}")))),
        ]
    }
}

fn designation(code_set: u8, designator: &Designator) -> Vec<u8> {
    // Ours are far below 256 bytes.
    let (kind, length) = (designator.kind.code(), designator.bytes.len() as u8);
    let mut bytes = vec![code_set, designator.association << 4 | kind, 0, length];
    bytes.extend(&designator.bytes);
    bytes
}

pub(super) fn naa_of(uuid: &[u8; 16]) -> u64 {
    let folded = u64_at(uuid, 0).unwrap_or(0) ^ u64_at(uuid, 8).unwrap_or(0);
    3 << 60 | folded & (u64::MAX >> 4)
}

/// Code sets (SPC-5 7.7.6.1).
const BINARY: u8 = 1;
const ASCII: u8 = 2;
const UTF_8: u8 = 3;

/// What is named (SPC-5 7.7.6.1), other than the logical unit.
const PORT: u8 = 1;
const DEVICE: u8 = 2;

/// SPC-5 7.7.6.11: UTF-8, ended by a zero, padded to four bytes.
fn name_string(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes
}

/// The port of the target through which an initiator comes, and the target device that it belongs to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TargetPort {
    /// Its relative identifier, from 1.
    pub relative_id: u16,
    /// The target port group that it belongs to.
    pub group: u16,
    /// Its SCSI name string, where the transport has one (`iqn...,t,0x0001`); up to 251 bytes.
    pub port_name: Option<String>,
    /// The SCSI name string of the target device (`iqn...`); up to 251 bytes.
    pub device_name: Option<String>,
}

impl Default for TargetPort {
    /// The only port of a transport that has no names: 1, in group 1.
    fn default() -> Self {
        TargetPort { relative_id: 1, group: 1, port_name: None, device_name: None }
    }
}

impl TargetPort {
    /// The designation descriptor of the target device, if it has a name.
    pub(crate) fn device_designation(&self) -> Option<Vec<u8>> {
        let named = self.designators().into_iter().find(|(_, designator)| designator.association == DEVICE);
        named.map(|(code_set, designator)| designation(code_set, &designator))
    }

    /// The designators of port and device, each after its code set.
    fn designators(&self) -> Vec<(u8, Designator)> {
        let number = |kind, id: u16| {
            let bytes = u32::from(id).to_be_bytes().to_vec();
            Some((BINARY, Designator { kind, association: PORT, bytes }))
        };
        let name = |association, name: &Option<String>| {
            let bytes = name_string(name.as_ref().filter(|name| name.len() < 252)?);
            Some((UTF_8, Designator { kind: DesignatorKind::ScsiName, association, bytes }))
        };
        let designators = [
            number(DesignatorKind::RelativeTargetPort, self.relative_id),
            number(DesignatorKind::TargetPortGroup, self.group),
            name(PORT, &self.port_name),
            name(DEVICE, &self.device_name),
        ];
        designators.into_iter().flatten().collect()
    }
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
    /// 4h: relative target port identifier.
    RelativeTargetPort,
    /// 5h: target port group.
    TargetPortGroup,
    /// 8h: SCSI name string.
    ScsiName,
    /// Ah: UUID.
    Uuid,
    /// Any other.
    Other(u8),
}

/// One designator as it came.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Designator {
    /// What kind.
    pub kind: DesignatorKind,
    /// What it names: 0 the logical unit, 1 the target port, 2 the target device.
    pub association: u8,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Designator {
    /// The one that has all of a logical unit's uuid (SPC-5 7.7.6.12).
    #[must_use]
    pub fn of_uuid(uuid: [u8; 16]) -> Self {
        let bytes = [&[0x10, 0], &uuid[..]].concat();
        Designator { kind: DesignatorKind::Uuid, association: 0, bytes }
    }

    /// Reads the designation descriptor with which `bytes` begins; gives it with what follows. `None` when it does not fit.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Designator, &[u8])> {
        let [_, flags, _, length, after @ ..] = bytes else { return None };
        let (designator, rest) = after.split_at_checked(usize::from(*length))?;
        let (kind, association) = (DesignatorKind::from_code(flags & 0x0f), (flags >> 4) & 0x03);
        Some((Designator { kind, association, bytes: designator.to_vec() }, rest))
    }
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
            let (designator, next) =
                Designator::parse(rest).ok_or(AnswerError::Short("INQUIRY for the device identification page"))?;
            designators.push(designator);
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

impl DesignatorKind {
    fn from_code(code: u8) -> Self {
        match code {
            0x1 => DesignatorKind::T10VendorId,
            0x2 => DesignatorKind::Eui64,
            0x3 => DesignatorKind::Naa,
            0x4 => DesignatorKind::RelativeTargetPort,
            0x5 => DesignatorKind::TargetPortGroup,
            0x8 => DesignatorKind::ScsiName,
            0xa => DesignatorKind::Uuid,
            other => DesignatorKind::Other(other),
        }
    }

    fn code(self) -> u8 {
        match self {
            DesignatorKind::T10VendorId => 0x1,
            DesignatorKind::Eui64 => 0x2,
            DesignatorKind::Naa => 0x3,
            DesignatorKind::RelativeTargetPort => 0x4,
            DesignatorKind::TargetPortGroup => 0x5,
            DesignatorKind::ScsiName => 0x8,
            DesignatorKind::Uuid => 0xa,
            DesignatorKind::Other(other) => other,
        }
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
        let page = Identity::new("vol", UUID).unwrap().to_page(&TargetPort::default());
        let mut expected = vec![0, 0x83, 0, 0, 2, 1, 0, 44];
        expected.extend(b"SANWIRE vol:f0010203040506070000000000000008");
        expected.extend([1, 0xa, 0, 18, 0x10, 0]);
        expected.extend(UUID);
        expected.extend([1, 3, 0, 8, 0x30, 1, 2, 3, 4, 5, 6, 0x0f]);
        expected.extend([1, 2, 0, 8, 0xf2, 1, 2, 0x0b, 4, 5, 6, 7]);
        expected.extend([3, 8, 0, 24]);
        expected.extend(b"naa.300102030405060F\0\0\0\0");
        expected.extend([1, 0x14, 0, 4, 0, 0, 0, 1, 1, 0x15, 0, 4, 0, 0, 0, 1]);
        expected[3] = (expected.len() - 4) as u8;
        assert_eq!(page, expected);
    }

    #[test]
    fn ports_and_devices_are_named_after_the_unit() {
        let port = TargetPort {
            relative_id: 0x0203,
            group: 0x0405,
            port_name: Some("iqn.2026-11.org.sanwire:a,t,0x0001".to_owned()),
            device_name: Some("iqn.2026-11.org.sanwire:a".to_owned()),
        };
        let page = Identity::new("vol", UUID).unwrap().to_page(&port);
        let mut expected = vec![1, 0x14, 0, 4, 0, 0, 2, 3, 1, 0x15, 0, 4, 0, 0, 4, 5, 3, 0x18, 0, 36];
        expected.extend(b"iqn.2026-11.org.sanwire:a,t,0x0001\0\0");
        expected.extend([3, 0x28, 0, 28]);
        expected.extend(b"iqn.2026-11.org.sanwire:a\0\0\0");
        assert!(page.ends_with(&expected));
        assert_eq!(usize::from(page[3]), page.len() - 4);
        let too_long = TargetPort { device_name: Some("x".repeat(252)), ..port };
        assert!(DeviceIdentification::parse(&Identity::new("vol", UUID).unwrap().to_page(&too_long)).is_ok());
    }

    #[test]
    fn a_unit_answers_to_each_of_its_names_and_to_no_other() {
        let identity = Identity::new("vol", UUID).unwrap();
        let page = DeviceIdentification::parse(&identity.to_page(&TargetPort::default())).unwrap();
        for mut designator in page.designators {
            assert_eq!(identity.is_named(&designator), designator.association == 0, "{designator:?}");
            designator.bytes[0] ^= 1;
            assert!(!identity.is_named(&designator));
        }
    }

    #[test]
    fn names_that_cannot_be_carried_are_refused() {
        assert_eq!(Identity::new("", UUID), Err(IdentityError::Empty));
        assert_eq!(Identity::new(&"x".repeat(65), UUID), Err(IdentityError::TooLong));
        assert_eq!(Identity::new("a\nb", UUID), Err(IdentityError::Control));
    }

    #[test]
    fn another_vendors_unit_is_no_volume() {
        let mut page = Identity::new("vol", UUID).unwrap().to_page(&TargetPort::default());
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
            let page = DeviceIdentification::parse(&identity.to_page(&TargetPort::default())).unwrap();
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
