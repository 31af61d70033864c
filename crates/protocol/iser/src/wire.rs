//! Wire formats (RFC 7145 9): big-endian.

use sanwire_iwarp::Stag;

/// Bytes of the header in front of every PDU.
pub const HEADER_BYTES: usize = 28;

/// Bytes of the header of RFC 5046, which RFC 7145 has replaced: it has no offsets.
pub const SHORT_HEADER_BYTES: usize = 12;

/// The version of the protocol that RFC 7145 describes (9.3), which Hello and HelloReply speak of.
pub const VERSION: u8 = 10;

const CONTROL: u8 = 0x1;
const HELLO: u8 = 0x2;
const HELLO_REPLY: u8 = 0x3;

/// The keys in a control header are valid: that of memory to be read by the target, and to be written to.
const WRITE_VALID: u8 = 0x08;
const READ_VALID: u8 = 0x04;

/// HelloReply: the target does not take the initiator.
const REJECTED: u8 = 0x01;

/// Memory that an initiator has opened to its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Its key.
    pub stag: Stag,
    /// Where it begins, as the initiator counts.
    pub offset: u64,
}

/// Which headers both ends of a connection put in front of their PDUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HeaderForm {
    /// That of RFC 7145, which Linux has.
    #[default]
    Rfc7145,
    /// That of RFC 5046 (9.2 to 9.4): memory begins at offset 0.
    Rfc5046,
}

impl HeaderForm {
    /// How long such a header is.
    #[must_use]
    pub fn length_bytes(self) -> usize {
        match self {
            HeaderForm::Rfc7145 => HEADER_BYTES,
            HeaderForm::Rfc5046 => SHORT_HEADER_BYTES,
        }
    }
}

/// What stands in front of a PDU, or alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IserHeader {
    /// A PDU follows (RFC 7145 9.2).
    Control {
        /// Where the target may read what of a command's data does not come unasked.
        write: Option<Window>,
        /// Where it may write the data that a command asks for.
        read: Option<Window>,
    },
    /// The first message of an initiator that wants it so (9.3).
    Hello {
        /// The highest and the lowest version that it speaks.
        versions: (u8, u8),
        /// RDMA Reads that it takes at a time.
        ird: u16,
    },
    /// The answer to that (9.4).
    HelloReply {
        /// The target cannot do it.
        is_rejected: bool,
        /// The highest version that it speaks, and the one that holds.
        versions: (u8, u8),
        /// RDMA Reads that it will have under way at a time.
        ord: u16,
    },
}

impl IserHeader {
    /// In front of a PDU that opens no memory.
    pub const PLAIN: IserHeader = IserHeader::Control { write: None, read: None };

    /// Reads it; `None` for what is no header.
    #[must_use]
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Option<IserHeader> {
        let window = |at: usize, is_valid: bool| {
            is_valid.then(|| Window {
                stag: Stag(u32::from_be_bytes(array(bytes, at))),
                offset: u64::from_be_bytes(array(bytes, at + 4)),
            })
        };
        let nibbles = (bytes[1] >> 4, bytes[1] & 0xf);
        let depth = u16::from_be_bytes([bytes[2], bytes[3]]);
        match bytes[0] >> 4 {
            CONTROL => Some(IserHeader::Control {
                write: window(4, bytes[0] & WRITE_VALID != 0),
                read: window(16, bytes[0] & READ_VALID != 0),
            }),
            HELLO => Some(IserHeader::Hello { versions: nibbles, ird: depth }),
            HELLO_REPLY => {
                let is_rejected = bytes[0] & REJECTED != 0;
                Some(IserHeader::HelloReply { is_rejected, versions: nibbles, ord: depth })
            }
            _ => None,
        }
    }

    /// Writes it.
    #[must_use]
    pub fn write(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        match *self {
            IserHeader::Control { write, read } => {
                bytes[0] = CONTROL << 4;
                for (window, flag, at) in [(write, WRITE_VALID, 4), (read, READ_VALID, 16)] {
                    let Some(Window { stag, offset }) = window else { continue };
                    bytes[0] |= flag;
                    bytes[at..at + 4].copy_from_slice(&stag.0.to_be_bytes());
                    bytes[at + 4..at + 12].copy_from_slice(&offset.to_be_bytes());
                }
            }
            IserHeader::Hello { versions, ird } => {
                bytes[0] = HELLO << 4;
                set_versions(&mut bytes, versions, ird);
            }
            IserHeader::HelloReply { is_rejected, versions, ord } => {
                bytes[0] = HELLO_REPLY << 4 | if is_rejected { REJECTED } else { 0 };
                set_versions(&mut bytes, versions, ord);
            }
        }
        bytes
    }
}

impl IserHeader {
    /// Reads that of RFC 5046; `None` for what is no header.
    #[must_use]
    pub fn read_short(bytes: &[u8; SHORT_HEADER_BYTES]) -> Option<IserHeader> {
        let mut long = [0; HEADER_BYTES];
        long[..8].copy_from_slice(&bytes[..8]);
        long[16..20].copy_from_slice(&bytes[8..]);
        IserHeader::read(&long)
    }

    /// Writes that of RFC 5046, which says nothing of offsets.
    #[must_use]
    pub fn write_short(&self) -> [u8; SHORT_HEADER_BYTES] {
        let long = self.write();
        let mut bytes = [0; SHORT_HEADER_BYTES];
        bytes[..8].copy_from_slice(&long[..8]);
        bytes[8..].copy_from_slice(&long[16..20]);
        bytes
    }
}

