//! The keys of a living connection: one for each direction, generation and protection, made when first needed.
//!
//! The handshake gives the secrets of generation 0. Later ones are made of the one before and a fresh key exchange, so who
//! learns a secret reads neither what was sent before nor, once the next generation is in use, what is sent after.

mod rekey;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use sanwire_core::{Instant, Protection};
use zeroize::Zeroizing;

use self::rekey::{Answered, Asked};
use crate::keys::KeyError;
use crate::{HeaderKey, TAG_BYTES};

/// What the keys of a direction are made of.
pub type Secret = Zeroizing<[u8; 32]>;

/// Key epochs that packets tell apart.
pub const EPOCHS: u8 = 16;

/// The parts of a protected packet.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'a> {
    /// What stands before the body.
    pub prefix: &'a [u8],
    /// The body without its tag.
    pub body: &'a [u8],
    /// Both together.
    pub all: &'a [u8],
    /// The tag.
    pub tag: &'a [u8],
}

/// One end's part in an exchange for new keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewKeys {
    /// The generation of keys that comes of it.
    pub epoch: u64,
    /// An X25519 public key that is used for nothing else.
    pub public: [u8; 32],
}

/// The label of every key; the protection's number follows, 0 for that of the headers.
const LABEL: &[u8] = b"sanwire hyperscsi ";

/// What one direction of a generation is used for, before new keys are asked for; at twice as much it is used no more.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Packets.
    pub packets: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl Limits {
    /// Far below what wears the ciphers out (AES-GCM: 2^64 blocks at 2^-32, with nonces that never come again).
    pub const USUAL: Limits = Limits { packets: 1 << 32, bytes: 1 << 40 };
}

/// The keys of one direction in one generation.
struct Direction {
    secret: Secret,
    keys: [Option<LessSafeKey>; Protection::ALL.len()],
    packets: u64,
    bytes: u64,
}

impl Direction {
    fn new(secret: Secret) -> Self {
        Direction { secret, keys: Default::default(), packets: 0, bytes: 0 }
    }

    fn note(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }

    fn is_within(&self, limits: Limits) -> bool {
        self.packets < limits.packets && self.bytes < limits.bytes
    }

    /// The key for a protection other than a checksum.
    fn key(&mut self, protection: Protection) -> Result<&LessSafeKey, KeyError> {
        let slot = &mut self.keys[protection as usize];
        if slot.is_none() {
            *slot = Some(derive(&self.secret, protection)?);
        }
        slot.as_ref().ok_or(KeyError)
    }
}

struct KeyBytes(usize);

impl KeyType for KeyBytes {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive(secret: &Secret, protection: Protection) -> Result<LessSafeKey, KeyError> {
    let algorithm = match protection {
        Protection::Checksum => return Err(KeyError),
        Protection::Hash | Protection::Aes256Gcm => &AES_256_GCM,
        Protection::Aes128Gcm => &AES_128_GCM,
        Protection::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    };
    let mut bytes = Zeroizing::new([0; 32]);
    let bytes = bytes.get_mut(..algorithm.key_len()).ok_or(KeyError)?;
    expand(secret, protection, bytes)?;
    UnboundKey::new(algorithm, bytes).map(LessSafeKey::new).map_err(|_| KeyError)
}

fn expand(secret: &Secret, protection: Protection, key: &mut [u8]) -> Result<(), KeyError> {
    let info: [&[u8]; 2] = [LABEL, &[protection as u8]];
    let prk = Prk::new_less_safe(HKDF_SHA256, &**secret);
    let expanded = prk.expand(&info, KeyBytes(key.len())).map_err(|_| KeyError)?;
    expanded.fill(key).map_err(|_| KeyError)
}

/// The keys of both directions' unprotected packets. They keep nothing secret, and no packet number comes twice, so they hold
/// as long as the connection.
#[derive(Debug)]
pub struct HeaderKeys {
    /// Of what we send.
    pub outward: HeaderKey,
    /// Of what we receive.
    pub inward: HeaderKey,
}

fn header_key(secret: &Secret) -> Result<HeaderKey, KeyError> {
    let mut key = Zeroizing::new([0; 16]);
    expand(secret, Protection::Checksum, &mut *key)?;
    Ok(HeaderKey::new(&key))
}

/// The keys of one generation, seen from one end.
struct Generation {
    epoch: u64,
    outward: Direction,
    inward: Direction,
}

/// The keys of one connection, seen from one end.
pub struct KeyRing {
    /// The keys of unprotected packets.
    pub headers: HeaderKeys,
    limits: Limits,
    current: Generation,
    /// The one before, and until when it is received.
    previous: Option<(Generation, Instant)>,
    /// The one that a client has agreed to: received, and sent under once a packet of it has arrived.
    next: Option<Generation>,
    asked: Option<Asked>,
    answered: Option<Answered>,
}

impl KeyRing {
    /// The ring after the handshake: what we send and what we receive under.
    pub fn new(outward: Secret, inward: Secret) -> Result<Self, KeyError> {
        let headers = HeaderKeys { outward: header_key(&outward)?, inward: header_key(&inward)? };
        let current = Generation { epoch: 0, outward: Direction::new(outward), inward: Direction::new(inward) };
        let limits = Limits::USUAL;
        Ok(KeyRing { headers, limits, current, previous: None, next: None, asked: None, answered: None })
    }

