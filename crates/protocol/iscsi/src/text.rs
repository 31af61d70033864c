//! Text segments: keys and values (RFC 7143 6.1).

/// Keys of one exchange, at the most: more than all that RFCs define, several times over.
const KEYS_MAX: usize = 128;

/// Text of one exchange, at the most, in bytes; what comes in several PDUs is collected.
pub(crate) const TEXT_MAX_BYTES: usize = 64 << 10;

/// The data segment of a PDU while nothing else is declared (RFC 7143 13.12): in all of a login.
pub(crate) const SEGMENT_MAX_BYTES: usize = 8192;

/// The longest key (RFC 7143 6.1).
const KEY_MAX_BYTES: usize = 63;

/// Why a text cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum TextError {
    /// A part without `=`, or without a key before it.
    #[error("a text without key=value")]
    NoKey,
    /// A key too long or not of allowed characters.
    #[error("a key that is none")]
    Key,
    /// Not UTF-8.
    #[error("a value that is not UTF-8")]
    Encoding,
    /// More than [`KEYS_MAX`] keys or [`TEXT_MAX_BYTES`].
    #[error("too many keys")]
    TooMany,
}

/// Reads `key=value` pairs, each ended by a zero; at the end the zero may be missing, and zeroes alone say nothing.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    let mut pairs = Vec::new();
    for part in bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty()) {
        if pairs.len() == KEYS_MAX {
            return Err(TextError::TooMany);
        }
        let part = std::str::from_utf8(part).map_err(|_| TextError::Encoding)?;
        let (key, value) = part.split_once('=').ok_or(TextError::NoKey)?;
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-+@_#".contains(&byte);
        if key.is_empty() || key.len() > KEY_MAX_BYTES || !key.bytes().all(is_allowed) {
            return Err(TextError::Key);
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// A text that is being written.
#[derive(Default, Debug)]
pub(crate) struct TextWriter(Vec<u8>);

impl TextWriter {
    pub(crate) fn push(&mut self, key: &str, value: &str) {
        self.0.extend([key, "=", value, "\0"].iter().flat_map(|part| part.bytes()));
    }

    /// Whether nothing is left to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Cuts off what fits into one data segment; tells whether something is left (the C bit).
    pub(crate) fn cut(&mut self, segment_bytes: usize) -> (Vec<u8>, bool) {
        let rest = self.0.split_off(self.0.len().min(segment_bytes));
        let segment = std::mem::replace(&mut self.0, rest);
        (segment, !self.0.is_empty())
    }
}

/// Text that comes in several PDUs (the C bit): collected until it is whole.
#[derive(Default, Debug)]
pub(crate) struct TextGathering(Vec<u8>);

impl TextGathering {
    /// Adds what one PDU brought.
    ///
    /// # Errors
    /// [`TextError::TooMany`] beyond [`TEXT_MAX_BYTES`].
    pub(crate) fn add(&mut self, part: &[u8]) -> Result<(), TextError> {
        if self.0.len() + part.len() > TEXT_MAX_BYTES {
            return Err(TextError::TooMany);
        }
        self.0.extend_from_slice(part);
        Ok(())
    }

    /// The whole, and an empty one for the next.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_and_written() {
        let mut writer = TextWriter::default();
        writer.push("InitiatorName", "iqn.2026-11.org.sanwire:a=b");
        writer.push("X-empty", "");
        let (bytes, continues) = writer.cut(51);
        assert_eq!((bytes.len(), continues, writer.is_empty()), (51, false, true));
        let pairs = [("InitiatorName", "iqn.2026-11.org.sanwire:a=b"), ("X-empty", "")];
        assert_eq!(parse(&bytes).as_deref(), Ok(&pairs[..]));
        assert_eq!(parse(&bytes[..bytes.len() - 1]).as_deref(), Ok(&pairs[..]), "the last zero is missing");
        assert_eq!(parse(&[0; 5000]).as_deref(), Ok(&[][..]), "a storm of zeroes");
    }

    #[test]
    fn text_is_cut_anywhere_and_put_together_again() {
        let mut writer = TextWriter::default();
        writer.push("MaxBurstLength", "262144");
        writer.push("InitialR2T", "No");
        let mut gathering = TextGathering::default();
        while !writer.is_empty() {
            let (segment, continues) = writer.cut(3);
            assert!(segment.len() <= 3 && continues != writer.is_empty());
            gathering.add(&segment).unwrap();
        }
        let pairs = [("MaxBurstLength", "262144"), ("InitialR2T", "No")];
        assert_eq!(parse(&gathering.take()).as_deref(), Ok(&pairs[..]));
    }

    #[test]
    fn text_of_exactly_the_maximum_is_taken() {
        let text = format!("X-a={}\0", "x".repeat(TEXT_MAX_BYTES - 5));
        let mut gathering = TextGathering::default();
        assert_eq!(gathering.add(text.as_bytes()), Ok(()));
        assert_eq!(gathering.add(b"x"), Err(TextError::TooMany));
        assert_eq!(parse(&gathering.take()).map(|pairs| pairs[0].1.len()), Ok(TEXT_MAX_BYTES - 5));
    }

    #[test]
    fn what_is_no_text_is_refused() {
        assert_eq!(parse(b"key"), Err(TextError::NoKey));
        assert_eq!(parse(b"=value\0"), Err(TextError::Key));
        assert_eq!(parse(b"k k=value\0"), Err(TextError::Key));
        assert_eq!(parse(b"k=\xff\0"), Err(TextError::Encoding));
        assert_eq!(parse(format!("{}=1\0", "k".repeat(64)).as_bytes()), Err(TextError::Key));
        let many: String = (0..10_000).map(|number| format!("X-{number}=1\0")).collect();
        assert_eq!(parse(many.as_bytes()), Err(TextError::TooMany));
        let mut gathering = TextGathering::default();
        assert!((0..8).all(|_| gathering.add(&[b'x'; 8192]).is_ok()));
        assert_eq!(gathering.add(b"x"), Err(TextError::TooMany));
    }
}
