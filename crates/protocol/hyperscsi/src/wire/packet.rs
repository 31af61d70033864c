//! What follows the header in every packet: whose it is, its number, its length and its check.
//!
//! ```text
//! offset bytes
//!      0     5  header
//!      5     1  low nibble: protection; high nibble: key epoch modulo 16, 0 with protection 0
//!      6     2  body length in bytes (Ethernet pads short frames, so a packet knows its own length)
//!      8     4  connection id; before there is one: the steering word of the client (see `setup`)
//!     12     8  number of the packet: counted for each direction of a connection, never used twice; of a handshake
//!               packet its attempt
//!     20     4  protection 0: CRC32C of bytes 0-19 and the body; on a connection with the header's code on it (see
//!               [`HeaderKey`]); else 0
//!     24        body; protected: followed by a tag of 16 bytes, with bytes 0-23 as associated data
//! ```

use crc_fast::{CrcAlgorithm, Digest};
use sanwire_buffer::Head;

pub use sanwire_core::Protection;
pub use sanwire_security::ring::{EPOCHS, Sealed};
pub use sanwire_security::{HeaderKey, TAG_BYTES};

use super::header::{HEADER_BYTES, Header};
use super::{Malformed, Reader, command};

/// Bytes before the body.
pub const PREFIX_BYTES: usize = 24;

/// Bytes of a data packet that are not data: the prefix and the fragment fields.
pub const OVERHEAD_BYTES: usize = PREFIX_BYTES + command::FRAGMENT_BYTES;

/// Bytes of the prefix that a checksum covers.
pub const COVERED_BYTES: usize = 20;

/// Bytes that a protection adds to a body.
#[must_use]
pub fn guard_bytes(protection: Protection) -> usize {
    if protection == Protection::Checksum { 0 } else { TAG_BYTES }
}

/// The fields before the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// The five-byte header.
    pub header: Header,
    /// How the packet is guarded.
    pub protection: Protection,
    /// Under which generation of keys, modulo 16; 0 with [`Protection::Checksum`].
    pub epoch: u8,
    /// Which connection.
    pub connection: u32,
    /// Which packet.
    pub number: u64,
}

impl Prefix {
    /// Splits a received packet into prefix, checksum and body. Padding behind the body is dropped.
    ///
    /// # Errors
    /// [`Malformed`] when the fields make no packet. The checksum is not verified here.
    pub fn read(packet: &[u8]) -> Result<(Prefix, u32, &[u8]), Malformed> {
        let header = Header::read(packet)?;
        let mut reader = Reader::new(&packet[HEADER_BYTES..]);
        let guard = reader.u8()?;
        let protection = Protection::from_code(guard % EPOCHS).ok_or(Malformed::Field("protection"))?;
        let epoch = guard / EPOCHS;
        if protection == Protection::Checksum && epoch != 0 {
            return Err(Malformed::Field("key epoch"));
        }
        let length = usize::from(reader.u16()?);
        let connection = reader.u32()?;
        let number = reader.u64()?;
        let checksum = reader.u32()?;
        let body = reader.rest().get(..length).ok_or(Malformed::Length)?;
        Ok((Prefix { header, protection, epoch, connection, number }, checksum, body))
    }

    /// The bytes before the body, with a checksum of 0. The body has at most 65,535 bytes.
    #[must_use]
    pub fn write(&self, body_bytes: usize) -> [u8; PREFIX_BYTES] {
        debug_assert!(body_bytes <= usize::from(u16::MAX));
        let mut out = [0; PREFIX_BYTES];
        out[..5].copy_from_slice(&self.header.write());
        out[5] = self.protection as u8 | (self.epoch % EPOCHS) << 4;
        out[6..8].copy_from_slice(&(body_bytes as u16).to_be_bytes());
        out[8..12].copy_from_slice(&self.connection.to_be_bytes());
        out[12..20].copy_from_slice(&self.number.to_be_bytes());
        out
    }
}

/// CRC32C of the covered prefix bytes and the parts of the body.
#[must_use]
pub fn checksum(covered: &[u8], body: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(covered);
    body.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

/// A received packet, split but not yet verified.
#[derive(Clone, Copy, Debug)]
pub struct RawPacket<'a> {
    /// The fields before the body.
    pub prefix: Prefix,
    /// The body, without padding.
    pub body: &'a [u8],
    checksum: u32,
    bytes: &'a [u8],
}

impl<'a> RawPacket<'a> {
    /// Splits a received packet.
    ///
    /// # Errors
    /// As [`Prefix::read`].
    pub fn read(bytes: &'a [u8]) -> Result<RawPacket<'a>, Malformed> {
        let (prefix, checksum, body) = Prefix::read(bytes)?;
        Ok(RawPacket { prefix, body, checksum, bytes })
    }

    /// Whether the packet is guarded by a checksum, and the checksum holds; `key` is that of the connection and direction,
    /// if the packet belongs to one.
    #[must_use]
    pub fn checksum_holds(&self, key: Option<&HeaderKey>) -> bool {
        let covered = &self.bytes[..COVERED_BYTES];
        self.prefix.protection == Protection::Checksum
            && checksum(covered, &[self.body]) ^ key.map_or(0, |key| header_code(key, covered, self.body))
                == self.checksum
    }

    /// A protected packet: the prefix, what follows it, and the tag over both.
    #[must_use]
    pub fn sealed(&self) -> Option<Sealed<'a>> {
        let covered_bytes = self.body.len().checked_sub(TAG_BYTES)?;
        let (body, tag) = self.body.split_at(covered_bytes);
        Some(Sealed {
            prefix: &self.bytes[..PREFIX_BYTES],
            body,
            all: &self.bytes[..PREFIX_BYTES + covered_bytes],
            tag,
        })
    }

