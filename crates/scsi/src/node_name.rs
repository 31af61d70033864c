//! Names of iSCSI nodes (RFC 7143 4.2.7): by these SCSI knows devices also where iSCSI does not carry them, in TransportIDs and in
//! designators (SPC-5 7.6.4, 7.7.6).

use std::fmt;
use std::str::FromStr;

/// The longest name, in bytes.
const NAME_MAX_BYTES: usize = 223;

/// The name of an iSCSI node: `iqn.`, `eui.` or `naa.`, in lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IscsiName(String);

/// Why a text is no iSCSI name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{text}' is no iSCSI name: expected iqn.YYYY-MM.DOMAIN[:NAME], eui. with 16 or naa. with 16 or 32 hex digits")]
pub struct NameError {
    /// What was written.
    pub text: String,
}

impl IscsiName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IscsiName {
    type Err = NameError;

    /// Reads a name; capital letters become small ones (RFC 7143 4.2.7.1).
    fn from_str(text: &str) -> Result<Self, NameError> {
        let name = text.to_lowercase();
        let is_hex = |digits: &str, lengths: &[usize]| {
            lengths.contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        let is_name = match name.split_once('.') {
            Some(("iqn", rest)) => is_qualified(rest),
            Some(("eui", digits)) => is_hex(digits, &[16]),
            Some(("naa", digits)) => is_hex(digits, &[16, 32]),
            _ => false,
        };
        if is_name && name.len() <= NAME_MAX_BYTES { Ok(IscsiName(name)) } else { Err(NameError { text: text.into() }) }
    }
}

/// `YYYY-MM.` and what an authority calls its own.
fn is_qualified(rest: &str) -> bool {
    let Some((date, name)) = rest.split_once('.') else { return false };
    let is_date = date.len() == 7
        && date.bytes().enumerate().all(|(at, byte)| if at == 4 { byte == b'-' } else { byte.is_ascii_digit() });
    // An underscore is not allowed (RFC 7143 4.2.7.2), and yet many hosts have it in their names.
    let is_allowed =
        |c: char| c.is_ascii_alphanumeric() || "-.:_".contains(c) || (!c.is_ascii() && c.is_alphanumeric());
    is_date && !name.is_empty() && name.chars().all(is_allowed)
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IscsiName({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_lower_case() {
        for (text, name) in [
            ("iqn.2026-11.org.sanwire:disk0", "iqn.2026-11.org.sanwire:disk0"),
            ("IQN.1993-08.org.Debian:01:ABC", "iqn.1993-08.org.debian:01:abc"),
            ("iqn.2001-04.com.example", "iqn.2001-04.com.example"),
            ("iqn.2001-04.com.example:my_disk", "iqn.2001-04.com.example:my_disk"),
            ("eui.02004567A425678D", "eui.02004567a425678d"),
            ("naa.52004567BA64678D", "naa.52004567ba64678d"),
            ("naa.62004567BA64678D0123456789ABCDEF", "naa.62004567ba64678d0123456789abcdef"),
        ] {
            assert_eq!(text.parse::<IscsiName>().map(|name| name.to_string()).as_deref(), Ok(name));
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = format!("iqn.2026-11.org.sanwire:{}", "x".repeat(200));
        for text in ["", "disk0", "iqn.", "iqn.2026.org", "iqn.2026-11.", "iqn.2026-11.a b", "eui.12", "naa.xyz", &long]
        {
            assert!(text.parse::<IscsiName>().is_err(), "{text}");
        }
    }
}
