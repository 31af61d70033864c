//! Keys: who an end is, the handshake, and the seals of a connection's control packets.
//!
//! The handshake is Noise_XXpsk3_25519_AESGCM_SHA256. Its two keys then drive AES-256-GCM with an explicit packet
//! number as nonce; its hash salts the checksums of the connection's data packets.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::digest;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sanwire_core::ClientId;
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};

use crate::wire::packet::Salt;

const PATTERN: &str = "Noise_XXpsk3_25519_AESGCM_SHA256";

/// The longest Noise message that either end takes, in bytes.
pub(crate) const NOISE_MAX_BYTES: usize = 512;

/// The secret that both ends share: all zeroes when no password is set.
pub type Psk = [u8; 32];

/// An end's static key pair.
#[derive(Clone)]
pub struct Identity {
    private: [u8; 32],
    public: [u8; 32],
}

impl Identity {
    /// The identity with this X25519 private key.
    ///
    /// # Errors
    /// [`KeyError`] when the library refuses the key.
    pub fn from_private(private: [u8; 32]) -> Result<Identity, KeyError> {
        let mut dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519).ok_or(KeyError)?;
        dh.set(&private);
        let public = dh.pubkey().try_into().map_err(|_| KeyError)?;
        Ok(Identity { private, public })
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// The id by which servers know this client.
    #[must_use]
    pub fn client_id(&self) -> ClientId {
        client_id(&self.public)
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.client_id())
    }
}

/// The id of the client with this public key: the first half of its SHA-256.
pub(crate) fn client_id(public: &[u8]) -> ClientId {
    let hash = digest::digest(&digest::SHA256, public);
    let mut id = [0; 16];
    id.copy_from_slice(&hash.as_ref()[..16]);
    ClientId(id)
}

/// The cryptographic library refused: a key of a wrong form, or a message that does not verify.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the handshake does not verify")]
pub struct KeyError;

impl From<snow::Error> for KeyError {
    fn from(_: snow::Error) -> Self {
        KeyError
    }
}

/// Random bytes from the operating system, for seeds and keys.
///
/// # Errors
/// [`KeyError`] when the system has none.
pub fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| KeyError)?;
    Ok(bytes)
}

/// All randomness of a machine, from one seed: the same seed gives the same run.
pub(crate) struct Randomness(ChaCha20Rng);

impl Randomness {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Randomness(ChaCha20Rng::from_seed(seed))
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(crate) fn u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    fn fork(&mut self) -> ChaCha20Rng {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        ChaCha20Rng::from_seed(seed)
    }
}

struct SeededRandom(ChaCha20Rng);

impl Random for SeededRandom {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill_bytes(dest);
        Ok(())
    }
}

/// Noise's own algorithms, with our randomness.
struct Resolver(ChaCha20Rng);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SeededRandom(self.0.clone())))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// One end of a handshake under way.
pub(crate) struct Handshake(HandshakeState);

impl Handshake {
    pub(crate) fn initiator(
        identity: &Identity,
        psk: &Psk,
        prologue: &[u8],
        random: &mut Randomness,
    ) -> Result<Self, KeyError> {
        Ok(Handshake(builder(identity, psk, prologue, random)?.build_initiator()?))
    }

    pub(crate) fn responder(
        identity: &Identity,
        psk: &Psk,
        prologue: &[u8],
        random: &mut Randomness,
    ) -> Result<Self, KeyError> {
        Ok(Handshake(builder(identity, psk, prologue, random)?.build_responder()?))
    }

    pub(crate) fn write(&mut self, payload: &[u8]) -> Result<Vec<u8>, KeyError> {
        let mut message = vec![0; NOISE_MAX_BYTES];
        let length = self.0.write_message(payload, &mut message)?;
        message.truncate(length);
        Ok(message)
    }

    pub(crate) fn read(&mut self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        if message.len() > NOISE_MAX_BYTES {
            return Err(KeyError);
        }
        let mut payload = vec![0; NOISE_MAX_BYTES];
        let length = self.0.read_message(message, &mut payload)?;
        payload.truncate(length);
        Ok(payload)
    }

