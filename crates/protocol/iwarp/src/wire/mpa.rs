//! MPA: the two frames of setup (RFC 5044 7.1, RFC 6581 6 and 9), and how a ULPDU becomes an FPDU (RFC 5044 4).

use super::field::array;
use crate::fault::Fault;

const KEY_REQUEST: [u8; 16] = *b"MPA ID Req Frame";
const KEY_REPLY: [u8; 16] = *b"MPA ID Rep Frame";

/// Bytes of a frame of setup before its private data.
pub const STARTUP_BYTES: usize = 20;

/// Private data, with the four bytes of enhanced setup.
pub const PRIVATE_DATA_MAX_BYTES: usize = 512;

/// An IRD or ORD that is not negotiated (RFC 6581 9.1).
pub const DEPTH_ANY: u16 = 0x3fff;

/// The length in front of a ULPDU.
pub const LENGTH_BYTES: usize = 2;

/// The CRC behind it, which is there also where none is used.
pub const CRC_BYTES: usize = 4;

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;
/// Flag A: peer-to-peer; B: by a Send; in the other word C: by an RDMA Write; D: by an RDMA Read.
const HIGH: u16 = 0x8000;
const LOW: u16 = 0x4000;

/// Which messages of no bytes an end may send, or takes, as the first of a peer-to-peer connection (RFC 6581 5: ready to receive).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rtr {
    /// A Send; also an FPDU of no bytes.
    pub send: bool,
    /// An RDMA Write.
    pub write: bool,
    /// An RDMA Read.
    pub read: bool,
}

impl Rtr {
    /// All of them.
    pub const ALL: Rtr = Rtr { send: true, write: true, read: true };

    /// Those of both.
    pub(crate) fn both(self, other: Rtr) -> Rtr {
        Rtr { send: self.send && other.send, write: self.write && other.write, read: self.read && other.read }
    }

    /// One of them: a Write, which needs nothing of the receiver, before a Read and a Send.
    pub(crate) fn first(self) -> Option<Rtr> {
        let Rtr { send, write, read } = self;
        let only = Rtr { write, read: read && !write, send: send && !write && !read };
        (only != Rtr::default()).then_some(only)
    }
}

/// What enhanced setup has in front of the private data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Enhanced {
    /// Whether the connection is peer-to-peer.
    pub is_peer_to_peer: bool,
    /// What may be its first message.
    pub rtr: Rtr,
    /// RDMA Reads that the sender takes at a time, or [`DEPTH_ANY`].
    pub ird: u16,
    /// RDMA Reads that the sender wants under way at a time, or [`DEPTH_ANY`].
    pub ord: u16,
}

/// A frame of setup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Startup {
    /// Whether it is a reply.
    pub is_reply: bool,
    /// Whether the sender wants markers in what it receives.
    pub markers: bool,
    /// Whether the sender wants CRCs.
    pub crc: bool,
    /// Whether it refuses; of a reply only.
    pub is_rejected: bool,
    /// The revision of MPA.
    pub revision: u8,
    /// What revision 2 negotiates.
    pub enhanced: Option<Enhanced>,
    /// What the owner of the sending end says.
    pub private_data: Vec<u8>,
}

impl Startup {
    /// As it stands on the wire.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let flags = [(self.markers, MARKERS), (self.crc, CRC), (self.is_rejected, REJECT)];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, bit)| all | bit);
        let enhanced = self.enhanced.map(Enhanced::write);
        let length = self.private_data.len() + enhanced.map_or(0, |block| block.len());
        let mut bytes = if self.is_reply { KEY_REPLY } else { KEY_REQUEST }.to_vec();
        bytes.push(flags | if enhanced.is_some() { ENHANCED } else { 0 });
        bytes.push(self.revision);
        bytes.extend_from_slice(&(length as u16).to_be_bytes());
        bytes.extend_from_slice(enhanced.as_ref().map_or(&[], |block| &block[..]));
        bytes.extend_from_slice(&self.private_data);
        bytes
    }

    /// The frame at the beginning of these bytes, and how long it is; `None` as long as it is not whole.
    ///
    /// # Errors
    /// When no frame of setup begins so.
    pub fn read(bytes: &[u8], is_reply: bool) -> Result<Option<(Startup, usize)>, Fault> {
        let key = if is_reply { KEY_REPLY } else { KEY_REQUEST };
        let begun = bytes.len().min(key.len());
        if bytes[..begun] != key[..begun] {
            return Err(Fault::Startup);
        }
        let Some(head) = bytes.first_chunk::<STARTUP_BYTES>() else { return Ok(None) };
        let (flags, revision) = (head[16], head[17]);
        let length = usize::from(u16::from_be_bytes([head[18], head[19]]));
        let is_enhanced = revision >= 2 && flags & ENHANCED != 0;
        let is_long_enough = !is_enhanced || length >= 4;
        if length > PRIVATE_DATA_MAX_BYTES || !is_long_enough || (flags & REJECT != 0 && !is_reply) {
            return Err(Fault::Startup);
        }
        let end = STARTUP_BYTES + length;
        let Some(data) = bytes.get(STARTUP_BYTES..end) else { return Ok(None) };
        let enhanced = is_enhanced.then(|| Enhanced::read(array(data, 0)));
        let private_data = data[if is_enhanced { 4 } else { 0 }..].to_vec();
        let (markers, crc) = (flags & MARKERS != 0, flags & CRC != 0);
        let is_rejected = flags & REJECT != 0;
        Ok(Some((Startup { is_reply, markers, crc, is_rejected, revision, enhanced, private_data }, end)))
    }
}

