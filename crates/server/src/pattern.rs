//! Which initiators and which volumes, by their names.

use std::fmt;
use std::str::FromStr;

use sanwire_core::limits::VOLUME_NAME_MAX_BYTES;
use sanwire_scsi::IscsiName;

/// The longest name has as many bytes (RFC 7143 4.2.7.1).
const PATTERN_MAX_BYTES: usize = 223;

/// The name of an initiator, in which `*` stands for any text and `?` for any one character.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitiatorPattern(String);

/// The text is no pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "this is no pattern of names: use letters, digits, '.', '_', '-', with * for any text and ? for any one character"
)]
pub struct NoPattern;

impl InitiatorPattern {
    /// Whether the name is one of those that are meant.
    #[must_use]
    pub fn matches(&self, name: &IscsiName) -> bool {
        matches(self.0.as_bytes(), name.as_str().as_bytes())
    }

    /// With what all names begin that are meant.
    pub(crate) fn literal_prefix(&self) -> &str {
        self.0.split(['*', '?']).next().unwrap_or_default()
    }
}

impl FromStr for InitiatorPattern {
    type Err = NoPattern;

    /// Reads what begins like a name; capital letters become small ones, as in names.
    fn from_str(text: &str) -> Result<Self, NoPattern> {
        let pattern = text.to_lowercase();
        let is_allowed = |c: char| c.is_alphanumeric() || "-.:*?".contains(c);
        let begins_like_a_name = ["iqn.", "eui.", "naa."].iter().any(|kind| pattern.starts_with(kind));
        if begins_like_a_name && pattern.len() <= PATTERN_MAX_BYTES && pattern.chars().all(is_allowed) {
            Ok(InitiatorPattern(pattern))
        } else {
            Err(NoPattern)
        }
    }
}

impl fmt::Display for InitiatorPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a volume, in which `*` stands for any text and `?` for any one character.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumePattern(String);

impl VolumePattern {
    /// Whether it is that pattern: [`VolumePattern::all`].
    pub(crate) fn is_all(&self) -> bool {
        self.0 == "*"
    }

    /// The pattern of all volumes.
    #[must_use]
    pub fn all() -> Self {
        VolumePattern("*".into())
    }

    /// Whether the volume is one of those that are meant.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        matches(self.0.as_bytes(), name.as_bytes())
    }
}

impl FromStr for VolumePattern {
    type Err = NoPattern;

    /// Reads what volumes may be called, with `*` and `?`.
    fn from_str(text: &str) -> Result<Self, NoPattern> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._*?".contains(c);
        if (1..=VOLUME_NAME_MAX_BYTES).contains(&text.len()) && text.chars().all(is_allowed) {
            Ok(VolumePattern(text.to_owned()))
        } else {
            Err(NoPattern)
        }
    }
}

impl fmt::Display for VolumePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Compares from the left. Where it fails after a `*`, that `*` takes one byte more: only the last one need be tried again.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                last_star = Some((at, from));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[from] => {
                at += 1;
                from += 1;
            }
            _ => match &mut last_star {
                Some((star, taken)) => {
                    *taken += 1;
                    (at, from) = (*star + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_stand_for_text() {
        let name: IscsiName = "iqn.1993-08.org.debian:01:abcd".parse().unwrap();
        for (pattern, is_match) in [
            ("iqn.1993-08.org.debian:01:abcd", true),
            ("IQN.1993-08.org.debian:01:ABCD", true),
            ("iqn.1993-08.org.debian:*", true),
            ("iqn.*", true),
            ("iqn.*abcd", true),
            ("iqn.*:01:*d", true),
            ("iqn.*b*c*", true),
            ("iqn.1993-08.org.debian:0?:abc?", true),
            ("iqn.1993-08.org.debian:01:abcd*", true),
            ("iqn.1993-08.org.debian:01:abcd?", false),
            ("iqn.1993-08.org.debian", false),
            ("iqn.*abc", false),
            ("iqn.*c*b*", false),
            ("eui.*", false),
        ] {
            assert_eq!(pattern.parse::<InitiatorPattern>().unwrap().matches(&name), is_match, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_ends_soon() {
        let name: IscsiName = format!("iqn.2026-11.org:{}", "a".repeat(200)).parse().unwrap();
        let pattern: InitiatorPattern = format!("iqn.{}b", "*a".repeat(100)).parse().unwrap();
        assert!(!pattern.matches(&name));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", "*", "debian", "iqn.a b", "iqn.2026/1", &format!("iqn.{}", "x".repeat(220))] {
            assert!(text.parse::<InitiatorPattern>().is_err(), "{text}");
        }
    }
}
