//! The state of a handshake of Noise_XX_25519_AESGCM_SHA256 (Noise Protocol Framework, revision 34), to which both ends come step by
//! step. A copy of it tries a message: when that does not verify, another one can be tried as the same step.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{self, SHA256};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use zeroize::Zeroizing;

use crate::TAG_BYTES;
use crate::keys::KeyError;
use crate::ring::Secret;

const NAME: &[u8; 28] = b"Noise_XX_25519_AESGCM_SHA256";

/// Noise 5.2: SymmetricState, and the CipherState within.
#[derive(Clone)]
pub(crate) struct Symmetric {
    hash: [u8; 32],
    chaining: Secret,
    key: Option<Secret>,
    number: u64,
}

impl Symmetric {
    /// Before the first step.
    pub(crate) fn new(prologue: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash[..NAME.len()].copy_from_slice(NAME);
        let mut state = Symmetric { hash, chaining: Zeroizing::new(hash), key: None, number: 0 };
        state.mix_hash(prologue);
        state
    }

    /// All that both ends have said so far.
    pub(crate) fn hash(&self) -> [u8; 32] {
        self.hash
    }

    /// Something that both ends have said.
    pub(crate) fn mix_hash(&mut self, said: &[u8]) {
        let mut context = digest::Context::new(&SHA256);
        context.update(&self.hash);
        context.update(said);
        self.hash.copy_from_slice(context.finish().as_ref());
    }

    /// Something that both ends know.
    pub(crate) fn mix_key(&mut self, known: &[u8]) {
        let [chaining, key] = derive(&self.chaining, known);
        (self.chaining, self.key, self.number) = (chaining, Some(key), 0);
    }

    /// `EncryptAndHash`: as it is, as long as there is no key.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, KeyError> {
        let mut sealed = plain.to_vec();
        if let Some(key) = &self.key {
            seal(key, self.number, &self.hash, &mut sealed)?;
            self.number += 1;
        }
        self.mix_hash(&sealed);
        Ok(sealed)
    }

    /// `DecryptAndHash`. After an error the state is of no more use.
    pub(crate) fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, KeyError> {
        let mut plain = sealed.to_vec();
        if let Some(key) = &self.key {
            open(key, self.number, &self.hash, &mut plain)?;
            self.number += 1;
        }
        self.mix_hash(sealed);
        Ok(plain)
    }

    /// `Split`: the keys of the initiator's direction and of the responder's.
    pub(crate) fn split(&self) -> [Secret; 2] {
        derive(&self.chaining, &[])
    }
}

/// Noise 4.3: HKDF with two outputs.
fn derive(chaining: &Secret, input: &[u8]) -> [Secret; 2] {
    let key = hmac::Key::new(HMAC_SHA256, &*extract(&**chaining, input));
    let first = sign(&key, &[&[1]]);
    let second = sign(&key, &[&*first, &[2]]);
    [first, second]
}

/// HKDF-Extract (RFC 5869 2.2).
pub(crate) fn extract(salt: &[u8], input: &[u8]) -> Secret {
    sign(&hmac::Key::new(HMAC_SHA256, salt), &[input])
}

fn sign(key: &hmac::Key, parts: &[&[u8]]) -> Secret {
    let mut context = hmac::Context::with_key(key);
    parts.iter().for_each(|part| context.update(part));
    let mut signed = Zeroizing::new([0; 32]);
    signed.copy_from_slice(context.sign().as_ref());
    signed
}

/// Encrypts in place; the tag follows.
pub(crate) fn seal(key: &Secret, number: u64, covered: &[u8], text: &mut Vec<u8>) -> Result<(), KeyError> {
    let key = UnboundKey::new(&AES_256_GCM, &**key).map(LessSafeKey::new).map_err(|_| KeyError)?;
    key.seal_in_place_append_tag(nonce(number), Aad::from(covered), text).map_err(|_| KeyError)
}

/// Verifies and decrypts in place; the tag is gone.
pub(crate) fn open(key: &Secret, number: u64, covered: &[u8], text: &mut Vec<u8>) -> Result<(), KeyError> {
    let length = text.len().checked_sub(TAG_BYTES).ok_or(KeyError)?;
    let key = UnboundKey::new(&AES_256_GCM, &**key).map(LessSafeKey::new).map_err(|_| KeyError)?;
    key.open_in_place(nonce(number), Aad::from(covered), text).map_err(|_| KeyError)?;
    text.truncate(length);
    Ok(())
}

/// Noise 12.3: 32 bits of zeroes, then the number.
fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}
