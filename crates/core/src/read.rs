//! Reading big-endian fields one after the other, never past the end.

/// Why a field cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// The bytes end inside it.
    Truncated,
    /// This field has a value that is not allowed.
    Field(&'static str),
}

/// A cursor over received bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// From the first byte on.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    /// So many bytes.
    ///
    /// # Errors
    /// [`ReadError::Truncated`], as for all that follow.
    pub fn bytes(&mut self, length: usize) -> Result<&'a [u8], ReadError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ReadError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    /// So many bytes, whose number is known.
    ///
    /// # Errors
    /// [`ReadError::Truncated`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(ReadError::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// One byte.
    ///
    /// # Errors
    /// [`ReadError::Truncated`].
    pub fn u8(&mut self) -> Result<u8, ReadError> {
        self.array().map(|[byte]| byte)
    }

    /// Two bytes.
    ///
    /// # Errors
    /// [`ReadError::Truncated`].
    pub fn u16(&mut self) -> Result<u16, ReadError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// [`ReadError::Truncated`].
    pub fn u32(&mut self) -> Result<u32, ReadError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// [`ReadError::Truncated`].
    pub fn u64(&mut self) -> Result<u64, ReadError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A text with its length in one byte before it, of at most `max_bytes` of UTF-8 without control characters.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn text(&mut self, field: &'static str, max_bytes: usize) -> Result<&'a str, ReadError> {
        let length = usize::from(self.u8()?);
        let bytes = self.bytes(length)?;
        match std::str::from_utf8(bytes) {
            Ok(text) if length <= max_bytes && !text.chars().any(char::is_control) => Ok(text),
            _ => Err(ReadError::Field(field)),
        }
    }

    /// All that was not read.
    #[must_use]
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Nothing may follow.
    ///
    /// # Errors
    /// [`ReadError::Field`], of the length, when something does.
    pub fn end(self) -> Result<(), ReadError> {
        if self.0.is_empty() { Ok(()) } else { Err(ReadError::Field("length")) }
    }
}

/// Appends a text in the form that [`Reader::text`] reads; longer texts are cut at a character boundary.
pub fn put_text(out: &mut Vec<u8>, text: &str, max_bytes: usize) {
    let mut end = text.len().min(max_bytes).min(255);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.push(end as u8);
    out.extend_from_slice(&text.as_bytes()[..end]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_past_the_end() {
        let mut reader = Reader::new(&[1, 2, 3, 4, 5]);
        assert_eq!((reader.u8(), reader.u16(), reader.u32()), (Ok(1), Ok(0x0203), Err(ReadError::Truncated)));
        assert_eq!((reader.rest(), reader.end()), (&[4, 5][..], Err(ReadError::Field("length"))));
        assert_eq!((reader.array(), reader.u64()), (Ok([4, 5]), Err(ReadError::Truncated)));
        assert_eq!(reader.end(), Ok(()));
    }

    #[test]
    fn a_text_is_cut_at_a_character_and_read_again() {
        let mut bytes = Vec::new();
        put_text(&mut bytes, "a日b", 3);
        assert_eq!(bytes, [1, b'a']);
        put_text(&mut bytes, "日", 3);
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.text("name", 3), reader.text("name", 2)), (Ok("a"), Err(ReadError::Field("name"))));
        for wrong in [&[1, 0xff][..], &[1, b'\n']] {
            assert_eq!(Reader::new(wrong).text("name", 9), Err(ReadError::Field("name")));
        }
        assert_eq!(Reader::new(&[2, b'a']).text("name", 9), Err(ReadError::Truncated));
    }
}
