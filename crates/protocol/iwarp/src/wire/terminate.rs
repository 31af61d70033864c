//! RDMAP: the header of a Terminate message (RFC 5040 4.8), with copies of the headers that it is about.

use super::ddp::{Segment, UNTAGGED_BYTES};
use super::field::array;
use super::rdmap::READ_REQUEST_BYTES;

/// Control, the length of a segment, and the longest headers.
pub const TERMINATE_MAX_BYTES: usize = 4 + 2 + UNTAGGED_BYTES + READ_REQUEST_BYTES;

/// The length of the segment is there.
const LENGTH: u8 = 0x80;
/// Its DDP header is there.
const DDP: u8 = 0x40;
/// Its RDMAP header, of a Read Request, is there.
const RDMAP: u8 = 0x20;

/// Tells why a stream ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terminate {
    /// Layer (four bits), type of error (four bits) and error.
    pub code: (u8, u8, u8),
    /// The length of the ULPDU that it is about.
    pub segment_bytes: Option<u16>,
    /// The headers in it: DDP's, and that of a Read Request.
    pub headers: Vec<u8>,
}

impl Terminate {
    /// As it stands on the wire.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let (layer, kind, code) = self.code;
        let ddp_bytes = self.headers.first().map_or(0, |first| Segment::header_bytes(*first));
        let has = |is: bool, bit: u8| if is { bit } else { 0 };
        let control = has(self.segment_bytes.is_some(), LENGTH)
            | has(!self.headers.is_empty(), DDP)
            | has(ddp_bytes > 0 && self.headers.len() > ddp_bytes, RDMAP);
        let mut bytes = vec![layer << 4 | kind & 0xf, code, control, 0];
        if let Some(length) = self.segment_bytes {
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(&self.headers);
        }
        bytes
    }

    /// The message in these bytes, as far as it is there; `None` when not even the control is.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Terminate> {
        let [layer_and_kind, code, control, _] = *bytes.first_chunk()?;
        let segment_bytes = (control & LENGTH != 0 && bytes.len() >= 6).then(|| u16::from_be_bytes(array(bytes, 4)));
        let wants_headers = segment_bytes.is_some() && control & DDP != 0;
        let headers = if wants_headers { bytes[6..].to_vec() } else { Vec::new() };
        Some(Terminate { code: (layer_and_kind >> 4, layer_and_kind & 0xf, code), segment_bytes, headers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5040 figures 10 and 11.
    #[test]
    fn a_terminate_stands_as_in_the_figure() {
        let mut terminate = Terminate { code: (1, 2, 5), segment_bytes: None, headers: Vec::new() };
        assert_eq!(terminate.write(), [0x12, 5, 0, 0]);
        assert_eq!(Terminate::read(&[0x12, 5, 0, 0]), Some(terminate.clone()));
        terminate.segment_bytes = Some(0x2e);
        terminate.headers = vec![0x41; UNTAGGED_BYTES];
        assert_eq!(terminate.write()[..7], [0x12, 5, 0xc0, 0, 0, 0x2e, 0x41]);
        terminate.headers = vec![0x41; UNTAGGED_BYTES + READ_REQUEST_BYTES];
        let bytes = terminate.write();
        assert_eq!((bytes[2], bytes.len()), (0xe0, TERMINATE_MAX_BYTES));
        assert_eq!(Terminate::read(&bytes), Some(terminate));
        assert!((0..bytes.len()).all(|end| Terminate::read(&bytes[..end]).is_some() == (end >= 4)));
    }
}
