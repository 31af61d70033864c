//! The parts of a volume that a derived one has: `16M+8M`.

use std::fmt;
use std::str::FromStr;

use sanwire_core::Size;

/// One part of a volume: where it begins there, and how long it is. Both are in bytes; the length is not zero, and their sum does not overflow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Region {
    offset_bytes: u64,
    length_bytes: u64,
}

/// Why a text is no region, in words.
pub(super) const EXPECTED: &str =
    "OFFSET+LENGTH with a length above 0 that ends below 2^64 bytes, like 16M+8M (powers of 1024)";

impl Region {
    /// Where it begins, in bytes.
    #[must_use]
    pub fn offset_bytes(self) -> u64 {
        self.offset_bytes
    }

    /// How long it is, in bytes.
    #[must_use]
    pub fn length_bytes(self) -> u64 {
        self.length_bytes
    }

    fn end_bytes(self) -> u64 {
        self.offset_bytes + self.length_bytes
    }

    /// The first two of these that have bytes in common.
    pub(super) fn overlapping(regions: &[Region]) -> Option<[Region; 2]> {
        let mut sorted = regions.to_vec();
        sorted.sort_unstable();
        sorted.windows(2).find(|pair| pair[0].end_bytes() > pair[1].offset_bytes).map(|pair| [pair[0], pair[1]])
    }
}

impl FromStr for Region {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (offset, length) = text.split_once('+').ok_or(EXPECTED)?;
        let size = |text: &str| text.parse().map(|Size(bytes)| bytes).map_err(|_| EXPECTED);
        let (offset_bytes, length_bytes) = (size(offset)?, size(length)?);
        if length_bytes == 0 || offset_bytes.checked_add(length_bytes).is_none() {
            return Err(EXPECTED);
        }
        Ok(Region { offset_bytes, length_bytes })
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", exact(self.offset_bytes), exact(self.length_bytes))
    }
}

/// A number of bytes with the largest unit of which it is a whole number: what is read again is the same.
fn exact(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(text: &str) -> Region {
        text.parse().unwrap()
    }

    #[test]
    fn a_region_is_read_and_written_again() {
        for (text, offset_bytes, length_bytes) in [
            ("16M+8M", 16 << 20, 8 << 20),
            ("0+512", 0, 512),
            ("1G+2T", 1 << 30, 2 << 40),
            ("1536+4K", 1536, 4096),
            ("18446744073709551103+512", u64::MAX - 512, 512),
        ] {
            let read = region(text);
            assert_eq!((read.offset_bytes(), read.length_bytes()), (offset_bytes, length_bytes));
            assert_eq!(read.to_string(), text);
        }
        assert_eq!(region("1.5M+0.5K").to_string(), "1536K+512");
    }

    #[test]
    fn what_is_no_region_is_refused() {
        for text in ["", "16M", "16M-8M", "+8M", "16M+", "16M+0", "-1+8M", "a+b", "1+2+3", "16MB+8M", "16777216T+1"] {
            assert_eq!(text.parse::<Region>(), Err(EXPECTED), "{text}");
        }
        assert_eq!("18446744073709551104+512".parse::<Region>(), Err(EXPECTED), "its end is 2^64");
    }

    #[test]
    fn regions_that_touch_do_not_overlap() {
        let overlapping =
            |texts: &[&str]| Region::overlapping(&texts.iter().map(|text| region(text)).collect::<Vec<_>>());
        assert_eq!(overlapping(&["8M+8M", "0+8M", "16M+1M"]), None);
        assert_eq!(overlapping(&["8M+8M", "0+1M", "12M+1M"]), Some([region("8M+8M"), region("12M+1M")]));
        assert_eq!(overlapping(&["1M+1M", "1M+1M"]), Some([region("1M+1M"); 2]), "the same twice");
    }
}
