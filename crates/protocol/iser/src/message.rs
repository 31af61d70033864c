//! A message that has arrived, taken apart.

use std::ops::Range;

use sanwire_buffer::Frame;
use sanwire_iscsi::wire::{HEADER_BYTES as PDU_HEADER_BYTES, Header};
use sanwire_iwarp::{Message, Stag};

use crate::wire::{HEADER_BYTES, IserHeader, Window};

/// Both headers in front of a PDU's data.
pub(crate) const HEADERS_BYTES: usize = HEADER_BYTES + PDU_HEADER_BYTES;

/// Additional header segments, at the most: those of the longest CDB, and of a second direction.
pub(crate) const ADDITIONAL_MAX_BYTES: usize = 256;

/// A message of the other end.
#[derive(Debug)]
pub(crate) enum Arrived {
    Pdu(Pdu),
    /// Hello, or HelloReply.
    Greeting(IserHeader),
}

/// A PDU, and the memory that comes with it.
#[derive(Debug)]
pub(crate) struct Pdu {
    pub(crate) header: Header,
    pub(crate) additional: Vec<u8>,
    /// What it lies in, and where its data is there.
    pub(crate) buffer: Frame,
    pub(crate) data: Range<usize>,
    pub(crate) write: Option<Window>,
    pub(crate) read: Option<Window>,
    /// The key of this end that has ended with it.
    pub(crate) invalidated: Option<Stag>,
}

impl Arrived {
    /// Takes a message apart: what its headers tell of lengths is held against what has arrived.
    pub(crate) fn read(message: Message) -> Result<Arrived, &'static str> {
        let Message { buffer, invalidated, .. } = message;
        let Some((first, rest)) = buffer.split_first_chunk::<HEADER_BYTES>() else {
            return Err("it sent a message that is shorter than the header of iSER");
        };
        let (write, read) = match IserHeader::read(first) {
            None => return Err("it sent a message without the header of iSER"),
            Some(IserHeader::Control { write, read }) => (write, read),
            Some(greeting) => return Ok(Arrived::Greeting(greeting)),
        };
        let Some((header, rest)) = rest.split_first_chunk::<PDU_HEADER_BYTES>() else {
            return Err("it sent a message that is shorter than the header of a PDU");
        };
        let header = Header::from_bytes(*header);
        let Some(additional) = rest.get(..header.additional_bytes()) else {
            return Err("it sent a message that is shorter than its additional header segments");
        };
        let start = HEADERS_BYTES + additional.len();
        let end = start + header.data_bytes();
        // No padding: RFC 7145 says nothing of it, and Linux has none. Who appends some does no harm.
        if !(end..end + 4).contains(&buffer.len()) {
            return Err("it sent a message whose length is not what its header says");
        }
        let additional = additional.to_vec();
        Ok(Arrived::Pdu(Pdu { header, additional, buffer, data: start..end, write, read, invalidated }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sanwire_iscsi::wire::NopOut;

    use super::*;

    fn arrived(bytes: &[u8]) -> Result<Arrived, &'static str> {
        Arrived::read(Message { buffer: bytes.to_vec().into(), is_solicited: false, invalidated: None })
    }

    fn message(data_bytes: usize, more: &[u8]) -> Vec<u8> {
        let mut header = NopOut::default().write();
        header.set_data_bytes(data_bytes);
        [&IserHeader::PLAIN.write()[..], header.as_bytes(), more].concat()
    }

    /// CVE-2026-90413, -90414, -53176: a message that is shorter than its data segment must not be read beyond its end.
    #[test]
    fn a_short_send_is_no_pdu() {
        let whole = message(8, b"12345678");
        assert!(matches!(arrived(&whole), Ok(Arrived::Pdu(pdu)) if pdu.buffer[pdu.data.clone()] == *b"12345678"));
        for length in 0..whole.len() {
            assert!(arrived(&whole[..length]).is_err(), "{length}");
        }
        assert!(arrived(&message(0xff_ffff, &[0; 8000])).is_err());
    }

    #[test]
    fn additional_segments_that_are_not_there_are_no_pdu() {
        let mut bytes = message(0, &[]);
        bytes[HEADER_BYTES + 4] = 255;
        assert!(arrived(&bytes).is_err());
        bytes.extend([0; 1020]);
        assert!(matches!(arrived(&bytes), Ok(Arrived::Pdu(pdu)) if pdu.additional.len() == 1020));
    }

    #[test]
    fn what_follows_a_pdu_is_no_part_of_it() {
        assert!(arrived(&message(5, b"12345\0\0\0")).is_ok(), "padding");
        assert!(arrived(&message(5, b"12345\0\0\0\0")).is_err());
    }

    proptest! {
        #[test]
        fn no_message_is_read_beyond_its_end(bytes in prop::collection::vec(any::<u8>(), 0..300), valid: bool) {
            let mut bytes = bytes;
            if valid && let Some(first) = bytes.first_mut() {
                *first = 0x1c;
            }
            if let Ok(Arrived::Pdu(pdu)) = arrived(&bytes) {
                prop_assert!(pdu.data.end <= bytes.len() && pdu.data.len() == pdu.header.data_bytes());
            }
        }
    }
}
