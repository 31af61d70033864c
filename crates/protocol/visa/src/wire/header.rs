//! The header that every packet begins with.
//!
//! ```text
//! offset bytes
//!      0     1  magic, 0x56: 'V'
//!      1     1  high nibble: version, 1; low nibble: kind
//!      2     1  flags: bit 0 first of its message, bit 1 last, bit 2 from the device, bit 3 to be acknowledged at once
//!      3     1  guarding: 0-4 protection, 15 none
//!      4     2  tag: which command of the connection, in data packets
//!      6     2  bytes of payload
//!      8     4  connection; before there is one: the first four bytes of the client's id
//!     12     4  sequence: which data packet of its direction; of other sealed packets: which of those
//!     16     4  where the payload begins in its message
//!     20     4  check: see `guarding`
//!     24        payload, and with protections 1 to 4 a tag of 16 bytes
//! ```

use std::cmp::Ordering;

use crc_fast::{CrcAlgorithm, Digest};
use sanwire_core::Protection;
use sanwire_security::TAG_BYTES;

use super::{Malformed, Reader};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 24;

/// The part of it that a check covers: all before the check.
pub const COVERED_BYTES: usize = 20;

const MAGIC: u8 = b'V';
const VERSION: u8 = 1;

const FIRST: u8 = 1;
const LAST: u8 = 2;
const FROM_DEVICE: u8 = 4;
const ACK_NOW: u8 = 8;

/// The code of [`Guarding::None`].
const NONE: u8 = 15;

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A client wants a connection, or to know who is there.
    Connect = 0,
    /// The answer to it.
    Accept = 1,
    /// The client proves who it is.
    Confirm = 2,
    /// A part of a command or of an answer.
    Data = 3,
    /// What has arrived.
    Ack = 4,
    /// Something is missing: what was sent from there on is to be sent again.
    Nak = 5,
    /// Is the other end there?
    Ping = 6,
    /// The end of a connection.
    Close = 7,
    /// On what terms a connection is; the client's part says for which commands it waits.
    Agree = 8,
}

impl Kind {
    /// All of them, by their codes.
    pub const ALL: [Kind; 9] = [
        Kind::Connect,
        Kind::Accept,
        Kind::Confirm,
        Kind::Data,
        Kind::Ack,
        Kind::Nak,
        Kind::Ping,
        Kind::Close,
        Kind::Agree,
    ];

    /// Whether it is of the handshake, before there are keys.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Kind::Connect | Kind::Accept | Kind::Confirm)
    }
}

/// How a packet is guarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guarding {
    /// Not at all: what comes is believed. Only where both ends were asked for it.
    None,
    /// By this.
    By(Protection),
}

impl Guarding {
    fn read(code: u8) -> Option<Guarding> {
        if code == NONE { Some(Guarding::None) } else { Protection::from_code(code).map(Guarding::By) }
    }

    fn code(self) -> u8 {
        match self {
            Guarding::None => NONE,
            Guarding::By(protection) => protection as u8,
        }
    }

    /// The protection that it amounts to: none is no more than a checksum.
    #[must_use]
    pub fn protection(self) -> Protection {
        match self {
            Guarding::None => Protection::Checksum,
            Guarding::By(protection) => protection,
        }
    }

    /// Bytes behind the payload.
    #[must_use]
    pub fn tag_bytes(self) -> usize {
        match self {
            Guarding::None | Guarding::By(Protection::Checksum) => 0,
            Guarding::By(_) => TAG_BYTES,
        }
    }
}

/// The fields of a header but its check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the packet is.
    pub kind: Kind,
    /// It begins a message.
    pub first: bool,
    /// It ends one.
    pub last: bool,
    /// The server has sent it.
    pub from_device: bool,
    /// Its sender waits for an acknowledgement.
    pub ack_now: bool,
    /// How it is guarded.
    pub guarding: Guarding,
    /// Which command of the connection.
    pub tag: u16,
    /// Bytes of payload.
    pub payload_bytes: u16,
    /// Which connection.
    pub connection: u32,
    /// Which packet.
    pub sequence: u32,
    /// Where the payload begins in its message, in bytes.
    pub offset: u32,
}

impl Header {
    /// One of a packet that is no part of a message.
    #[must_use]
    pub fn single(kind: Kind, from_device: bool, connection: u32) -> Header {
        Header {
            kind,
            first: false,
            last: false,
            from_device,
            ack_now: false,
            guarding: Guarding::By(if kind.is_open() { Protection::Checksum } else { Protection::STRONGEST }),
            tag: 0,
            payload_bytes: 0,
            connection,
            sequence: 0,
            offset: 0,
        }
    }

    /// The bytes, with this check.
    #[must_use]
    pub fn write(&self, check: u32) -> [u8; HEADER_BYTES] {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let mut out = [0; HEADER_BYTES];
        out[0] = MAGIC;
        out[1] = VERSION << 4 | self.kind as u8;
        out[2] = flag(self.first, FIRST)
            | flag(self.last, LAST)
            | flag(self.from_device, FROM_DEVICE)
            | flag(self.ack_now, ACK_NOW);
        out[3] = self.guarding.code();
        out[4..6].copy_from_slice(&self.tag.to_be_bytes());
        out[6..8].copy_from_slice(&self.payload_bytes.to_be_bytes());
        out[8..12].copy_from_slice(&self.connection.to_be_bytes());
        out[12..16].copy_from_slice(&self.sequence.to_be_bytes());
        out[16..20].copy_from_slice(&self.offset.to_be_bytes());
        out[20..].copy_from_slice(&check.to_be_bytes());
        out
    }
}

