//! What Noise is made of: X25519 and AES-256-GCM of the library that guards our packets too, and an ephemeral key. Keys are wiped
//! when a handshake is dropped, which those that come with the library of Noise are not.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use zeroize::Zeroizing;

use crate::keys::{exchange, public};
use crate::wire::packet::TAG_BYTES;

/// Gives Noise its algorithms, and this ephemeral key, which nobody else has.
pub(crate) struct Resolver(pub(crate) Zeroizing<[u8; 32]>);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Drawn(Some(self.0.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::<KeyPair>::default() as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::AESGCM).then(|| Box::<AesGcm>::default() as Box<dyn Cipher>)
    }
}

/// An ephemeral key that was drawn before; a handshake needs one.
struct Drawn(Option<Zeroizing<[u8; 32]>>);

impl Random for Drawn {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        let drawn = self.0.take().filter(|drawn| drawn.len() == dest.len()).ok_or(Error::Rng)?;
        dest.copy_from_slice(&*drawn);
        Ok(())
    }
}

#[derive(Default)]
struct KeyPair {
    private: Zeroizing<[u8; 32]>,
    public: [u8; 32],
}

impl Dh for KeyPair {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        self.public.len()
    }

    fn priv_len(&self) -> usize {
        self.private.len()
    }

    /// A key that the library refuses leaves no pair: no exchange succeeds with it.
    fn set(&mut self, private: &[u8]) {
        self.private.copy_from_slice(private);
        self.public = public(&self.private).unwrap_or_default();
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), Error> {
        random.try_fill_bytes(&mut *self.private)?;
        self.public = public(&self.private).map_err(|_| Error::Dh)?;
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.private
    }

    fn dh(&self, theirs: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let theirs = theirs.first_chunk().ok_or(Error::Dh)?;
        let shared = exchange(&self.private, theirs).map_err(|_| Error::Dh)?;
        out.first_chunk_mut().ok_or(Error::Dh).map(|out| *out = *shared)
    }
}

#[derive(Default)]
struct AesGcm(Option<LessSafeKey>);

impl Cipher for AesGcm {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0 = UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new);
    }

    /// Without a key nothing is written, and what is read at the other end does not verify.
    fn encrypt(&self, number: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let Some(key) = &self.0 else { return 0 };
        let (text, rest) = out.split_at_mut(plaintext.len());
        text.copy_from_slice(plaintext);
        let Ok(tag) = key.seal_in_place_separate_tag(nonce(number), Aad::from(authtext), text) else { return 0 };
        rest[..TAG_BYTES].copy_from_slice(tag.as_ref());
        plaintext.len() + TAG_BYTES
    }

    fn decrypt(&self, number: u64, authtext: &[u8], ciphertext: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        let key = self.0.as_ref().ok_or(Error::Decrypt)?;
        let length = ciphertext.len().checked_sub(TAG_BYTES).ok_or(Error::Decrypt)?;
        let (text, tag) = ciphertext.split_at(length);
        let out = out.get_mut(..length).ok_or(Error::Decrypt)?;
        key.open_separate_gather(nonce(number), Aad::from(authtext), text, tag, out).map_err(|_| Error::Decrypt)?;
        Ok(length)
    }
}

/// Noise 12.3: 32 bits of zeroes, then the number.
fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use snow::{Builder, HandshakeState};

    use super::*;

    const PATTERN: &str = "Noise_XXpsk3_25519_AESGCM_SHA256";

    fn end(is_ours: bool, is_initiator: bool, psk: &[u8; 32]) -> HandshakeState {
        let params = PATTERN.parse().unwrap();
        let builder = match is_ours {
            true => Builder::with_resolver(params, Box::new(Resolver(Zeroizing::new([7; 32])))),
            false => Builder::new(params),
        };
        let private = [1 + u8::from(is_initiator); 32];
        let builder = builder.local_private_key(&private).unwrap().psk(3, psk).unwrap();
        if is_initiator { builder.build_initiator().unwrap() } else { builder.build_responder().unwrap() }
    }

    /// The library's own algorithms are the reference.
    #[test]
    fn a_handshake_with_other_algorithms_of_the_same_names_comes_to_the_same_keys() {
        for (ours_begins, psk, is_right) in [(true, [3; 32], true), (false, [3; 32], true), (true, [4; 32], false)] {
            let mut ends = [end(ours_begins, true, &[3; 32]), end(!ours_begins, false, &psk)];
            let mut was_read = true;
            for step in 0..3 {
                let (mut message, mut payload) = ([0; 512], [0; 512]);
                let length = ends[step % 2].write_message(b"an offer", &mut message).unwrap();
                let read = ends[1 - step % 2].read_message(&message[..length], &mut payload);
                was_read &= read.is_ok_and(|length| &payload[..length] == b"an offer");
            }
            assert_eq!(was_read, is_right);
            let keys = ends.each_mut().map(HandshakeState::dangerously_get_raw_split);
            assert_eq!(keys[0] == keys[1], is_right);
        }
    }

    #[test]
    fn a_public_key_of_small_order_is_refused() {
        let mut pair = KeyPair::default();
        pair.set(&[5; 32]);
        let mut shared = [9; 32];
        assert!(pair.dh(&[0; 32], &mut shared).is_err() && shared == [9; 32]);
    }
}
