//! CHAP (RFC 7143 12.1.3, RFC 1994): who somebody is, shown without telling the secret.

use std::fmt;

/// A shared secret. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ChapSecret(Vec<u8>);

impl ChapSecret {
    /// A secret of these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        ChapSecret(bytes)
    }
}

impl fmt::Debug for ChapSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChapSecret(...)")
    }
}

/// A name and its secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credential {
    /// The CHAP name (CHAP_N).
    pub name: String,
    /// What goes with it.
    pub secret: ChapSecret,
}
