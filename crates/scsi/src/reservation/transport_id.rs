//! TransportIDs: the names of initiator ports (SPC-5 7.6.4).

use std::fmt;
use std::sync::Arc;

use sanwire_core::{ClientId, MacAddress};

use crate::bytes::u16_at;

/// The longest iSCSI name (RFC 7143 4.2.7.1), in bytes.
const ISCSI_NAME_MAX_BYTES: usize = 223;

/// Between the name and the ISID of an initiator port.
const ISID_SEPARATOR: &str = ",i,0x";

const ISCSI: u8 = 0x05;
const NO_SPECIFIC_PROTOCOL: u8 = 0x0f;
const WITH_ISID: u8 = 0x40;

/// What our TransportIDs of protocol identifier Fh begin with, after the header.
const HYPERSCSI: &[u8; 4] = b"HSCS";

/// The same of stations that show nothing but their address on an Ethernet.
const STATION: &[u8; 4] = b"EMAC";

const HEADER_BYTES: usize = 4;
/// ADDITIONAL LENGTH is at least so much for iSCSI, and exactly so much for HyperSCSI.
const LEAST_BYTES: usize = 20;

/// The name of an initiator port, in one spelling: two are equal when they mean the same port.
///
/// HyperSCSI, of which no standard speaks here, has protocol identifier Fh (no specific protocol) and the fixed length
/// of 24 bytes: `0F 00 00 14`, the letters `HSCS`, and the 16 bytes of the client's id. So have stations of an Ethernet, with the letters
/// `EMAC`, their address and zeroes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportId(Arc<[u8]>);

/// A text that cannot be an iSCSI name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an iSCSI name has 1 to {ISCSI_NAME_MAX_BYTES} bytes, without commas, blanks and control characters")]
pub struct IscsiNameError;

impl TransportId {
    /// The port of a HyperSCSI client.
    #[must_use]
    pub fn hyperscsi(client: ClientId) -> Self {
        let mut bytes = vec![NO_SPECIFIC_PROTOCOL, 0, 0, LEAST_BYTES as u8];
        bytes.extend(HYPERSCSI);
        bytes.extend(client.0);
        TransportId(bytes.into())
    }

    /// The port of a station that is known by its Ethernet address alone.
    #[must_use]
    pub fn station(mac: MacAddress) -> Self {
        let mut bytes = vec![NO_SPECIFIC_PROTOCOL, 0, 0, LEAST_BYTES as u8];
        bytes.extend(STATION);
        bytes.extend(mac.0);
        bytes.resize(HEADER_BYTES + LEAST_BYTES, 0);
        TransportId(bytes.into())
    }

    /// An iSCSI initiator port (format 01b): the initiator's name and the ISID of its session.
    ///
    /// # Errors
    /// [`IscsiNameError`] when the name is none.
    pub fn iscsi_port(name: &str, isid: [u8; 6]) -> Result<Self, IscsiNameError> {
        let name = iscsi_name(name)?;
        let isid = isid.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        Ok(TransportId::iscsi(WITH_ISID, &format!("{name}{ISID_SEPARATOR}{isid}")))
    }

    /// An iSCSI initiator device (format 00b): the name alone, which stands for all its ports.
    ///
    /// # Errors
    /// [`IscsiNameError`] when the name is none.
    pub fn iscsi_device(name: &str) -> Result<Self, IscsiNameError> {
        Ok(TransportId::iscsi(0, &iscsi_name(name)?))
    }

    fn iscsi(format: u8, text: &str) -> Self {
        let body_bytes = (text.len() + 1).next_multiple_of(4).max(LEAST_BYTES);
        let mut bytes = vec![format | ISCSI, 0];
        bytes.extend((body_bytes as u16).to_be_bytes());
        bytes.extend(text.as_bytes());
        bytes.resize(HEADER_BYTES + body_bytes, 0);
        TransportId(bytes.into())
    }

    /// Reads the first TransportID of a list, and gives what comes behind it. `None` when it is cut short, of a protocol
    /// that Sanwire does not speak, or wrong.
    #[must_use]
    pub fn split_first(list: &[u8]) -> Option<(Self, &[u8])> {
        let body_bytes = usize::from(u16_at(list, 2)?);
        let (bytes, rest) = list.split_at_checked(HEADER_BYTES + body_bytes)?;
        let (header, body) = bytes.split_at_checked(HEADER_BYTES)?;
        let id = match header.first()? {
            0x05 => TransportId::iscsi_device(iscsi_text(body)?).ok()?,
            0x45 => {
                let (name, isid) = iscsi_text(body)?.split_once(ISID_SEPARATOR)?;
                TransportId::iscsi_port(name, parse_isid(isid)?).ok()?
            }
            0x0f => match body.split_first_chunk::<4>()? {
                (HYPERSCSI, id) => TransportId::hyperscsi(ClientId(id.try_into().ok()?)),
                (STATION, [a, b, c, d, e, f, rest @ ..]) if *rest == [0; 10] => {
                    TransportId::station(MacAddress([*a, *b, *c, *d, *e, *f]))
                }
                _ => return None,
            },
            _ => return None,
        };
        Some((id, rest))
    }