impl Enhanced {
    fn write(self) -> [u8; 4] {
        let bits = |high: bool, low: bool| if high { HIGH } else { 0 } | if low { LOW } else { 0 };
        let first = bits(self.is_peer_to_peer, self.rtr.send) | self.ird & DEPTH_ANY;
        let second = bits(self.rtr.write, self.rtr.read) | self.ord & DEPTH_ANY;
        let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
        [a, b, c, d]
    }

    fn read([a, b, c, d]: [u8; 4]) -> Enhanced {
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let rtr = Rtr { send: first & LOW != 0, write: second & HIGH != 0, read: second & LOW != 0 };
        Enhanced { is_peer_to_peer: first & HIGH != 0, rtr, ird: first & DEPTH_ANY, ord: second & DEPTH_ANY }
    }
}

/// Bytes between a ULPDU and its CRC: so that length, ULPDU and these are a multiple of four.
#[must_use]
pub fn padding_bytes(ulpdu_bytes: usize) -> usize {
    (LENGTH_BYTES + ulpdu_bytes).wrapping_neg() % 4
}

/// Bytes of the FPDU of a ULPDU, without markers.
#[must_use]
pub fn fpdu_bytes(ulpdu_bytes: usize) -> usize {
    LENGTH_BYTES + ulpdu_bytes + padding_bytes(ulpdu_bytes) + CRC_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Startup {
        let rtr = Rtr { send: false, write: true, read: false };
        let enhanced = Some(Enhanced { is_peer_to_peer: true, rtr, ird: 0x123, ord: 1 });
        Startup {
            is_reply: false,
            markers: false,
            crc: true,
            is_rejected: false,
            revision: 2,
            enhanced,
            private_data: vec![0x80, 0, 0, 0],
        }
    }

    /// RFC 5044 7.1.1 and RFC 6581 6.
    #[test]
    fn a_request_stands_as_in_the_figure() {
        let mut expected = b"MPA ID Req Frame".to_vec();
        expected.extend_from_slice(&[0x50, 2, 0, 8, 0x81, 0x23, 0x80, 0x01, 0x80, 0, 0, 0]);
        assert_eq!(request().write(), expected);
        assert_eq!(Startup::read(&expected, false), Ok(Some((request(), 28))));
        let refusal = Startup { is_reply: true, is_rejected: true, crc: false, enhanced: None, ..request() };
        let bytes = refusal.write();
        assert_eq!((&bytes[..16], &bytes[16..20]), (&b"MPA ID Rep Frame"[..], &[0x20, 2, 0, 4][..]));
        assert_eq!(Startup::read(&bytes, true), Ok(Some((refusal, 24))));
    }

    #[test]
    fn a_request_is_refused_at_its_first_wrong_byte_and_awaited_to_its_last() {
        let bytes = request().write();
        for end in 0..bytes.len() {
            assert_eq!(Startup::read(&bytes[..end], false), Ok(None));
            if end < 16 {
                let mut wrong = bytes[..=end].to_vec();
                wrong[end] ^= 1;
                assert_eq!(Startup::read(&wrong, false), Err(Fault::Startup));
            }
        }
        let with = |at: usize, changed: &[u8]| {
            let mut bytes = request().write();
            bytes[at..at + changed.len()].copy_from_slice(changed);
            Startup::read(&bytes, false)
        };
        assert_eq!(with(18, &[2, 0]), Ok(None), "512 bytes");
        assert_eq!(with(18, &[2, 1]), Err(Fault::Startup), "513 bytes");
        assert_eq!(with(18, &[0, 3]), Err(Fault::Startup), "no room for IRD and ORD");
        assert_eq!(with(16, &[0x70]), Err(Fault::Startup), "a request that rejects");
    }

    #[test]
    fn private_data_may_have_512_bytes_and_no_more() {
        let startup = |count| Startup { enhanced: None, private_data: vec![7; count], ..request() };
        let whole = startup(512);
        assert_eq!(Startup::read(&whole.write(), false), Ok(Some((whole, 532))));
        assert_eq!(Startup::read(&startup(513).write(), false), Err(Fault::Startup));
    }

    #[test]
    fn the_flag_of_enhanced_setup_means_nothing_in_revision_1() {
        let mut bytes = request().write();
        bytes[17] = 1;
        let (startup, _) = Startup::read(&bytes, false).unwrap().unwrap();
        assert_eq!((startup.enhanced, startup.private_data.len()), (None, 8));
    }

    /// RFC 5044 4.1.
    #[test]
    fn an_fpdu_is_a_multiple_of_four() {
        for ulpdu in 0..=65_535 {
            assert!(fpdu_bytes(ulpdu).is_multiple_of(4) && padding_bytes(ulpdu) < 4);
        }
        assert_eq!([0, 1, 2, 3, 14, 18].map(padding_bytes), [2, 1, 0, 3, 0, 0]);
    }
}