fn set_versions(bytes: &mut [u8; HEADER_BYTES], (high, low): (u8, u8), depth: u16) {
    bytes[1] = high << 4 | low & 0xf;
    bytes[2..4].copy_from_slice(&depth.to_be_bytes());
}

fn array<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}

/// What both ends say of themselves when a connection is set up: the private data of the connection manager, four bytes of flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetUp {
    /// Memory is not counted from zero, but from an address of its owner's choice (ZBVA is not used).
    pub has_addresses: bool,
    /// The key of a command's memory does not end with the command's answer (Send with Invalidate is not used).
    pub lacks_invalidation: bool,
}

impl SetUp {
    const HAS_ADDRESSES: u8 = 0x80;
    const LACKS_INVALIDATION: u8 = 0x40;

    /// Reads the first byte, which is all that counts: some carriers append zeros. One who says nothing has nothing.
    #[must_use]
    pub fn read(private_data: &[u8]) -> SetUp {
        let flags = private_data.first().copied().unwrap_or(Self::HAS_ADDRESSES | Self::LACKS_INVALIDATION);
        SetUp {
            has_addresses: flags & Self::HAS_ADDRESSES != 0,
            lacks_invalidation: flags & Self::LACKS_INVALIDATION != 0,
        }
    }

    /// Writes it.
    #[must_use]
    pub fn write(self) -> [u8; 4] {
        let addresses = if self.has_addresses { Self::HAS_ADDRESSES } else { 0 };
        [addresses | if self.lacks_invalidation { Self::LACKS_INVALIDATION } else { 0 }, 0, 0, 0]
    }
}

/// Of the last of the four bytes, which no standard uses.
const LONG_FPDUS: u8 = 0x01;

/// What both ends say of themselves when a connection is set up, from one that takes FPDUs longer than segments of TCP: those of ours do.
#[must_use]
pub fn with_long_fpdus(mut private_data: [u8; 4]) -> [u8; 4] {
    private_data[3] |= LONG_FPDUS;
    private_data
}

/// Whether somebody says so.
#[must_use]
pub fn takes_long_fpdus(private_data: &[u8]) -> bool {
    private_data.get(3).is_some_and(|byte| byte & LONG_FPDUS != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_control_header_is_that_of_linux() {
        let write = Window { stag: Stag(0x0102_0304), offset: 0x1112_1314_1516_1718 };
        let read = Window { stag: Stag(0x2122_2324), offset: 0x3132_3334_3536_3738 };
        let bytes = IserHeader::Control { write: Some(write), read: Some(read) }.write();
        let expected = [
            0x1c, 0, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0x31,
            0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38,
        ];
        assert_eq!(bytes, expected);
        let only_read = IserHeader::Control { write: None, read: Some(read) }.write();
        assert_eq!((only_read[0], &only_read[4..16]), (0x14, &[0; 12][..]));
        assert_eq!(IserHeader::PLAIN.write()[0], 0x10);
    }

    /// RFC 5046 9.2 to 9.4: the same fields, without offsets.
    #[test]
    fn a_header_of_rfc_5046_has_twelve_bytes() {
        let window = |stag| Some(Window { stag: Stag(stag), offset: 0 });
        let control = IserHeader::Control { write: window(0x0102_0304), read: window(0x2122_2324) };
        assert_eq!(control.write_short(), [0x1c, 0, 0, 0, 1, 2, 3, 4, 0x21, 0x22, 0x23, 0x24]);
        assert_eq!(IserHeader::PLAIN.write_short(), [0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let hello = IserHeader::Hello { versions: (10, 1), ird: 0x1234 };
        assert_eq!(hello.write_short(), [0x20, 0xa1, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0]);
        for header in [control, hello, IserHeader::HelloReply { is_rejected: true, versions: (10, 10), ord: 7 }] {
            assert_eq!(IserHeader::read_short(&header.write_short()), Some(header));
        }
        assert_eq!(IserHeader::read_short(&[0; SHORT_HEADER_BYTES]), None);
        assert_eq!([HeaderForm::Rfc7145, HeaderForm::Rfc5046].map(HeaderForm::length_bytes), [28, 12]);
    }

    #[test]
    fn what_is_said_at_the_set_up_is_one_byte_of_four() {
        let normal = SetUp { has_addresses: true, lacks_invalidation: false };
        assert_eq!((normal.write(), SetUp::read(&[0x80, 0, 0, 0])), ([0x80, 0, 0, 0], normal));
        let nothing = SetUp { has_addresses: true, lacks_invalidation: true };
        assert_eq!((SetUp::read(&[]), SetUp::read(&[0xc0; 196])), (nothing, nothing));
    }

    #[test]
    fn long_fpdus_are_spoken_of_where_others_have_zeroes() {
        let normal = SetUp { has_addresses: true, lacks_invalidation: false };
        let ours = with_long_fpdus(normal.write());
        assert_eq!((ours, SetUp::read(&ours)), ([0x80, 0, 0, 1], normal));
        assert!(takes_long_fpdus(&ours) && !takes_long_fpdus(&normal.write()) && !takes_long_fpdus(&ours[..3]));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_again(bytes in any::<[u8; HEADER_BYTES]>()) {
            if let Some(header) = IserHeader::read(&bytes) {
                prop_assert_eq!(IserHeader::read(&header.write()), Some(header));
            } else {
                prop_assert!(!(1..=3).contains(&(bytes[0] >> 4)));
            }
        }
    }
}