    /// The only TransportID of these bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        TransportId::split_first(bytes).filter(|(_, rest)| rest.is_empty()).map(|(id, _)| id)
    }

    /// The bytes, header and all; their number is a multiple of four.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it names an initiator device with all its ports, not one port.
    #[must_use]
    pub fn is_device(&self) -> bool {
        self.0.first() == Some(&ISCSI)
    }

    /// Whether `port` is the port that this names, or one of the device that this names.
    #[must_use]
    pub fn covers(&self, port: &TransportId) -> bool {
        self == port || (self.is_device() && port.0.first() == Some(&(WITH_ISID | ISCSI)) && self.name() == port.name())
    }

    /// Whether both are ports of one initiator device.
    #[must_use]
    pub fn is_of_device_of(&self, other: &TransportId) -> bool {
        self == other || (self.is_iscsi() && other.is_iscsi() && self.name() == other.name())
    }

    fn is_iscsi(&self) -> bool {
        self.0.first().is_some_and(|byte| byte & 0x0f == ISCSI)
    }

    /// The iSCSI name, or for others the bytes behind the header.
    fn name(&self) -> &[u8] {
        let body = self.0.get(HEADER_BYTES..).unwrap_or(&[]);
        body.split(|byte| matches!(byte, 0 | b',')).next().unwrap_or(body)
    }
}

/// For people: whose port it is.
impl fmt::Display for TransportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_iscsi() {
            return write!(f, "initiator {}", String::from_utf8_lossy(self.name()));
        }
        let id = self.0.get(HEADER_BYTES + HYPERSCSI.len()..).unwrap_or_default();
        if self.0.get(HEADER_BYTES..).is_some_and(|body| body.starts_with(STATION))
            && let Some(mac) = id.first_chunk()
        {
            return write!(f, "station {}", MacAddress(*mac));
        }
        f.write_str("client ")?;
        id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TransportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransportId(")?;
        match self.0.get(HEADER_BYTES..) {
            Some(body) if self.is_iscsi() => {
                f.write_str(String::from_utf8_lossy(body).trim_end_matches('\0'))?;
            }
            _ => self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?,
        }
        f.write_str(")")
    }
}

/// The name in lower case: iSCSI names are the same in both (RFC 3722).
fn iscsi_name(name: &str) -> Result<String, IscsiNameError> {
    let is_allowed = |c: char| c != ',' && !c.is_whitespace() && !c.is_control();
    if (1..=ISCSI_NAME_MAX_BYTES).contains(&name.len()) && name.chars().all(is_allowed) {
        let name = name.to_lowercase();
        // Some letters outside ASCII grow.
        if name.len() <= ISCSI_NAME_MAX_BYTES { Ok(name) } else { Err(IscsiNameError) }
    } else {
        Err(IscsiNameError)
    }
}

/// The text that a zero ends, of a body as long as it must be (SPC-5 7.6.4.6); what follows the zero is padding.
fn iscsi_text(body: &[u8]) -> Option<&str> {
    if body.len() < LEAST_BYTES || !body.len().is_multiple_of(4) {
        return None;
    }
    let end = body.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&body[..end]).ok()
}

