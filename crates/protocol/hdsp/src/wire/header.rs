//! The common header of every packet.
//!
//! ```text
//! offset bytes
//!      0     1  high nibble: version (1); low nibble: R (8), E (4), two reserved bits (0)
//!      1     1  Error: with E why the server does not serve, else 0
//!      2     1  high nibble PType: 1 PDU, 2 PCU; low nibble DType: 0 any, 1 ATA, 2 SATA, 3 SCSI
//!      3     1  Disk Address
//!      4     2  Server Port
//!      6     2  Client Port
//! ```

use super::{Malformed, Reader};

/// The version that is spoken here.
pub const VERSION: u8 = 1;

/// Bytes of the common header.
pub const HEADER_BYTES: usize = 8;

const R: u8 = 0x8;
const E: u8 = 0x4;
const RESERVED: u8 = 0x3;

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketType {
    /// It carries a piece of a command or of an answer.
    Pdu = 1,
    /// It controls the connection.
    Pcu = 2,
}

/// What a disk is, by the commands that it takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DiskType {
    /// Whichever it is: before both ends have agreed on a disk.
    #[default]
    Any = 0,
    /// Commands of ATA.
    Ata = 1,
    /// Commands of ATA as well; the disk is said to be one of SATA.
    Sata = 2,
    /// Commands of SCSI.
    Scsi = 3,
}

impl DiskType {
    /// The type with this number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        [DiskType::Any, DiskType::Ata, DiskType::Sata, DiskType::Scsi].get(usize::from(code)).copied()
    }
}

/// Why a server does not serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorCode {
    /// The client may use no disk of this name or address.
    NoSuchDisk = 1,
    /// The disk does not take commands of the type that was asked for.
    DiskType = 2,
    /// The server has no place for another session.
    Full = 3,
    /// There is no such connection (any more).
    UnknownConnection = 4,
    /// The password is another one.
    NotAuthentic = 5,
    /// What one end demands the other does not take.
    Parameters = 6,
    /// The server goes away.
    Closing = 7,
}

impl ErrorCode {
    const ALL: [ErrorCode; 7] = [
        ErrorCode::NoSuchDisk,
        ErrorCode::DiskType,
        ErrorCode::Full,
        ErrorCode::UnknownConnection,
        ErrorCode::NotAuthentic,
        ErrorCode::Parameters,
        ErrorCode::Closing,
    ];

    /// The reason with this number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        ErrorCode::ALL.into_iter().find(|reason| *reason as u8 == code)
    }
}

/// The fields of the common header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// R: the server has sent it; only clients take it then, and else only servers.
    pub from_server: bool,
    /// E and Error.
    pub error: Option<ErrorCode>,
    /// What follows.
    pub packet_type: PacketType,
    /// Of which disk.
    pub disk_type: DiskType,
    /// Which disk of the server.
    pub disk_address: u8,
    /// The server's end of the connection; 0 before there is one.
    pub server_port: u16,
    /// The client's end.
    pub client_port: u16,
}

impl Header {
    /// Reads the first bytes of a packet.
    ///
    /// # Errors
    /// [`Malformed`] when they are no header.
    pub fn read(packet: &[u8]) -> Result<Header, Malformed> {
        let mut reader = Reader::new(packet);
        let [version, error, types, disk_address] = reader.array()?;
        if version >> 4 != VERSION {
            return Err(Malformed::Version(version >> 4));
        }
        if version & RESERVED != 0 {
            return Err(Malformed::Field("flags"));
        }
        let error = match (version & E != 0, error) {
            (false, 0) => None,
            (false, _) => return Err(Malformed::Field("error")),
            (true, code) => Some(ErrorCode::from_code(code).ok_or(Malformed::Field("error"))?),
        };
        let packet_type = match types >> 4 {
            1 => PacketType::Pdu,
            2 => PacketType::Pcu,
            _ => return Err(Malformed::Field("PType")),
        };
        let disk_type = DiskType::from_code(types & 0xf).ok_or(Malformed::Field("DType"))?;
        let (server_port, client_port) = (reader.u16()?, reader.u16()?);
        let from_server = version & R != 0;
        Ok(Header { from_server, error, packet_type, disk_type, disk_address, server_port, client_port })
    }

    /// The bytes.
    #[must_use]
    pub fn write(&self) -> [u8; HEADER_BYTES] {
        let flags = if self.from_server { R } else { 0 } | if self.error.is_some() { E } else { 0 };
        let [s0, s1] = self.server_port.to_be_bytes();
        let [c0, c1] = self.client_port.to_be_bytes();
        let types = (self.packet_type as u8) << 4 | self.disk_type as u8;
        [VERSION << 4 | flags, self.error.map_or(0, |code| code as u8), types, self.disk_address, s0, s1, c0, c1]
    }

    /// The number of the connection, as the handshake binds it.
    #[must_use]
    pub fn connection(&self) -> u32 {
        u32::from(self.server_port) << 16 | u32::from(self.client_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_its_bytes() {
        let header = Header {
            from_server: true,
            error: Some(ErrorCode::UnknownConnection),
            packet_type: PacketType::Pcu,
            disk_type: DiskType::Scsi,
            disk_address: 0xab,
            server_port: 0x0102,
            client_port: 0x0304,
        };
        assert_eq!(header.write(), [0x1c, 4, 0x23, 0xab, 1, 2, 3, 4]);
        assert_eq!(Header::read(&header.write()), Ok(header));
        assert_eq!(header.connection(), 0x0102_0304);
        let request = Header { from_server: false, error: None, packet_type: PacketType::Pdu, ..header };
        assert_eq!(request.write(), [0x10, 0, 0x13, 0xab, 1, 2, 3, 4]);
    }

    #[test]
    fn every_first_half_that_is_read_is_written_again_and_what_is_reserved_is_refused() {
        for first in 0..=u16::MAX {
            for types in [0x10, 0x11, 0x12, 0x13, 0x20, 0x23, 0x14, 0x00, 0x30] {
                let [version, error] = first.to_be_bytes();
                let bytes = [version, error, types, 9, 1, 2, 3, 4];
                match Header::read(&bytes) {
                    Ok(header) => assert_eq!(header.write(), bytes),
                    Err(_) => assert!(
                        version >> 4 != 1
                            || version & 3 != 0
                            || (version & 4 == 0) != (error == 0)
                            || error > 7
                            || !matches!(types, 0x10..=0x13 | 0x20..=0x23),
                        "{bytes:?}"
                    ),
                }
            }
        }
        for length in 0..HEADER_BYTES {
            assert_eq!(Header::read(&[0x10, 0, 0x11, 0, 0, 0, 0, 0][..length]), Err(Malformed::Truncated));
        }
    }
}
