//! A message that has arrived, taken apart.

use std::ops::Range;

use sanwire_buffer::Frame;
use sanwire_iscsi::wire::{HEADER_BYTES as PDU_HEADER_BYTES, Header, Opcode};
use sanwire_iwarp::{Message, Stag};

use crate::wire::{HEADER_BYTES, HeaderForm, IserHeader, Window};

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
    pub(crate) fn read(message: Message, form: HeaderForm) -> Result<Arrived, &'static str> {
        let Message { buffer, invalidated, .. } = message;
        let Some((first, rest)) = split(&buffer, form) else {
            return Err("it sent a message that is shorter than the header of iSER");
        };
        let (write, read) = match first {
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
        let start = form.length_bytes() + PDU_HEADER_BYTES + additional.len();
        let end = start + header.data_bytes();
        if !is_length(buffer.len(), end) {
            return Err("it sent a message whose length is not what its header says");
        }
        let additional = additional.to_vec();
        Ok(Arrived::Pdu(Pdu { header, additional, buffer, data: start..end, write, read, invalidated }))
    }
}

/// The header of iSER, if it is one, and what follows it; `None` when it is not whole.
fn split(message: &[u8], form: HeaderForm) -> Option<(Option<IserHeader>, &[u8])> {
    match form {
        HeaderForm::Rfc7145 => message.split_first_chunk().map(|(first, rest)| (IserHeader::read(first), rest)),
        HeaderForm::Rfc5046 => message.split_first_chunk().map(|(first, rest)| (IserHeader::read_short(first), rest)),
    }
}

/// Whether a message has its length, if its headers say that it ends there. No padding: RFC 7145 says nothing of it, and Linux has none.
/// Who appends some does no harm.
fn is_length(length: usize, end: usize) -> bool {
    (end..end + 4).contains(&length)
}

/// Which headers an initiator has whose first message this is. It is a login request (RFC 7143 6.3), which its lengths let stand behind
/// one of them only; in doubt it is that of RFC 7145.
pub(crate) fn form_of_first(message: &[u8]) -> HeaderForm {
    let is_short = is_login(message, HeaderForm::Rfc5046) && !is_login(message, HeaderForm::Rfc7145);
    if is_short { HeaderForm::Rfc5046 } else { HeaderForm::Rfc7145 }
}

fn is_login(message: &[u8], form: HeaderForm) -> bool {
    let header = message.get(form.length_bytes()..).and_then(|rest| rest.first_chunk::<PDU_HEADER_BYTES>());
    let Some(header) = header.map(|header| Header::from_bytes(*header)) else { return false };
    let end = form.length_bytes() + PDU_HEADER_BYTES + header.additional_bytes() + header.data_bytes();
    header.opcode() == Some(Opcode::LoginRequest) && is_length(message.len(), end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sanwire_iscsi::wire::{LoginRequest, NopOut};

    use super::*;

    fn arrived_as(form: HeaderForm, bytes: &[u8]) -> Result<Arrived, &'static str> {
        Arrived::read(Message { buffer: bytes.to_vec().into(), is_solicited: false, invalidated: None }, form)
    }

    fn arrived(bytes: &[u8]) -> Result<Arrived, &'static str> {
        arrived_as(HeaderForm::Rfc7145, bytes)
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
    fn a_short_send_is_no_pdu_behind_a_header_of_rfc_5046_either() {
        let whole = [&IserHeader::PLAIN.write_short()[..], &message(8, b"12345678")[HEADER_BYTES..]].concat();
        let read = arrived_as(HeaderForm::Rfc5046, &whole);
        assert!(matches!(read, Ok(Arrived::Pdu(pdu)) if pdu.buffer[pdu.data.clone()] == *b"12345678"));
        for length in 0..whole.len() {
            assert!(arrived_as(HeaderForm::Rfc5046, &whole[..length]).is_err(), "{length}");
        }
        assert!(arrived(&whole).is_err());
    }

    #[test]
    fn the_first_message_of_an_initiator_shows_which_headers_it_has() {
        for data_bytes in [0, 1, 4, 16, 17, 40, 300, 8192] {
            let mut login =
                LoginRequest { is_immediate: true, task_tag: 0x0102_0304, ..LoginRequest::default() }.write();
            login.set_data_bytes(data_bytes);
            let pdu = [&login.as_bytes()[..], &vec![b'k'; data_bytes]].concat();
            let long = [&IserHeader::PLAIN.write()[..], &pdu].concat();
            let short = [&IserHeader::PLAIN.write_short()[..], &pdu].concat();
            assert_eq!(
                [&long, &short].map(|message| form_of_first(message)),
                [HeaderForm::Rfc7145, HeaderForm::Rfc5046]
            );
            let cut = [&short[..short.len() - 1], &short[..11], &short[..59], &[]];
            assert!(cut.iter().all(|message| form_of_first(message) == HeaderForm::Rfc7145), "{data_bytes}");
        }
        // Anything else is what it is with Linux.
        assert_eq!(form_of_first(&message(8, b"12345678")), HeaderForm::Rfc7145);
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
            for form in [HeaderForm::Rfc7145, HeaderForm::Rfc5046, form_of_first(&bytes)] {
                if let Ok(Arrived::Pdu(pdu)) = arrived_as(form, &bytes) {
                    prop_assert!(pdu.data.end <= bytes.len() && pdu.data.len() == pdu.header.data_bytes());
                }
            }
        }
    }
}