fn parse_isid(text: &str) -> Option<[u8; 6]> {
    if text.len() != 12 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let [_, _, isid @ ..] = u64::from_str_radix(text, 16).ok()?.to_be_bytes();
    Some(isid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: &str = "iqn.2026-11.org.example:a";
    const ISID: [u8; 6] = [0x40, 0, 0x12, 0xab, 0, 1];

    #[test]
    fn a_station_is_known_by_its_address() {
        let station = TransportId::station(MacAddress([2, 0, 0, 0, 0, 9]));
        assert_eq!(station.as_bytes()[..14], [0x0f, 0, 0, 20, b'E', b'M', b'A', b'C', 2, 0, 0, 0, 0, 9]);
        assert_eq!((TransportId::parse(station.as_bytes()), station.is_device()), (Some(station.clone()), false));
        assert_eq!(station.to_string(), "station 02:00:00:00:00:09");
        let mut longer = station.as_bytes().to_vec();
        longer[20] = 1;
        assert_eq!(TransportId::parse(&longer), None, "its spelling is one");
    }

    #[test]
    fn ports_have_the_bytes_of_the_standard() {
        let port = TransportId::iscsi_port("IQN.2026-11.org.example:A", ISID).unwrap();
        let mut expected = vec![0x45, 0, 0, 44];
        expected.extend(b"iqn.2026-11.org.example:a,i,0x400012ab0001\0\0");
        assert_eq!(port.as_bytes(), expected);
        let device = TransportId::iscsi_device("iqn.a").unwrap();
        assert_eq!(device.as_bytes(), [&[5, 0, 0, 20][..], b"iqn.a", &[0; 15]].concat(), "at least 20");
        let client = TransportId::hyperscsi(ClientId([7; 16]));
        assert_eq!(client.as_bytes(), [&[0x0f, 0, 0, 20][..], b"HSCS", &[7; 16]].concat());
        assert_eq!(format!("{device:?}"), "TransportId(iqn.a)");
        assert_eq!(port.to_string(), "initiator iqn.2026-11.org.example:a");
        assert_eq!(client.to_string(), format!("client {}", ClientId([7; 16])));
    }

    #[test]
    fn a_device_covers_its_ports() {
        let port = |name: &str| TransportId::iscsi_port(name, ISID).unwrap();
        let device = TransportId::iscsi_device(NAME).unwrap();
        assert!(device.covers(&port(NAME)) && device.covers(&device) && device.is_device());
        assert!(!device.covers(&port("iqn.2026-11.org.example:ab")) && !port(NAME).covers(&device));
        assert!(!device.covers(&TransportId::hyperscsi(ClientId([0; 16]))));
    }

    #[test]
    fn spellings_of_one_port_are_equal() {
        let text = b"Iqn.2026-11.org.example:A,i,0x400012AB0001\0junk behind\0\0";
        let mut bytes = vec![0x45, 0, 0, text.len() as u8];
        bytes.extend(text);
        assert_eq!(TransportId::parse(&bytes), TransportId::iscsi_port(NAME, ISID).ok());
    }

    #[test]
    fn what_is_cut_or_wrong_is_none() {
        let port = TransportId::iscsi_port(NAME, ISID).unwrap();
        for length in 0..port.as_bytes().len() {
            assert_eq!(TransportId::parse(&port.as_bytes()[..length]), None, "truncated to {length}");
        }
        let changed = |at: usize, byte: u8| {
            let mut bytes = port.as_bytes().to_vec();
            bytes[at] = byte;
            TransportId::parse(&bytes)
        };
        assert_eq!(changed(0, 0x46), None, "SAS");
        assert_eq!(changed(0, 0x85), None, "format 10b");
        assert_eq!(changed(0, 0x05), None, "a comma in a name");
        assert_eq!(changed(3, 43), None, "no multiple of four");
        assert_eq!(changed(2, 1), None, "longer than what is there");
        assert_eq!(changed(31, b'X'), None, "the separator");
        assert_eq!(changed(34, b'g'), None, "no hexadecimal digit");
        assert_eq!(TransportId::parse(&[&[5, 0, 0, 20][..], &[b'a'; 20]].concat()), None, "no zero");
        assert_eq!(TransportId::parse(&[&[5, 0, 0, 16][..], &[b'a'; 8], &[0; 8]].concat()), None, "too short");
        assert_eq!(TransportId::parse(&[&[5, 0, 0, 20][..], &[0; 20]].concat()), None, "no name");
        assert_eq!(TransportId::parse(&[&[0x0f, 0, 0, 20][..], &[0; 20]].concat()), None, "not ours");
        assert_eq!(TransportId::iscsi_device(&"x".repeat(224)), Err(IscsiNameError));
        assert!(TransportId::iscsi_port(&"x".repeat(223), ISID).is_ok());
    }

    proptest! {
        #[test]
        fn names_come_back(name in "[a-z0-9.:-]{1,223}", isid: [u8; 6], client: [u8; 16]) {
            for id in [
                TransportId::iscsi_port(&name, isid).unwrap(),
                TransportId::iscsi_device(&name).unwrap(),
                TransportId::hyperscsi(ClientId(client)),
            ] {
                prop_assert_eq!(id.as_bytes().len() % 4, 0);
                prop_assert_eq!(TransportId::parse(id.as_bytes()), Some(id));
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..80), first in prop::sample::select(vec![5u8, 0x45, 0x0f]),
        ) {
            let mut bytes = bytes;
            if let [code, _, high, low, ..] = &mut *bytes {
                (*code, *high, *low) = (first, 0, *low & 0x4c);
            }
            if let Some((id, rest)) = TransportId::split_first(&bytes) {
                prop_assert!(rest.len() < bytes.len());
                prop_assert_eq!(TransportId::parse(id.as_bytes()), Some(id));
            }
        }
    }
}
