//! Keys: who an end is, and where its random numbers come from.

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::digest;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sanwire_core::ClientId;
use zeroize::Zeroizing;

/// The secret that both ends share: [`NO_PASSWORD`] when no password is set.
pub type Psk = [u8; 32];

/// The secret of servers and clients without a password.
pub const NO_PASSWORD: Psk = [0; 32];

/// An end's static key pair.
#[derive(Clone)]
pub struct Identity {
    private: Zeroizing<[u8; 32]>,
    public: [u8; 32],
}

impl Identity {
    /// The identity with this X25519 private key.
    ///
    /// # Errors
    /// [`KeyError`] when the library refuses the key.
    pub fn from_private(private: [u8; 32]) -> Result<Identity, KeyError> {
        let private = Zeroizing::new(private);
        let public = public(&private)?;
        Ok(Identity { private, public })
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// A key for this purpose, which nobody else has and which is the same each time the server starts.
    pub fn key_for(&self, purpose: &[u8]) -> [u8; 16] {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(purpose);
        context.update(&*self.private);
        let mut key = [0; 16];
        key.copy_from_slice(&context.finish().as_ref()[..16]);
        key
    }

    /// The private key.
    pub fn private(&self) -> &[u8; 32] {
        &self.private
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
pub fn client_id(public: &[u8]) -> ClientId {
    let hash = digest::digest(&digest::SHA256, public);
    let mut id = [0; 16];
    id.copy_from_slice(&hash.as_ref()[..16]);
    ClientId(id)
}

/// The X25519 public key of a private one.
pub fn public(private: &[u8; 32]) -> Result<[u8; 32], KeyError> {
    let private = PrivateKey::from_private_key(&X25519, private).map_err(|_| KeyError)?;
    let public = private.compute_public_key().map_err(|_| KeyError)?;
    public.as_ref().try_into().map_err(|_| KeyError)
}

/// RFC 7748 6.1: a public key of small order, which would give zeroes, is refused.
pub fn exchange(private: &[u8; 32], public: &[u8; 32]) -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let private = PrivateKey::from_private_key(&X25519, private).map_err(|_| KeyError)?;
    agree(&private, UnparsedPublicKey::new(&X25519, public), KeyError, |shared| {
        let mut secret = Zeroizing::new([0; 32]);
        secret.copy_from_slice(shared.get(..32).ok_or(KeyError)?);
        Ok(secret)
    })
}

/// The cryptographic library refused: a key of a wrong form, or a message that does not verify.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the handshake does not verify")]
pub struct KeyError;

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
pub struct Randomness(ChaCha20Rng);

impl Randomness {
    /// Of this seed.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Randomness(ChaCha20Rng::from_seed(seed))
    }

    /// A number.
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number.
    pub fn u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A key of 32 bytes.
    pub fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    /// A key of 16 bytes.
    pub fn key(&mut self) -> [u8; 16] {
        let mut key = [0; 16];
        self.0.fill_bytes(&mut key);
        key
    }
}
