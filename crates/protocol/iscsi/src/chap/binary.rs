//! Binary values in texts (RFC 7143 6.1): `0x` and hexadecimal digits, or `0b` and base64.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Bytes as `0x` and hexadecimal digits.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::from("0x"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes that a text stands for, at most `max_bytes`; the length is looked at before anything is decoded.
pub(crate) fn decode(text: &str, max_bytes: usize) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return decode_hexadecimal(digits.as_bytes(), max_bytes);
    }
    let encoded = text.strip_prefix("0b").or_else(|| text.strip_prefix("0B"))?;
    if encoded.len() > max_bytes.div_ceil(3) * 4 {
        return None;
    }
    STANDARD.decode(encoded).ok().filter(|bytes| bytes.len() <= max_bytes)
}

/// An odd number of digits has a zero before them.
fn decode_hexadecimal(digits: &[u8], max_bytes: usize) -> Option<Vec<u8>> {
    if digits.len().div_ceil(2) > max_bytes {
        return None;
    }
    let (first, rest) = digits.split_at(digits.len() % 2);
    let first = first.first().map(|digit| value(*digit));
    let rest = rest.chunks_exact(2).map(|pair| Some(value(pair[0])? << 4 | value(pair[1])?));
    first.into_iter().chain(rest).collect()
}

fn value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