    /// The far end's static public key, once it has been received.
    pub(crate) fn remote_public(&self) -> Option<&[u8]> {
        self.0.get_remote_static()
    }

    /// The keys of the connection, after the third step.
    pub(crate) fn finish(mut self) -> Result<Seals, KeyError> {
        if !self.0.is_handshake_finished() {
            return Err(KeyError);
        }
        let mut salt = [0; 4];
        salt.copy_from_slice(&self.0.get_handshake_hash()[..4]);
        let initiator = self.0.is_initiator();
        let (from_initiator, from_responder) = self.0.dangerously_get_raw_split();
        let (ours, theirs) =
            if initiator { (from_initiator, from_responder) } else { (from_responder, from_initiator) };
        Ok(Seals { salt: Salt(u32::from_be_bytes(salt)), ours: key(&ours)?, theirs: key(&theirs)? })
    }
}

fn builder<'a>(
    identity: &'a Identity,
    psk: &'a Psk,
    prologue: &'a [u8],
    random: &mut Randomness,
) -> Result<Builder<'a>, KeyError> {
    let params: NoiseParams = PATTERN.parse()?;
    let builder = Builder::with_resolver(params, Box::new(Resolver(random.fork())));
    Ok(builder.prologue(prologue)?.local_private_key(&identity.private)?.psk(3, psk)?)
}

fn key(bytes: &[u8; 32]) -> Result<LessSafeKey, KeyError> {
    UnboundKey::new(&AES_256_GCM, bytes).map(LessSafeKey::new).map_err(|_| KeyError)
}

/// The keys of one connection, seen from one end.
pub(crate) struct Seals {
    /// What the checksums of the connection's data packets begin with.
    pub(crate) salt: Salt,
    ours: LessSafeKey,
    theirs: LessSafeKey,
}

impl Seals {
    /// Encrypts `body` in place and appends its tag. A number is used once only.
    pub(crate) fn seal(&self, number: u64, associated: &[u8], body: &mut Vec<u8>) -> Result<(), KeyError> {
        self.ours.seal_in_place_append_tag(nonce(number), Aad::from(associated), body).map_err(|_| KeyError)
    }

    /// Verifies and decrypts.
    pub(crate) fn open(&self, number: u64, associated: &[u8], sealed: &[u8]) -> Result<Vec<u8>, KeyError> {
        let mut body = sealed.to_vec();
        let length =
            self.theirs.open_in_place(nonce(number), Aad::from(associated), &mut body).map_err(|_| KeyError)?.len();
        body.truncate(length);
        Ok(body)
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shake(client_psk: Psk, server_psk: Psk) -> Result<(Seals, Seals), KeyError> {
        let client = Identity::from_private([1; 32]).unwrap();
        let server = Identity::from_private([2; 32]).unwrap();
        let mut random = Randomness::new([9; 32]);
        let mut initiator = Handshake::initiator(&client, &client_psk, b"p", &mut random)?;
        let mut responder = Handshake::responder(&server, &server_psk, b"p", &mut random)?;
        responder.read(&initiator.write(b"")?)?;
        assert_eq!(initiator.read(&responder.write(b"offer")?)?, b"offer");
        responder.read(&initiator.write(b"mine")?)?;
        assert_eq!(responder.remote_public(), Some(&client.public()[..]));
        Ok((initiator.finish()?, responder.finish()?))
    }

    #[test]
    fn both_ends_come_to_the_same_keys() {
        let (client, server) = shake([3; 32], [3; 32]).unwrap();
        assert_eq!(client.salt, server.salt);
        let mut body = b"hello".to_vec();
        client.seal(7, b"header", &mut body).unwrap();
        assert_eq!(server.open(7, b"header", &body).unwrap(), b"hello");
        assert!(server.open(8, b"header", &body).is_err(), "another number");
        assert!(server.open(7, b"hEader", &body).is_err(), "another header");
        assert!(client.open(7, b"header", &body).is_err(), "reflected to its sender");
    }

    #[test]
    fn another_password_does_not_verify() {
        assert!(shake([3; 32], [4; 32]).is_err());
    }
}
