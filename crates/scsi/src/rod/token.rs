//! What stands for data: ROD tokens (SPC-4 5.17.6.4 and 5.17.6.5, SBC-4 4.28).

use super::rod_type;
use crate::bytes::{put, u16_at, u32_at, u64_at};
use crate::capacity::Capacity;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::vpd::{Designator, TargetPort};

/// The length of every token.
pub const TOKEN_BYTES: usize = 512;
/// How much of it nobody can guess (EXTENDED ROD TOKEN DATA).
pub const SECRET_BYTES: usize = 256;

/// ROD TOKEN LENGTH: what follows it.
const LENGTH: u16 = 0x01f8;
const IDENTIFICATION: u8 = 0xe4;
const NAA: u8 = 3;

/// Places within a token.
mod place {
    pub(super) const LENGTH: usize = 6;
    pub(super) const ID: usize = 8;
    pub(super) const CREATOR: usize = 16;
    pub(super) const REPRESENTED: usize = 48;
    pub(super) const DEVICE: usize = 96;
    pub(super) const TARGET: usize = 128;
    pub(super) const SECRET: usize = 256;
}

/// A token that is made.
#[derive(Clone, Copy, Debug)]
pub struct NewToken<'a> {
    /// Which it is, of all that this copy manager makes.
    pub id: u64,
    /// The NAA name of the unit that makes it.
    pub creator_naa: u64,
    /// How large that is.
    pub capacity: &'a Capacity,
    /// How many bytes it stands for.
    pub length_bytes: u64,
    /// The target through which it is asked for.
    pub port: &'a TargetPort,
    /// Random bytes.
    pub secret: &'a [u8; SECRET_BYTES],
}

impl NewToken<'_> {
    /// Its bytes. A target without a name, or with one that is too long for its field, is not named.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; TOKEN_BYTES] {
        let mut bytes = [0; TOKEN_BYTES];
        put(&mut bytes, 0, rod_type::CHANGE_VULNERABLE.to_be_bytes());
        put(&mut bytes, place::LENGTH, LENGTH.to_be_bytes());
        put(&mut bytes, place::ID, self.id.to_be_bytes());
        put(&mut bytes, place::CREATOR, [IDENTIFICATION, 0, 0, 0, 1, NAA, 0, 8]);
        put(&mut bytes, place::CREATOR + 8, self.creator_naa.to_be_bytes());
        let [_, block @ ..] = self.capacity.block_bytes.to_be_bytes();
        put(&mut bytes, place::CREATOR + 29, block);
        put(&mut bytes, place::REPRESENTED, u128::from(self.length_bytes).to_be_bytes());
        // READ CAPACITY (16) data without its first field (SBC-4 6.7).
        bytes[place::DEVICE..place::DEVICE + 24].copy_from_slice(&self.capacity.to_sixteen()[8..]);
        let name = self.port.device_designation().filter(|name| name.len() <= place::SECRET - place::TARGET);
        name.iter().for_each(|name| bytes[place::TARGET..place::TARGET + name.len()].copy_from_slice(name));
        put(&mut bytes, place::SECRET, *self.secret);
        bytes
    }
}

/// A token as an initiator brings it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PresentedToken {
    /// Zeroes, however many.
    Zeroes,
    /// One that some copy manager has made, or seems to have.
    Made {
        /// Which.
        id: u64,
        /// The unit that has made it.
        creator: Designator,
    },
}

