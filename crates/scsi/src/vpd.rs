//! Vital product data pages (SPC-5 7.7, SBC-4 6.6).

mod designation;
mod identification;
mod limits;
mod third_party_copy;
mod write_verifier;

pub use designation::Designation;
pub use identification::{Designator, DesignatorKind, DeviceIdentification, Identity, IdentityError, TargetPort};
pub use limits::{BlockCharacteristics, BlockLimits, Provisioning, ProvisioningType, supported_block_lengths};
pub use third_party_copy::third_party_copy;
pub use write_verifier::WriteVerifier;

use crate::bytes::{AnswerError, put, u16_at};

/// Page codes.
#[allow(missing_docs, reason = "each is named by its page")]
pub mod page {
    pub const SUPPORTED_PAGES: u8 = 0x00;
    pub const UNIT_SERIAL_NUMBER: u8 = 0x80;
    pub const DEVICE_IDENTIFICATION: u8 = 0x83;
    pub const EXTENDED_INQUIRY: u8 = 0x86;
    pub const THIRD_PARTY_COPY: u8 = 0x8f;
    pub const BLOCK_LIMITS: u8 = 0xb0;
    pub const BLOCK_DEVICE_CHARACTERISTICS: u8 = 0xb1;
    pub const LOGICAL_BLOCK_PROVISIONING: u8 = 0xb2;
    pub const SUPPORTED_BLOCK_LENGTHS: u8 = 0xb4;
    pub const WRITE_VERIFIER: u8 = 0xc0;
}

/// The pages that every unit has; those of its type come before the last, which is of the vendor.
const OF_ALL: [u8; 4] =
    [page::SUPPORTED_PAGES, page::UNIT_SERIAL_NUMBER, page::DEVICE_IDENTIFICATION, page::EXTENDED_INQUIRY];

/// The page that lists the pages (SPC-5 7.7.16) of a unit whose type has these besides.
#[must_use]
pub fn supported_pages(of_type: &[u8]) -> Vec<u8> {
    build(page::SUPPORTED_PAGES, &[&OF_ALL, of_type, &[page::WRITE_VERIFIER]].concat())
}

/// The pages that a unit lists.
///
/// # Errors
/// [`AnswerError`] when this is no such page, or ends too early.
pub fn parse_supported_pages(bytes: &[u8]) -> Result<Vec<u8>, AnswerError> {
    parse(bytes, page::SUPPORTED_PAGES).map(<[u8]>::to_vec)
}

/// The unit serial number page (SPC-5 7.7.17).
#[must_use]
pub fn unit_serial_number(serial: &str) -> Vec<u8> {
    build(page::UNIT_SERIAL_NUMBER, serial.as_bytes())
}

/// The extended INQUIRY data page (SPC-5 7.7.7).
#[must_use]
pub fn extended_inquiry() -> Vec<u8> {
    let mut body = [0; 0x3c];
    put(&mut body, 1, [0x01]); // SIMPSUP: simple tasks
    put(&mut body, 2, [0x01]); // V_SUP: the cache may be volatile
    put(&mut body, 3, [0x01]); // LUICLR: an attention is cleared for the nexus that was told
    build(page::EXTENDED_INQUIRY, &body)
}

/// A page of a disk that is there: device type 00h. Bodies are far below 64 KiB.
fn build(code: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + body.len());
    bytes.extend([0, code]);
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// The body of the page with this code.
fn parse(bytes: &[u8], code: u8) -> Result<&[u8], AnswerError> {
    const WHAT: &str = "INQUIRY for a vital product data page";
    let length = u16_at(bytes, 2).ok_or(AnswerError::Short(WHAT))?;
    if bytes[1] != code {
        return Err(AnswerError::Invalid(WHAT));
    }
    bytes.get(4..4 + usize::from(length)).ok_or(AnswerError::Short(WHAT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_bytes_of_the_standard() {
        let of_disk = [0x8f, 0xb0, 0xb1, 0xb2, 0xb4];
        let page = supported_pages(&of_disk);
        assert_eq!(page, [0, 0, 0, 10, 0, 0x80, 0x83, 0x86, 0x8f, 0xb0, 0xb1, 0xb2, 0xb4, 0xc0]);
        assert_eq!(parse_supported_pages(&page).unwrap(), page[4..]);
        assert!(parse_supported_pages(&page[..9]).is_err());
        let serial = unit_serial_number("4711");
        assert_eq!(serial, [0, 0x80, 0, 4, b'4', b'7', b'1', b'1']);
        let extended = extended_inquiry();
        assert_eq!((extended.len(), &extended[..8]), (64, &[0, 0x86, 0, 0x3c, 0, 1, 1, 1][..]));
    }
}
