//! What a volume is to those who use it.

use std::fmt;

/// The types of device that a volume can be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DeviceType {
    /// A disk.
    #[default]
    Disk,
    /// A CD, DVD or BD drive that only reads; the store is the disc in it.
    Optical,
}

impl DeviceType {
    /// Every type with its word.
    const WORDS: [(DeviceType, &'static str); 2] = [(DeviceType::Disk, "disk"), (DeviceType::Optical, "optical")];

    /// All words, for messages.
    pub const EXPECTED: &'static str = "disk or optical";

    /// The type of this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<DeviceType> {
        Self::WORDS.into_iter().find(|(_, known)| *known == word).map(|(device_type, _)| device_type)
    }
}

impl fmt::Display for DeviceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::WORDS[*self as usize].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_is_not_known_is_told_those_that_are() {
        for (device_type, word) in DeviceType::WORDS {
            assert_eq!((DeviceType::from_word(word), device_type.to_string()), (Some(device_type), word.to_owned()));
            assert!(DeviceType::EXPECTED.contains(word));
        }
        assert_eq!(DeviceType::from_word("tape"), None);
    }
}