impl PresentedToken {
    /// Reads it. Whether it is one that was made is not known afterwards.
    ///
    /// # Errors
    /// The sense data to answer (SPC-4 5.17.6.5.2.3).
    pub fn parse(token: &[u8; TOKEN_BYTES]) -> Result<Self, Sense> {
        let invalid = |additional| Err(Sense::new(SenseKey::IllegalRequest, additional));
        if u16_at(token, place::LENGTH) != Some(LENGTH) {
            return invalid(AdditionalSense::INVALID_TOKEN_LENGTH);
        }
        match u32_at(token, 0) {
            Some(rod_type::ZEROES) => return Ok(PresentedToken::Zeroes),
            Some(rod_type::CHANGE_VULNERABLE) => {}
            _ => return invalid(AdditionalSense::UNSUPPORTED_TOKEN_TYPE),
        }
        let descriptor = &token[place::CREATOR..place::REPRESENTED];
        match Designator::parse(&descriptor[4..28]) {
            Some((creator, _)) if descriptor[0] == IDENTIFICATION && creator.association == 0 => {
                Ok(PresentedToken::Made { id: u64_at(token, place::ID).unwrap_or(0), creator })
            }
            _ => invalid(AdditionalSense::TOKEN_CORRUPT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vpd::{Designation, TargetPort};

    const CAPACITY: Capacity = Capacity {
        blocks: 2048,
        block_bytes: 512,
        physical_block_exponent: 3,
        provisioning_management: true,
        reads_zeroes: true,
    };

    fn token(device_name: Option<&str>) -> [u8; TOKEN_BYTES] {
        let port = TargetPort { device_name: device_name.map(str::to_owned), ..TargetPort::default() };
        let secret = &[0xa5; SECRET_BYTES];
        let (capacity, port) = (&CAPACITY, &port);
        let creator_naa = 0x3000_0000_0000_0007;
        NewToken { id: 0x0102_0304_0506_0708, creator_naa, capacity, length_bytes: 0x1200, port, secret }.to_bytes()
    }

    #[test]
    fn a_token_has_the_bytes_of_the_standard() {
        let bytes = token(Some("iqn.2026-11.org.example:a"));
        assert_eq!(bytes[..16], [0, 0x80, 0, 1, 0, 0, 1, 0xf8, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[16..32], [0xe4, 0, 0, 0, 1, 3, 0, 8, 0x30, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(bytes[32..48], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(bytes[48..64], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0]);
        assert_eq!(bytes[64..96], [0; 32]);
        assert_eq!(bytes[96..108], [0, 0, 2, 0, 0, 3, 0xc0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[108..128], [0; 20]);
        assert_eq!(bytes[128..132], [3, 0x28, 0, 28], "UTF-8, the name string of a target device");
        assert_eq!(&bytes[132..160], b"iqn.2026-11.org.example:a\0\0\0");
        assert_eq!((&bytes[160..256], &bytes[256..]), (&[0; 96][..], &[0xa5; SECRET_BYTES][..]));
        let long = format!("iqn.2026-11.org.example:{}", "a".repeat(120));
        for unnamed in [token(None), token(Some(&long))] {
            assert_eq!(unnamed[128..256], [0; 128]);
        }
    }

    #[test]
    fn a_token_that_comes_back_is_told_from_others() {
        let good = token(None);
        let Ok(PresentedToken::Made { id, creator }) = PresentedToken::parse(&good) else { panic!("it is one") };
        assert_eq!(id, 0x0102_0304_0506_0708);
        assert_eq!(Designation::of(&creator), Some(Designation::Naa(0x3000_0000_0000_0007)));
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            PresentedToken::parse(&bytes).map_err(|sense| (sense.key, sense.additional))
        };
        let illegal = |additional| Err((SenseKey::IllegalRequest, additional));
        assert_eq!(with(7, 0xf7), illegal(AdditionalSense::INVALID_TOKEN_LENGTH));
        assert_eq!(with(3, 0), illegal(AdditionalSense::UNSUPPORTED_TOKEN_TYPE), "we make none of type 00800000h");
        assert_eq!(with(16, 0xe5), illegal(AdditionalSense::TOKEN_CORRUPT));
        assert_eq!(with(23, 21), illegal(AdditionalSense::TOKEN_CORRUPT), "a name beyond its descriptor");
        assert_eq!(with(21, 0x13), illegal(AdditionalSense::TOKEN_CORRUPT), "of a port");
        let mut zeroes = [0; TOKEN_BYTES];
        zeroes[..8].copy_from_slice(&[0xff, 0xff, 0, 1, 0, 0, 1, 0xf8]);
        assert_eq!(PresentedToken::parse(&zeroes), Ok(PresentedToken::Zeroes));
    }
}