    /// How many bytes of data are encrypted in it, if there is no message head before them: only fragment 0 has one.
    pub(crate) fn sealed_data_bytes(&self) -> Option<usize> {
        let Prefix { header, protection, .. } = self.prefix;
        let is_data_only = protection.encrypts() && header.fragment > 0;
        self.body.len().checked_sub(command::FRAGMENT_BYTES + TAG_BYTES).filter(|_| is_data_only)
    }

    /// Bytes of the packet as it came.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The code of a header: of the bytes of the prefix that a checksum covers, and of the body up to its data.
fn header_code(key: &HeaderKey, covered: &[u8], body: &[u8]) -> u32 {
    key.code([covered, &body[..command::header_bytes(body)]])
}

/// Fills in the checksum of a packet whose head starts with a written prefix and has all that is not data.
pub fn put_checksum(key: Option<&HeaderKey>, head: &mut Head, payload: &[u8]) {
    let bytes = head.as_mut_slice();
    let (covered, body) = (&bytes[..COVERED_BYTES], &bytes[PREFIX_BYTES..]);
    let sum = checksum(covered, &[body, payload]) ^ key.map_or(0, |key| header_code(key, covered, body));
    bytes[COVERED_BYTES..PREFIX_BYTES].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::{Opcode, Tag};
    use super::*;

    fn packet(key: Option<&HeaderKey>, body: &[u8]) -> Vec<u8> {
        let prefix = Prefix {
            header: Header::single(Opcode::HcbeRequest, Tag::new(7).unwrap()),
            protection: Protection::Checksum,
            epoch: 0,
            connection: 0xdead_beef,
            number: 42,
        };
        let mut head = Head::new();
        head.extend(&prefix.write(body.len()));
        let (header, data) = body.split_at(command::header_bytes(body));
        head.extend(header);
        put_checksum(key, &mut head, data);
        [&head, data].concat()
    }

    /// Fragment fields, a message head of three bytes, and data.
    fn body() -> Vec<u8> {
        let mut body = vec![0; command::FRAGMENT_BYTES];
        body[21] = 3;
        body.extend_from_slice(b"cmdsome data");
        body
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let (key, other) = (HeaderKey::new(&[5; 16]), HeaderKey::new(&[6; 16]));
        let good = packet(Some(&key), &body());
        let whole = RawPacket::read(&good).unwrap();
        assert!(whole.checksum_holds(Some(&key)));
        assert!(!whole.checksum_holds(Some(&other)), "of another connection, or the other direction");
        assert!(!whole.checksum_holds(None), "as if of no connection");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Ok(packet) = RawPacket::read(&bad) {
                assert!(!packet.checksum_holds(Some(&key)), "bit {bit}");
            }
        }
    }

    /// Who sees a packet knows the code of its header, but not that of another header.
    #[test]
    fn no_header_can_be_changed_by_who_can_compute_checksums() {
        let key = HeaderKey::new(&[5; 16]);
        let good = packet(Some(&key), &body());
        let sum = |bytes: &[u8]| checksum(&bytes[..COVERED_BYTES], &[&bytes[PREFIX_BYTES..]]);
        let code = u32::from_be_bytes(good[COVERED_BYTES..PREFIX_BYTES].try_into().unwrap()) ^ sum(&good);
        let header_end = PREFIX_BYTES + command::FRAGMENT_BYTES + 3;
        for at in (0..COVERED_BYTES).chain(PREFIX_BYTES..good.len()) {
            let mut forged = good.clone();
            forged[at] ^= 1;
            let mended = sum(&forged) ^ code;
            forged[COVERED_BYTES..PREFIX_BYTES].copy_from_slice(&mended.to_be_bytes());
            let is_taken = RawPacket::read(&forged).is_ok_and(|packet| packet.checksum_holds(Some(&key)));
            assert_eq!(is_taken, at >= header_end, "byte {at}: only data can be changed");
        }
    }

    #[test]
    fn padding_is_not_body_and_a_cut_packet_is_none() {
        let mut padded = packet(None, b"abc");
        padded.resize(60, 0);
        assert_eq!(Prefix::read(&padded).unwrap().2, b"abc");
        let whole = packet(None, b"abc");
        for length in 0..whole.len() {
            assert!(Prefix::read(&whole[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn outside_a_connection_it_is_plain_crc32c() {
        assert_eq!(checksum(b"1234", &[b"56789"]), 0xe306_9283);
    }
}