/// A received packet, whose check is not looked at yet.
#[derive(Clone, Copy, Debug)]
pub struct RawPacket<'a> {
    /// Its header.
    pub header: Header,
    /// The header as it came.
    pub header_bytes: &'a [u8; HEADER_BYTES],
    /// The check in it.
    pub check: u32,
    /// What follows it: in plain, or sealed.
    pub payload: &'a [u8],
    /// The tag behind that.
    pub tag: &'a [u8],
    /// Header and payload.
    pub all: &'a [u8],
}

impl<'a> RawPacket<'a> {
    /// Splits a packet.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn read(bytes: &'a [u8]) -> Result<RawPacket<'a>, Malformed> {
        let (header_bytes, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed::Truncated)?;
        let mut reader = Reader::new(header_bytes);
        if reader.u8()? != MAGIC {
            return Err(Malformed::Field("magic"));
        }
        let version_and_kind = reader.u8()?;
        if version_and_kind >> 4 != VERSION {
            return Err(Malformed::Version(version_and_kind >> 4));
        }
        let kind = usize::from(version_and_kind & 0xf);
        let kind = *Kind::ALL.get(kind).ok_or(Malformed::Field("kind"))?;
        let flags = reader.u8()?;
        let guarding = Guarding::read(reader.u8()?).ok_or(Malformed::Field("guarding"))?;
        let header = Header {
            kind,
            first: flags & FIRST != 0,
            last: flags & LAST != 0,
            from_device: flags & FROM_DEVICE != 0,
            ack_now: flags & ACK_NOW != 0,
            guarding,
            tag: reader.u16()?,
            payload_bytes: reader.u16()?,
            connection: reader.u32()?,
            sequence: reader.u32()?,
            offset: reader.u32()?,
        };
        let check = reader.u32()?;
        let must_be = Header::single(kind, header.from_device, 0).guarding;
        if kind != Kind::Data && guarding != must_be {
            return Err(Malformed::Field("guarding"));
        }
        let payload_bytes = usize::from(header.payload_bytes);
        let payload = rest.get(..payload_bytes).ok_or(Malformed::Truncated)?;
        let tag = &rest[payload_bytes..];
        match tag.len().cmp(&guarding.tag_bytes()) {
            Ordering::Less => return Err(Malformed::Truncated),
            Ordering::Equal => {}
            Ordering::Greater => return Err(Malformed::Field("bytes of payload")),
        }
        let all = &bytes[..HEADER_BYTES + payload_bytes];
        Ok(RawPacket { header, header_bytes, check, payload, tag, all })
    }

    /// Whether the check of an open packet holds.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.check == crc(&[&self.header_bytes[..COVERED_BYTES], self.payload])
    }
}

/// CRC32C of these bytes.
#[must_use]
pub fn crc(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

/// An open packet.
#[must_use]
pub fn open_packet(kind: Kind, from_device: bool, connection: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header { payload_bytes: payload.len() as u16, ..Header::single(kind, from_device, connection) };
    let check = crc(&[&header.write(0)[..COVERED_BYTES], payload]);
    [&header.write(check)[..], payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_the_wire() {
        for kind in Kind::ALL {
            for bits in 0..16u8 {
                let header = Header {
                    first: bits & 1 != 0,
                    last: bits & 2 != 0,
                    ack_now: bits & 8 != 0,
                    tag: 0x1234,
                    payload_bytes: 5,
                    sequence: 0x9abc_def0,
                    offset: 77,
                    ..Header::single(kind, bits & 4 != 0, 0x5678_9abc)
                };
                let tag = vec![0; header.guarding.tag_bytes()];
                let packet = [&header.write(9)[..], b"hello", &tag].concat();
                let raw = RawPacket::read(&packet).unwrap();
                assert_eq!((raw.header, raw.check, raw.payload), (header, 9, &b"hello"[..]));
                assert_eq!(raw.tag.len(), if kind.is_open() { 0 } else { TAG_BYTES });
            }
        }
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        let good = open_packet(Kind::Connect, false, 1, &[7; 30]);
        assert!(RawPacket::read(&good).unwrap().is_whole());
        for (at, value, what) in [
            (0, b'W', Malformed::Field("magic")),
            (1, 0x23, Malformed::Version(2)),
            (1, 0x1f, Malformed::Field("kind")),
            (3, 9, Malformed::Field("guarding")),
            (3, 2, Malformed::Field("guarding")),
            (7, 200, Malformed::Truncated),
            (7, 29, Malformed::Field("bytes of payload")),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(RawPacket::read(&bad).unwrap_err(), what, "{at}");
        }
        for length in 0..good.len() {
            assert!(RawPacket::read(&good[..length]).is_err());
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(RawPacket::read(&bad).is_err() || !RawPacket::read(&bad).unwrap().is_whole(), "{at}");
        }
    }
}
