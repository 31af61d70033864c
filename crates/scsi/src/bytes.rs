//! Big-endian fields, as SCSI lays them out.

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|field| u16::from_be_bytes(*field))
}

pub(crate) fn u24_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|[a, b, c]| u32::from_be_bytes([0, *a, *b, *c]))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|field| u32::from_be_bytes(*field))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|field| u64::from_be_bytes(*field))
}

/// Writes a field at its place. The place is always a constant within a buffer that the caller sized.
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// The printable ASCII text of a field that is padded with spaces (SPC-5 4.3.1), other bytes as `?`.
pub(crate) fn text(field: &[u8]) -> String {
    let text: String = field.iter().map(|&b| if matches!(b, b' '..=b'~') { char::from(b) } else { '?' }).collect();
    text.trim_end().to_owned()
}

/// An answer that is not what the standard says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnswerError {
    /// It ends before its last field.
    #[error("the device's answer to {0} is too short: it breaks the standard or was cut off")]
    Short(&'static str),
    /// A field has a value that it must not have.
    #[error("the device's answer to {0} contradicts the standard")]
    Invalid(&'static str),
}
