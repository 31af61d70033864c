//! The name of a volume.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use sanwire_core::limits::VOLUME_NAME_MAX_BYTES;

use super::SpecError;

/// What clients call a volume: 1 to 64 of the ASCII letters, digits, `.`, `_` and `-`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VolumeName(String);

impl FromStr for VolumeName {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=VOLUME_NAME_MAX_BYTES).contains(&text.len()) && text.bytes().all(is_allowed) {
            Ok(VolumeName(text.into()))
        } else {
            Err(SpecError::Name { name: text.into() })
        }
    }
}

impl Deref for VolumeName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
