//! CHAP (RFC 7143 12.1.3, RFC 1994): who somebody is, shown without telling the secret.

mod binary;

use std::fmt;
use std::str::FromStr;

use md5::Md5;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;
use sha1::Sha1;
use sha2::Sha256;
use sha3::Sha3_256;
use sha3::digest::Digest;
use subtle::ConstantTimeEq;

pub(crate) use binary::decode;
use binary::encode;

use crate::text::TextWriter;

/// The longest challenge, in bytes (RFC 7143 12.1.3).
const CHALLENGE_MAX_BYTES: usize = 1024;

/// The shortest secret, in bytes. RFC 7143 9.2.1 allows no login with less than 96 bits unless IPsec protects it, of which
/// neither end knows anything here.
const SECRET_MIN_BYTES: usize = 12;

/// A secret that is too short for any login.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the secret is too short: use at least {SECRET_MIN_BYTES} bytes, the same at both ends")]
pub struct SecretTooShort;

/// A shared secret, long enough to be used. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ChapSecret(Vec<u8>);

impl ChapSecret {
    /// A secret of these bytes.
    ///
    /// # Errors
    /// When there are fewer than 12.
    pub fn new(bytes: Vec<u8>) -> Result<Self, SecretTooShort> {
        if bytes.len() < SECRET_MIN_BYTES { Err(SecretTooShort) } else { Ok(ChapSecret(bytes)) }
    }

    /// The SHA-256 of its bytes: by it one sees whether a secret is another one than before.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(&self.0).into()
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

/// What a response is made with, the strongest last; the numbers are IANA's for PPP authentication. Made from text by `parse`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ChapAlgorithm {
    /// `md5`, which every end has (RFC 7143 12.1.3).
    Md5 = 5,
    /// `sha1`.
    Sha1 = 6,
    /// `sha256`.
    Sha256 = 7,
    /// `sha3-256`.
    Sha3 = 8,
}

/// A text that names no algorithm.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is no algorithm of CHAP: use md5, sha1, sha256 or sha3-256")]
pub struct ChapAlgorithmError(String);

impl fmt::Display for ChapAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChapAlgorithm::Md5 => "md5",
            ChapAlgorithm::Sha1 => "sha1",
            ChapAlgorithm::Sha256 => "sha256",
            ChapAlgorithm::Sha3 => "sha3-256",
        })
    }
}

impl FromStr for ChapAlgorithm {
    type Err = ChapAlgorithmError;

    fn from_str(text: &str) -> Result<Self, ChapAlgorithmError> {
        match text {
            "md5" => Ok(ChapAlgorithm::Md5),
            "sha1" => Ok(ChapAlgorithm::Sha1),
            "sha256" => Ok(ChapAlgorithm::Sha256),
            "sha3-256" => Ok(ChapAlgorithm::Sha3),
            _ => Err(ChapAlgorithmError(text.to_owned())),
        }
    }
}

impl ChapAlgorithm {
    const ALL: [ChapAlgorithm; 4] =
        [ChapAlgorithm::Sha3, ChapAlgorithm::Sha256, ChapAlgorithm::Sha1, ChapAlgorithm::Md5];

    /// What we offer: the strongest first.
    pub(crate) const OFFER: &str = "8,7,6,5";

    /// The algorithm of this number, in decimal or hexadecimal.
    pub(crate) fn from_number(text: &str) -> Option<Self> {
        let number = number(text)?;
        Self::ALL.into_iter().find(|algorithm| *algorithm as u8 == number)
    }

    /// RFC 7143 6.2.1: the first of the other end's list (CHAP_A) that is allowed; without any allowed, all are.
    pub(crate) fn first_of(list: &str, allowed: &[Self]) -> Option<Self> {
        let is_allowed = |algorithm: &Self| allowed.is_empty() || allowed.contains(algorithm);
        list.split(',').filter_map(Self::from_number).find(is_allowed)
    }

    /// Bytes of a response; challenges are as long.
    pub(crate) fn bytes(self) -> usize {
        match self {
            ChapAlgorithm::Md5 => 16,
            ChapAlgorithm::Sha1 => 20,
            ChapAlgorithm::Sha256 | ChapAlgorithm::Sha3 => 32,
        }
    }

    /// The response to a challenge (RFC 1994 4.1).
    pub(crate) fn response(self, identifier: u8, secret: &ChapSecret, challenge: &[u8]) -> Vec<u8> {
        match self {
            ChapAlgorithm::Md5 => respond::<Md5>(identifier, secret, challenge),
            ChapAlgorithm::Sha1 => respond::<Sha1>(identifier, secret, challenge),
            ChapAlgorithm::Sha256 => respond::<Sha256>(identifier, secret, challenge),
            ChapAlgorithm::Sha3 => respond::<Sha3_256>(identifier, secret, challenge),
        }
    }
}

fn respond<D: Digest>(identifier: u8, secret: &ChapSecret, challenge: &[u8]) -> Vec<u8> {
    let mut digest = D::new();
    digest.update([identifier]);
    digest.update(&secret.0);
    digest.update(challenge);
    digest.finalize().to_vec()
}

/// What one end asks the other: the answer shows that it knows the secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Challenge {
    pub(crate) algorithm: ChapAlgorithm,
    pub(crate) identifier: u8,
    pub(crate) bytes: Vec<u8>,
}

impl Challenge {
    /// The challenge in CHAP_I and CHAP_C; `None` when one of them is not what it should be.
    pub(crate) fn read(algorithm: ChapAlgorithm, identifier: &str, challenge: &str) -> Option<Self> {
        let bytes = decode(challenge, CHALLENGE_MAX_BYTES).filter(|bytes| !bytes.is_empty())?;
        Some(Challenge { algorithm, identifier: number(identifier)?, bytes })
    }

    /// A challenge that nobody can foresee, as long as the responses.
    pub(crate) fn fresh(algorithm: ChapAlgorithm, random: &mut ChaCha20Rng) -> Self {
        let mut bytes = vec![0; algorithm.bytes()];
        random.fill_bytes(&mut bytes);
        let [identifier, ..] = random.next_u32().to_le_bytes();
        Challenge { algorithm, identifier, bytes }
    }

    /// Puts CHAP_I and CHAP_C into a text.
    pub(crate) fn write(&self, text: &mut TextWriter) {
        text.push("CHAP_I", &self.identifier.to_string());
        text.push("CHAP_C", &encode(&self.bytes));
    }

    /// CHAP_R of somebody who knows the secret.
    pub(crate) fn response(&self, secret: &ChapSecret) -> String {
        encode(&self.algorithm.response(self.identifier, secret, &self.bytes))
    }

    /// Whether CHAP_R shows knowledge of the secret. The time that it takes tells nothing about how near it was.
    pub(crate) fn is_met(&self, response: &str, secret: &ChapSecret) -> bool {
        let expected = self.algorithm.response(self.identifier, secret, &self.bytes);
        decode(response, expected.len()).is_some_and(|found| bool::from(found.ct_eq(&expected)))
    }
}

/// A number of one byte: decimal, `0x` hexadecimal or `0b` base64.
fn number(text: &str) -> Option<u8> {
    if !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit()) {
        return text.parse().ok();
    }
    match decode(text, 1)?[..] {
        [byte] => Some(byte),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
