//! The five bytes at the start of every packet, exactly as the original has them on the wire.
//!
//! ```text
//! byte   0         1         2         3         4
//!        rrrr tttt tttt tlff ffff ffff vvvv vvvv mooo oooo
//!        r reserved, sent 0   t tag (9 bits)   l last fragment   f fragment number (10 bits)
//!        v version            m masked bit     o operation code (7 bits)
//! ```

use super::Malformed;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 5;

/// The version that we send and take. The original's value is not known from any source; captures show 0.
pub const VERSION: u8 = 0;

/// How many tags there are.
pub const TAGS: u16 = 512;

/// How many fragment numbers there are.
pub const FRAGMENT_NUMBERS: u16 = 1024;

/// How many fragments a message has at the most. After number 1023 comes 1 again: 0 is the first fragment, and no other.
pub const FRAGMENTS_MAX: u16 = 4096;

/// The number of the fragment at this place of its message.
#[must_use]
pub(crate) const fn fragment_number(place: u16) -> u16 {
    if place == 0 { 0 } else { (place - 1) % (FRAGMENT_NUMBERS - 1) + 1 }
}

/// A tag: 9 bits that tie the fragments of one message together, and a reply to its request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tag(u16);

impl Tag {
    /// The tag with this number, if it is below [`TAGS`].
    #[must_use]
    pub const fn new(number: u16) -> Option<Tag> {
        if number < TAGS { Some(Tag(number)) } else { None }
    }

    /// The number, below [`TAGS`].
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// What a packet is for (HyperSCSI table 2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// A command block and its data, client to server.
    HcbeRequest = 0x00,
    /// A command's status and its data, server to client.
    HcbeReply = 0x01,
    /// Who serves? (broadcast on Ethernet, directed on IP). First step of the handshake.
    DeviceDiscovery = 0x10,
    /// Server to client: second step of the handshake, refusals, keep-alive.
    AdnRequest = 0x11,
    /// Client to server: third step of the handshake, answer to a keep-alive.
    AdnReply = 0x12,
    /// The client leaves.
    Disconnect = 0x13,
    /// Sets windows, asks what has arrived, probes the path.
    AckSnr = 0x20,
    /// What has arrived, and the answers to [`Opcode::AckSnr`].
    AckReply = 0x21,
    /// Where a server can be reached besides; another path for a connection.
    AddrReport = 0x30,
    /// The answer to [`Opcode::AddrReport`].
    AddrReply = 0x31,
    /// A request to manage the server, client to server.
    LocalRequest = 0x32,
    /// The answer to one, server to client.
    LocalReply = 0x33,
}

impl Opcode {
    /// All of them, by their codes.
    pub const ALL: [Opcode; 12] = [
        Opcode::HcbeRequest,
        Opcode::HcbeReply,
        Opcode::DeviceDiscovery,
        Opcode::AdnRequest,
        Opcode::AdnReply,
        Opcode::Disconnect,
        Opcode::AckSnr,
        Opcode::AckReply,
        Opcode::AddrReport,
        Opcode::AddrReply,
        Opcode::LocalRequest,
        Opcode::LocalReply,
    ];

    fn from_code(code: u8) -> Result<Opcode, Malformed> {
        Opcode::ALL.into_iter().find(|opcode| *opcode as u8 == code).ok_or(Malformed::Opcode(code))
    }
}

/// The header's meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Which message.
    pub tag: Tag,
    /// Whether no fragment of the message comes after this one.
    pub last: bool,
    /// The fragment's number, below [`FRAGMENT_NUMBERS`].
    pub fragment: u16,
    /// What for.
    pub opcode: Opcode,
}

impl Header {
    /// The header of a message in one packet.
    #[must_use]
    pub fn single(opcode: Opcode, tag: Tag) -> Self {
        Header { tag, last: true, fragment: 0, opcode }
    }

    /// Reads the header. The reserved bits and the masked bit of the operation code are ignored.
    ///
    /// # Errors
    /// [`Malformed`] for too few bytes, another version or an unknown operation code.
    pub fn read(bytes: &[u8]) -> Result<Header, Malformed> {
        let [b0, b1, b2, version, code] = *bytes.first_chunk::<HEADER_BYTES>().ok_or(Malformed::Truncated)?;
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        Ok(Header {
            tag: Tag((u16::from(b0 & 0x0f) << 5) | u16::from(b1 >> 3)),
            last: b1 & 0x04 != 0,
            fragment: (u16::from(b1 & 0x03) << 8) | u16::from(b2),
            opcode: Opcode::from_code(code & 0x7f)?,
        })
    }

    /// The five bytes.
    #[must_use]
    pub fn write(self) -> [u8; HEADER_BYTES] {
        debug_assert!(self.fragment < FRAGMENT_NUMBERS);
        let tag = self.tag.0;
        let last = if self.last { 0x04 } else { 0 };
        [
            (tag >> 5) as u8,
            ((tag & 0x1f) << 3) as u8 | last | (self.fragment >> 8) as u8 & 0x03,
            self.fragment as u8,
            VERSION,
            self.opcode as u8,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bits_stand_where_the_dissector_reads_them() {
        let header = Header { tag: Tag(0x1ff), last: true, fragment: 0x3ff, opcode: Opcode::AckReply };
        assert_eq!(header.write(), [0x0f, 0xff, 0xff, 0, 0x21]);
        let header = Header { tag: Tag(1), last: false, fragment: 2, opcode: Opcode::HcbeRequest };
        assert_eq!(header.write(), [0x00, 0x08, 0x02, 0, 0]);
        let header = Header { tag: Tag(0x20), last: true, fragment: 0x100, opcode: Opcode::HcbeReply };
        assert_eq!(header.write(), [0x01, 0x05, 0x00, 0, 1]);
    }

    #[test]
    fn strangers_are_refused() {
        assert_eq!(Header::read(&[0, 0, 0, 0]), Err(Malformed::Truncated));
        assert_eq!(Header::read(&[0, 0, 0, 9, 0]), Err(Malformed::Version(9)));
        assert_eq!(Header::read(&[0, 0, 0, 0, 0x02]), Err(Malformed::Opcode(2)));
    }

    proptest! {
        #[test]
        fn a_header_survives_the_wire(tag in 0..TAGS, last: bool, fragment in 0..FRAGMENT_NUMBERS, code in 0..Opcode::ALL.len()) {
            let header = Header { tag: Tag(tag), last, fragment, opcode: Opcode::ALL[code] };
            prop_assert_eq!(Header::read(&header.write()), Ok(header));
        }
    }
}
