//! The header of a packet that controls a connection.
//!
//! ```text
//! offset bytes
//!      0     8  common header
//!      8     1  Operation Class
//!      9     1  0: open, followed by a CRC32C; 1: sealed with the keys of the connection (AES-256-GCM), followed by a tag
//!     10     2  Operation Code Length: bytes from byte 16 on, without CRC or tag
//!     12     4  number of the packet: of those that are sealed none comes twice in one direction
//!     16     1  Operation Code
//!     17        what belongs to it
//! ```

use crc_fast::{CrcAlgorithm, Digest};
use sanwire_security::TAG_BYTES;

use super::header::{HEADER_BYTES, Header, PacketType};
use super::{Malformed, Reader};

/// Bytes before the operation code.
pub const PCU_BYTES: usize = 16;

/// Bytes of the CRC behind an open packet.
pub const CRC_BYTES: usize = 4;

/// What a packet controls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Who is there.
    Discovery = 1,
    /// The handshake, and the release of a connection.
    Connection = 2,
    /// Acknowledgements, gaps, and how much may be sent.
    Flow = 3,
    /// How far the other end has come.
    Query = 4,
    /// Whether the other end is there.
    KeepAlive = 5,
    /// Reserved for the management of servers.
    Management = 6,
}

impl Class {
    const ALL: [Class; 6] =
        [Class::Discovery, Class::Connection, Class::Flow, Class::Query, Class::KeepAlive, Class::Management];

    fn from_code(code: u8) -> Option<Class> {
        Class::ALL.into_iter().find(|class| *class as u8 == code)
    }
}

/// The fields before the operation code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pcu {
    /// The common header.
    pub header: Header,
    /// What it is about.
    pub class: Class,
    /// Whether it is sealed with the keys of its connection.
    pub is_sealed: bool,
    /// Which packet.
    pub number: u32,
}

/// A received packet, split but not yet verified.
#[derive(Clone, Copy, Debug)]
pub struct RawPcu<'a> {
    /// The fields.
    pub pcu: Pcu,
    /// Operation code and what belongs to it, perhaps sealed.
    pub operation: &'a [u8],
    /// CRC or tag.
    pub code: &'a [u8],
    /// The header's bytes.
    pub covered: &'a [u8],
    /// All but CRC or tag.
    pub all: &'a [u8],
}

impl Pcu {
    /// The bytes before the operation code, which has this length with what belongs to it.
    #[must_use]
    pub fn write(&self, operation_bytes: usize) -> [u8; PCU_BYTES] {
        debug_assert!(operation_bytes <= usize::from(u16::MAX));
        let mut out = [0; PCU_BYTES];
        out[..8].copy_from_slice(&self.header.write());
        (out[8], out[9]) = (self.class as u8, self.is_sealed.into());
        out[10..12].copy_from_slice(&(operation_bytes as u16).to_be_bytes());
        out[12..].copy_from_slice(&self.number.to_be_bytes());
        out
    }

    /// An open packet, whole.
    #[must_use]
    pub fn open_packet(&self, operation: &[u8]) -> Vec<u8> {
        let mut out = self.write(operation.len()).to_vec();
        out.extend_from_slice(operation);
        out.extend_from_slice(&crc(&[&out]).to_be_bytes());
        out
    }

    /// The number by which it is sealed: no packet with data has it.
    #[must_use]
    pub fn nonce(&self) -> u64 {
        1 << 63 | u64::from(self.number)
    }
}

impl<'a> RawPcu<'a> {
    /// Splits a packet that is a PCU. Padding behind it is dropped.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn read(packet: &'a [u8]) -> Result<Self, Malformed> {
        let header = Header::read(packet)?;
        if header.packet_type != PacketType::Pcu {
            return Err(Malformed::Field("PType"));
        }
        let mut reader = Reader::new(packet);
        reader.bytes(HEADER_BYTES)?;
        let class = Class::from_code(reader.u8()?).ok_or(Malformed::Field("Operation Class"))?;
        let is_sealed = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed::Field("protection")),
        };
        let (length, number) = (usize::from(reader.u16()?), reader.u32()?);
        if length == 0 {
            return Err(Malformed::Field("Operation Code Length"));
        }
        let operation = reader.bytes(length)?;
        let code = reader.bytes(if is_sealed { TAG_BYTES } else { CRC_BYTES })?;
        let pcu = Pcu { header, class, is_sealed, number };
        Ok(RawPcu { pcu, operation, code, covered: &packet[..PCU_BYTES], all: &packet[..PCU_BYTES + length] })
    }

    /// Whether it is open, and its CRC holds.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.pcu.is_sealed && self.code == crc(&[self.all]).to_be_bytes()
    }
}

/// CRC32C of these bytes one after the other.
#[must_use]
pub fn crc(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::DiskType;

    fn pcu(is_sealed: bool) -> Pcu {
        let header = Header {
            from_server: false,
            error: None,
            packet_type: PacketType::Pcu,
            disk_type: DiskType::Any,
            disk_address: 1,
            server_port: 2,
            client_port: 3,
        };
        Pcu { header, class: Class::Flow, is_sealed, number: 0x0102_0304 }
    }

    #[test]
    fn each_field_has_its_bytes_and_the_operation_code_is_at_16() {
        let packet = pcu(false).open_packet(&[1, 9, 9]);
        let head = [0x10, 0, 0x20, 1, 0, 2, 0, 3, 3, 0, 0, 3, 1, 2, 3, 4];
        assert_eq!(packet[..19], [&head[..], &[1, 9, 9]].concat());
        let mut padded = packet.clone();
        padded.resize(60, 0);
        let raw = RawPcu::read(&padded).unwrap();
        assert!(raw.pcu == pcu(false) && raw.operation == [1, 9, 9] && raw.is_whole());
        for bit in 0..packet.len() * 8 {
            let mut bad = packet.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!RawPcu::read(&bad).is_ok_and(|raw| raw.is_whole()), "bit {bit}");
        }
        for length in 0..packet.len() {
            assert!(RawPcu::read(&packet[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_sealed_packet_ends_with_a_tag_and_is_never_taken_for_an_open_one() {
        let packet = [&pcu(true).write(1)[..], &[1], &[7; TAG_BYTES]].concat();
        let raw = RawPcu::read(&packet).unwrap();
        assert!(raw.pcu.is_sealed && raw.code == [7; TAG_BYTES] && !raw.is_whole());
        assert_eq!(raw.pcu.nonce(), 1 << 63 | 0x0102_0304);
    }
}
