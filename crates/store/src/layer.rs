//! Stores over stores: each changes one thing and passes the rest on.

mod delay;
mod error;
mod read_only;
mod thick;

pub(crate) use delay::parse_time;
pub use delay::{DelayLayer, DelayRule};
pub use error::{ErrorLayer, ErrorRule, Place};
pub use read_only::ReadOnlyLayer;
pub use thick::ThickLayer;

use crate::request::Request;

/// Which requests a rule is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Every request.
    All,
    /// Reads.
    Read,
    /// Writes, and writes of zeroes.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Discard,
}

impl Which {
    /// Every word with its meaning.
    const WORDS: [(&'static str, Which); 5] = [
        ("all", Which::All),
        ("read", Which::Read),
        ("write", Which::Write),
        ("flush", Which::Flush),
        ("discard", Which::Discard),
    ];

    /// The word's meaning: `all`, `read`, `write`, `flush` or `discard`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(name, _)| *name == word).map(|(_, which)| *which)
    }

    /// Whether the rule is for this request.
    #[must_use]
    pub fn covers(self, request: &Request) -> bool {
        match self {
            Which::All => true,
            Which::Read => matches!(request, Request::Read { .. }),
            Which::Write => matches!(request, Request::Write { .. } | Request::WriteZeroes { .. }),
            Which::Flush => matches!(request, Request::Flush),
            Which::Discard => matches!(request, Request::Discard { .. }),
        }
    }
}

#[cfg(test)]
mod tests;
