//! Keys: who an end is, and the handshake.
//!
//! The handshake is Noise_XXpsk3_25519_AESGCM_SHA256. Its two keys are the first secrets of the connection's key ring.

use aws_lc_rs::digest;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sanwire_core::ClientId;
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use crate::ring::KeyRing;

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

    /// A key for this purpose, which nobody else has and which is the same each time the server starts.
    pub(crate) fn key_for(&self, purpose: &[u8]) -> [u8; 16] {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(purpose);
        context.update(&self.private);
        let mut key = [0; 16];
        key.copy_from_slice(&context.finish().as_ref()[..16]);
        key
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

    pub(crate) fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    pub(crate) fn key(&mut self) -> [u8; 16] {
        let mut key = [0; 16];
        self.0.fill_bytes(&mut key);
        key
    }

    fn fork(&mut self) -> ChaCha20Rng {
        ChaCha20Rng::from_seed(self.bytes())
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
    pub(crate) fn finish(mut self) -> Result<KeyRing, KeyError> {
        if !self.0.is_handshake_finished() {
            return Err(KeyError);
        }
        let initiator = self.0.is_initiator();
        let (from_initiator, from_responder) = self.0.dangerously_get_raw_split();
        let (ours, theirs) =
            if initiator { (from_initiator, from_responder) } else { (from_responder, from_initiator) };
        KeyRing::new(Zeroizing::new(ours), Zeroizing::new(theirs))
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Both ends' rings after a handshake, the client's first.
    pub(crate) fn shake(client_psk: Psk, server_psk: Psk) -> Result<(KeyRing, KeyRing), KeyError> {
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
    fn another_password_does_not_verify() {
        assert!(shake([3; 32], [4; 32]).is_err());
    }
}