    /// Whether the keys have been used so much that new ones should be asked for.
    pub fn is_worn(&self) -> bool {
        !(self.current.outward.is_within(self.limits) && self.current.inward.is_within(self.limits))
    }

    /// Whether packets of this generation have arrived.
    pub fn is_confirmed(&self) -> bool {
        self.current.epoch == 0 || self.current.inward.packets > 0
    }

    /// The direction to send in, for one more packet.
    fn outward(&mut self, bytes: usize) -> Result<&mut Direction, KeyError> {
        let Limits { packets, bytes: bytes_max } = self.limits;
        let outward = &mut self.current.outward;
        if !outward.is_within(Limits { packets: packets * 2, bytes: bytes_max * 2 }) {
            return Err(KeyError);
        }
        outward.note(bytes);
        Ok(outward)
    }

    /// The epoch to send under, as the prefix names it.
    pub fn epoch(&self) -> u8 {
        self.current.nibble()
    }

    /// Encrypts a packet, whose prefix is covered too: the body in place, and behind it `more`, which becomes `sealed`, its
    /// ciphertext and the tag. A number is used once only.
    pub fn seal(
        &mut self,
        protection: Protection,
        number: u64,
        prefix: &[u8],
        body: &mut [u8],
        more: &[u8],
        sealed: &mut [u8],
    ) -> Result<(), KeyError> {
        let key = self.outward(prefix.len() + body.len() + more.len())?.key(protection)?;
        key.seal_in_place_scatter(nonce(number), Aad::from(prefix), body, more, sealed).map_err(|_| KeyError)
    }

    /// The tag of a packet that everybody may read.
    pub fn hash(&mut self, number: u64, packet: &[u8]) -> Result<[u8; TAG_BYTES], KeyError> {
        let key = self.outward(packet.len())?.key(Protection::Hash)?;
        let tag = key.seal_in_place_separate_tag(nonce(number), Aad::from(packet), &mut []).map_err(|_| KeyError)?;
        tag.as_ref().try_into().map_err(|_| KeyError)
    }

    /// Puts the two parts of a packet that everybody may read into `packet`, and their tag behind them. It is as long as all three.
    pub fn hash_into(&mut self, number: u64, parts: [&[u8]; 2], packet: &mut [u8]) -> Result<(), KeyError> {
        let [first, second] = parts;
        let (covered, tag) = packet.split_at_mut_checked(first.len() + second.len()).ok_or(KeyError)?;
        let place = tag.first_chunk_mut().ok_or(KeyError)?;
        covered[..first.len()].copy_from_slice(first);
        covered[first.len()..].copy_from_slice(second);
        *place = self.hash(number, covered)?;
        Ok(())
    }

    /// Verifies a packet and gives its body: decrypted into `plain`, or as it came when it was not encrypted.
    pub fn open<'a>(
        &mut self,
        protection: Protection,
        epoch: u8,
        number: u64,
        packet: Sealed<'a>,
        plain: &'a mut Vec<u8>,
        now: Instant,
    ) -> Result<&'a [u8], KeyError> {
        if !protection.encrypts() {
            self.open_into(protection, epoch, number, packet, &mut [], now)?;
            return Ok(packet.body);
        }
        plain.resize(packet.body.len(), 0);
        self.open_into(protection, epoch, number, packet, plain, now)?;
        Ok(plain)
    }

    /// Verifies a packet, and decrypts its body into `place`, which is as long; of one that is not encrypted nothing is put there. After
    /// an error anything may stand in `place`, and in nothing else.
    pub fn open_into(
        &mut self,
        protection: Protection,
        epoch: u8,
        number: u64,
        packet: Sealed<'_>,
        place: &mut [u8],
        now: Instant,
    ) -> Result<(), KeyError> {
        if epoch == self.current.nibble() {
            return self.current.open(protection, number, packet, place);
        }
        if let Some(next) = self.next.as_mut().filter(|next| next.nibble() == epoch) {
            next.open(protection, number, packet, place)?;
            self.next.take().into_iter().for_each(|next| self.advance(next, now));
            return Ok(());
        }
        let previous = self.previous.as_mut().filter(|(old, until)| old.nibble() == epoch && *until > now);
        previous.ok_or(KeyError)?.0.open(protection, number, packet, place)
    }
}

impl Generation {
    /// The epoch, as the prefix names it.
    fn nibble(&self) -> u8 {
        (self.epoch % u64::from(EPOCHS)) as u8
    }

    fn open(
        &mut self,
        protection: Protection,
        number: u64,
        packet: Sealed<'_>,
        place: &mut [u8],
    ) -> Result<(), KeyError> {
        let key = self.inward.key(protection)?;
        let (number, tag) = (nonce(number), packet.tag);
        let opened = match protection {
            Protection::Hash => key.open_separate_gather(number, Aad::from(packet.all), &[], tag, &mut []),
            _ => key.open_separate_gather(number, Aad::from(packet.prefix), packet.body, tag, place),
        };
        opened.map_err(|_| KeyError)?;
        self.inward.note(packet.all.len());
        Ok(())
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests;
