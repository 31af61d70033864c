//! Sizes as people write them: `512`, `4KiB`, `1G`, `1.5 TiB`.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. Parses `512`, `64K`, `64KiB`, `1.5 GiB`; every suffix is binary (K = 1,024). `64KB` is none: to some that is
/// 64,000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Size(pub u64);

const UNITS: [(&str, u32); 5] = [("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50)];

/// Why a text is not a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseSizeError {
    /// Not a number followed by a unit.
    Syntax,
    /// `KB` and the like, which are powers of ten to some and of two to others.
    Ambiguous,
    /// More than 2^64 - 1 bytes.
    TooLarge,
    /// A fraction of a byte.
    NotWhole,
}

impl fmt::Display for ParseSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParseSizeError::Syntax => "a size is a number with an optional unit, like 512, 64K, 1G or 1.5TiB",
            ParseSizeError::Ambiguous => {
                "KB, MB, GB, TB and PB may be powers of 1000 or of 1024: write K, M, G, T or P (or KiB, MiB, ...), which are powers of 1024"
            }
            ParseSizeError::TooLarge => "a size must be below 2^64 bytes",
            ParseSizeError::NotWhole => "a size must be a whole number of bytes",
        })
    }
}

impl std::error::Error for ParseSizeError {}

impl FromStr for Size {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, ParseSizeError> {
        let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits_end);
        let shift = unit_shift(unit.strip_prefix(' ').filter(|unit| !unit.is_empty()).unwrap_or(unit))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || number.ends_with('.') || fraction.contains('.') || fraction.len() > 18 {
            return Err(ParseSizeError::Syntax);
        }
        let whole: u128 = whole.parse().map_err(|_| ParseSizeError::TooLarge)?;
        let bytes = whole.checked_shl(shift).filter(|b| b >> shift == whole).ok_or(ParseSizeError::TooLarge)?;
        let bytes = bytes.checked_add(fraction_bytes(fraction, shift)?).ok_or(ParseSizeError::TooLarge)?;
        u64::try_from(bytes).map(Size).map_err(|_| ParseSizeError::TooLarge)
    }
}

fn unit_shift(unit: &str) -> Result<u32, ParseSizeError> {
    let upper = unit.to_ascii_uppercase();
    if upper.is_empty() || upper == "B" {
        return Ok(0);
    }
    let shift_of = |stem: &str| UNITS.iter().find(|(name, _)| *name == stem).map(|(_, shift)| *shift);
    if upper.strip_suffix('B').and_then(shift_of).is_some() {
        return Err(ParseSizeError::Ambiguous);
    }
    shift_of(upper.strip_suffix("IB").unwrap_or(&upper)).ok_or(ParseSizeError::Syntax)
}

fn fraction_bytes(fraction: &str, shift: u32) -> Result<u128, ParseSizeError> {
    if fraction.is_empty() {
        return Ok(0);
    }
    let scale = 10u128.pow(u32::try_from(fraction.len()).map_err(|_| ParseSizeError::Syntax)?);
    let scaled = fraction.parse::<u128>().map_err(|_| ParseSizeError::Syntax)? << shift;
    if scaled.is_multiple_of(scale) { Ok(scaled / scale) } else { Err(ParseSizeError::NotWhole) }
}

impl fmt::Display for Size {
    /// The largest unit that keeps the number whole, or one decimal of the largest unit below it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.iter().rev().find(|(_, shift)| self.0 >= 1 << shift);
        match exact {
            None => write!(f, "{} B", self.0),
            Some((name, shift)) if self.0.is_multiple_of(1 << shift) => write!(f, "{} {name}iB", self.0 >> shift),
            Some((name, shift)) => {
                let tenths = (u128::from(self.0) * 10) >> shift;
                write!(f, "{}.{} {name}iB", tenths / 10, tenths % 10)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("4k", 4096),
            ("4KiB", 4096),
            ("4 KiB", 4096),
            ("1 G", 1 << 30),
            ("1.5G", 3 << 29),
            ("16P", 1 << 54),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_size() {
        for text in ["", "G", ".5G", "1.", "1..5G", "-1", " 1", "1 ", "1 X", "1X", "iB", "1GG", "1e3"] {
            assert_eq!(text.parse::<Size>(), Err(ParseSizeError::Syntax), "{text}");
        }
        for text in ["4KB", "10 gb", "1.5Tb"] {
            assert_eq!(text.parse::<Size>(), Err(ParseSizeError::Ambiguous), "{text}");
        }
        assert_eq!("16384P".parse::<Size>(), Err(ParseSizeError::TooLarge));
        assert_eq!("99999999999999999999999999999999999999999".parse::<Size>(), Err(ParseSizeError::TooLarge));
        assert_eq!("0.3K".parse::<Size>(), Err(ParseSizeError::NotWhole));
    }

    #[test]
    fn prints_the_largest_fitting_unit() {
        assert_eq!(Size(512).to_string(), "512 B");
        assert_eq!(Size(1 << 30).to_string(), "1 GiB");
        assert_eq!(Size(3 << 29).to_string(), "1.5 GiB");
    }
}
