//! The format (AoEr11): a header of ten bytes, then the argument of the command, all in network byte order.

mod address;
mod ata;
mod config;
mod lists;

pub use address::{Address, AddressError};
pub use ata::{ATA_BYTES, AtaHeader};
pub use config::{CONFIG_STRING_MAX_BYTES, Config, ConfigOrder};
pub use lists::{Directive, MaskAnswer, MaskError, MaskOrder, MaskRequest, Reserve, ReserveOrder};

use sanwire_buffer::Head;

/// The EtherType of ATA over Ethernet, registered.
pub const ETHERTYPE: u16 = 0x88a2;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 10;

/// The least payload of an Ethernet frame. Network cards fill frames up, virtual ones do not; tools that read packet sockets take a
/// shorter one for damaged.
pub const PAYLOAD_MIN_BYTES: usize = 46;

/// Bytes of a sector: the protocol knows no others.
pub const SECTOR_BYTES: usize = 512;

const VERSION: u8 = 0x10;
const RESPONSE: u8 = 0x08;
const ERROR: u8 = 0x04;

/// The commands.
pub mod command {
    /// An ATA command.
    pub const ATA: u8 = 0;
    /// Query or set the config string.
    pub const CONFIG: u8 = 1;
    /// Which stations may use it.
    pub const MASK: u8 = 2;
    /// Which stations have it for themselves.
    pub const RESERVE: u8 = 3;
}

/// Why a target does not do what a message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum WireError {
    /// There is no such command.
    UnknownCommand = 1,
    /// The argument is wrong.
    BadArgument = 2,
    /// The device is not there.
    Unavailable = 3,
    /// There is a config string already.
    ConfigPresent = 4,
    /// Another version of the protocol.
    Version = 5,
    /// Somebody else has reserved it.
    Reserved = 6,
}

/// The header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// 1 so far.
    pub version: u8,
    /// From a target.
    pub is_response: bool,
    /// Of a response: why it was not done.
    pub error: Option<u8>,
    /// Of which target.
    pub address: Address,
    /// Which command.
    pub command: u8,
    /// By which the initiator knows the response.
    pub tag: u32,
}

impl Header {
    /// A request.
    #[must_use]
    pub fn request(address: Address, command: u8, tag: u32) -> Header {
        Header { version: 1, is_response: false, error: None, address, command, tag }
    }

    /// The response of this target to a request.
    #[must_use]
    pub fn response(&self, address: Address) -> Header {
        Header { version: 1, is_response: true, error: None, address, ..*self }
    }

    /// The same, as a refusal.
    #[must_use]
    pub fn refused(self, error: WireError) -> Header {
        Header { error: Some(error as u8), ..self }
    }

    /// The header of a message, and what follows it.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Header, &[u8])> {
        let (header, argument) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [flags, error, shelf_high, shelf_low, slot, command, tag @ ..] = *header;
        let shelf = u16::from_be_bytes([shelf_high, shelf_low]);
        let header = Header {
            version: flags >> 4,
            is_response: flags & RESPONSE != 0,
            error: (flags & ERROR != 0).then_some(error),
            address: Address { shelf, slot },
            command,
            tag: u32::from_be_bytes(tag),
        };
        Some((header, argument))
    }

    /// The header as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = VERSION | flag(self.is_response, RESPONSE) | flag(self.error.is_some(), ERROR);
        let [shelf_high, shelf_low] = self.address.shelf.to_be_bytes();
        let [a, b, c, d] = self.tag.to_be_bytes();
        [flags, self.error.unwrap_or(0), shelf_high, shelf_low, self.address.slot, self.command, a, b, c, d]
    }
}

/// The first bytes of a message: its header and its argument, filled up if nothing follows that makes it long enough.
#[must_use]
pub fn head(header: &Header, argument: &[u8], payload_bytes: usize) -> Head {
    let mut head = Head::new();
    head.extend(&header.to_bytes());
    head.extend(argument);
    let missing = PAYLOAD_MIN_BYTES.saturating_sub(head.len() + payload_bytes);
    if payload_bytes == 0 {
        head.extend(&[0; PAYLOAD_MIN_BYTES][..missing]);
    }
    head
}

/// How many sectors go in one message over a link that takes packets of so many bytes; the count has eight bits. Other implementations
/// count the Ethernet header among these bytes, and drop messages with more sectors.
#[must_use]
pub fn sectors_of(packet_max_bytes: usize) -> u8 {
    const ETHERNET_HEADER_BYTES: usize = 14;
    let headers = ETHERNET_HEADER_BYTES + HEADER_BYTES + ATA_BYTES;
    let sectors = packet_max_bytes.saturating_sub(headers) / SECTOR_BYTES;
    sectors.min(255) as u8
}

// So an answer without data is always filled up.
const _: () = assert!(HEADER_BYTES + ATA_BYTES < PAYLOAD_MIN_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_bytes_of_the_specification() {
        let request = Header::request(Address { shelf: 0x0102, slot: 3 }, command::CONFIG, 0x8000_0405);
        assert_eq!(request.to_bytes(), [0x10, 0, 1, 2, 3, 1, 0x80, 0, 4, 5]);
        let refused = request.response(Address { shelf: 7, slot: 8 }).refused(WireError::Version);
        assert_eq!(refused.to_bytes(), [0x1c, 5, 0, 7, 8, 1, 0x80, 0, 4, 5]);
        for header in [request, refused] {
            assert_eq!(Header::parse(&header.to_bytes()), Some((header, &[][..])));
        }
        assert_eq!(Header::parse(&request.to_bytes()[..9]), None);
    }

    #[test]
    fn short_messages_are_filled_up() {
        let header = Header::request(Address::EVERY, command::ATA, 1);
        assert_eq!(head(&header, &[1; 12], 0).len(), PAYLOAD_MIN_BYTES);
        assert_eq!(head(&header, &[1; 12], 512).len(), 22, "its data is behind it");
        assert_eq!(head(&header, &[1; 300], 0).len(), 310);
    }

    #[test]
    fn a_link_takes_whole_sectors() {
        let sectors = [0, 35, 547, 548, 1500, 4131, 4132, 9000, 65_535, 1 << 20].map(sectors_of);
        assert_eq!(sectors, [0, 0, 0, 1, 2, 7, 8, 17, 127, 255]);
    }
}
