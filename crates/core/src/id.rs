//! Identifiers that more than one room speaks of.

use std::fmt;
use std::str::FromStr;

/// A logical unit number, as the number that users see (0, 1, 2, ...).
///
/// On wires it takes the eight-byte form of SAM-5 4.7: peripheral device addressing below 256, flat space
/// addressing from 256 to 16,383.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lun(u16);

impl Lun {
    /// The highest number that flat space addressing carries (SAM-5 4.7.7.3: 14 bits).
    pub const MAX: u16 = 0x3fff;

    /// The logical unit with this number, if the number fits in 14 bits.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number <= Self::MAX { Some(Lun(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The eight bytes that stand for this number on a wire (SAM-5 4.7).
    #[must_use]
    pub const fn to_wire(self) -> [u8; 8] {
        let method = if self.0 < 256 { 0 } else { 0x40 };
        [method | (self.0 >> 8) as u8, self.0 as u8, 0, 0, 0, 0, 0, 0]
    }

    /// Reads the eight wire bytes; `None` for several levels, extended addressing or the well-known units.
    #[must_use]
    pub fn from_wire(bytes: [u8; 8]) -> Option<Self> {
        if bytes[2..] != [0; 6] {
            return None;
        }
        match bytes[0] >> 6 {
            0 if bytes[0] == 0 => Some(Lun(u16::from(bytes[1]))),
            1 => Some(Lun(u16::from_be_bytes([bytes[0] & 0x3f, bytes[1]]))),
            _ => None,
        }
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One initiator port as a device sees it: the I_T nexus of SAM-5.
///
/// The target gives each session its own number and never uses a number again while it runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NexusId(pub u64);

/// Who a client is, on every wire and whatever its address: 16 bytes, derived from its static public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub [u8; 16]);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({self})")
    }
}

/// The text was not 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseClientIdError;

impl fmt::Display for ParseClientIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a client id is 32 hexadecimal digits")
    }
}

impl std::error::Error for ParseClientIdError {}

impl FromStr for ClientId {
    type Err = ParseClientIdError;

    fn from_str(text: &str) -> Result<Self, ParseClientIdError> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(ParseClientIdError);
        }
        u128::from_str_radix(text, 16).map(|id| ClientId(id.to_be_bytes())).map_err(|_| ParseClientIdError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lun_survives_its_wire_form() {
        for number in [0, 1, 255, 256, 257, Lun::MAX] {
            let lun = Lun::new(number).unwrap();
            assert_eq!(Lun::from_wire(lun.to_wire()), Some(lun));
        }
        assert_eq!(Lun::new(Lun::MAX + 1), None);
        assert_eq!(Lun::from_wire([0xc1, 1, 0, 0, 0, 0, 0, 0]), None, "well-known logical unit");
        assert_eq!(Lun::from_wire([0, 1, 0, 2, 0, 0, 0, 0]), None, "two levels");
    }

    #[test]
    fn client_id_survives_its_text() {
        let id = ClientId(*b"0123456789abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("12".parse::<ClientId>(), Err(ParseClientIdError));
        assert_eq!("+1".repeat(16).parse::<ClientId>(), Err(ParseClientIdError));
    }
}
