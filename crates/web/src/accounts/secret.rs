//! Random secrets, and what is kept of them.

use std::fmt;
use std::io;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// How a token begins, so that who finds one knows what it is.
pub(super) const TOKEN_PREFIX: &str = "swt_";

const SECRET_BYTES: usize = 32;

const DIGEST_BYTES: usize = 32;

/// A random secret, as its owner keeps it: 64 hexadecimal digits.
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn random() -> io::Result<Self> {
        Ok(Secret(HEXLOWER.encode(&random::<SECRET_BYTES>()?)))
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// As a token.
    pub(crate) fn token(&self) -> String {
        format!("{TOKEN_PREFIX}{}", self.0)
    }
}

/// So many random bytes.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| io::Error::other("the system's generator of random numbers failed"))?;
    Ok(bytes)
}

/// The SHA-256 of a secret. That is all that is kept of one: it has no less than 256 random bits, so nobody guesses it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Digest([u8; DIGEST_BYTES]);

impl Digest {
    pub(crate) fn of(text: &str) -> Self {
        let mut bytes = [0; DIGEST_BYTES];
        bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Digest(bytes)
    }

    /// A number of which something else has another one. JSON has it exactly.
    pub(crate) fn revision(&self) -> u64 {
        self.0[..6].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Its first digits: enough to tell it from others, and nothing that helps to find the secret.
    pub(crate) fn id(&self) -> String {
        HEXLOWER.encode(&self.0[..6])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Digest).ok_or_else(|| de::Error::custom("a digest has 64 hexadecimal digits"))
    }
}
