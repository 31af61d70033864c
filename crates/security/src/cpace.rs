//! CPace (draft-irtf-cfrg-cpace) with ristretto255 and SHA-512: two ends that have the same password come to the same key. A peer
//! without it has tried one password, and learns nothing by which it could try others offline.

use aws_lc_rs::digest::{self, SHA512};
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::IsIdentity;
use zeroize::{Zeroize, Zeroizing};

use crate::keys::{KeyError, Randomness};

/// Names the group and the hash.
const GROUP: &[u8] = b"CPaceRistretto255";

/// The same, where the key is made.
const GROUP_KEY: &[u8] = b"CPaceRistretto255_ISK";

/// The block of SHA-512, which the password fills: it is hashed in the same time whatever it is.
const BLOCK_BYTES: usize = 128;

/// What both ends use it for.
const CHANNEL: &[u8] = b"sanwire hyperscsi";

/// What one end tells the other.
pub(crate) type Share = [u8; 32];

/// What both ends come to.
pub(crate) type SharedKey = Zeroizing<[u8; 64]>;

/// One end.
pub(crate) struct Party {
    session: [u8; 32],
    scalar: Scalar,
    share: Share,
}

impl Party {
    /// An end of this session, of which there is no other with the same name.
    pub(crate) fn new(password: &[u8; 32], session: [u8; 32], random: &mut Randomness) -> Self {
        let mut wide = Zeroizing::new([0; 64]);
        for half in wide.chunks_exact_mut(32) {
            half.copy_from_slice(&*Zeroizing::new(random.bytes()));
        }
        let scalar = Scalar::from_bytes_mod_order_wide(&wide);
        let share = (generator(password, CHANNEL, &session) * scalar).compress().to_bytes();
        Party { session, scalar, share }
    }

    pub(crate) fn share(&self) -> &Share {
        &self.share
    }

    /// The key of the end that has spoken first, once it has the other's share.
    ///
    /// # Errors
    /// [`KeyError`] for a share with which every password would give the same key.
    pub(crate) fn key_of_first(&self, theirs: &Share) -> Result<SharedKey, KeyError> {
        let point = exchange(&self.scalar, theirs)?;
        Ok(key(&self.session, &*point, (&self.share, &[]), (theirs, &[])))
    }

    /// The same of the other end.
    ///
    /// # Errors
    /// As of [`Party::key_of_first`].
    pub(crate) fn key_of_second(&self, theirs: &Share) -> Result<SharedKey, KeyError> {
        let point = exchange(&self.scalar, theirs)?;
        Ok(key(&self.session, &*point, (theirs, &[]), (&self.share, &[])))
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        self.scalar.zeroize();
    }
}

/// Draft 8.1: the point that stands for the password in one session.
fn generator(password: &[u8], channel: &[u8], session: &[u8]) -> RistrettoPoint {
    let mut text = Zeroizing::new(Vec::with_capacity(256));
    put(&mut text, GROUP);
    put(&mut text, password);
    let filled = text.len() + 1;
    put(&mut text, &[0; BLOCK_BYTES][..BLOCK_BYTES.saturating_sub(filled)]);
    put(&mut text, channel);
    put(&mut text, session);
    let mut uniform = Zeroizing::new([0; 64]);
    uniform.copy_from_slice(digest::digest(&SHA512, &text).as_ref());
    RistrettoPoint::from_uniform_bytes(&uniform)
}

/// Draft 6.2, `scalar_mult_vfy`.
fn exchange(scalar: &Scalar, theirs: &Share) -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let point = CompressedRistretto(*theirs).decompress().ok_or(KeyError)? * scalar;
    if point.is_identity() { Err(KeyError) } else { Ok(Zeroizing::new(point.compress().to_bytes())) }
}

/// Draft 6.2: the key, of what each end has said, and beside it.
fn key(session: &[u8], point: &[u8], first: (&Share, &[u8]), second: (&Share, &[u8])) -> SharedKey {
    let mut text = Zeroizing::new(Vec::with_capacity(256));
    for part in [GROUP_KEY, session, point, first.0, first.1, second.0, second.1] {
        put(&mut text, part);
    }
    let mut key = Zeroizing::new([0; 64]);
    key.copy_from_slice(digest::digest(&SHA512, &text).as_ref());
    key
}

/// Draft A.1: what is shorter than 128 bytes, as all here, with its length before it.
fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hexadecimal: &str) -> [u8; N] {
        let digits: Vec<u8> = hexadecimal.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect::<Vec<_>>().try_into().unwrap()
    }

    /// Draft, B.3: "Test vector for CPace using group ristretto255 and hash SHA-512".
    #[test]
    fn both_ends_come_to_the_key_of_the_draft() {
        let session: [u8; 16] = bytes("7e4b4791d6a8ef019b936c79fb7f2c57");
        let generator = generator(b"Password", b"\nAinitiator\nBresponder", &session);
        let expected = bytes("5e25411ca1ad7c9debfd0b33ad987a95cefef2d3f15dcc8bd26415a5dfe2e15a");
        assert_eq!(generator.compress().to_bytes(), expected);
        let scalars = [
            "da3d23700a9e5699258aef94dc060dfda5ebb61f02a5ea77fad53f4ff0976d08",
            "d2316b454718c35362d83d69df6320f38578ed5984651435e2949762d900b80d",
        ];
        let [first, second] = scalars.map(|text| Scalar::from_canonical_bytes(bytes(text)).unwrap());
        let [share, other] = [first, second].map(|scalar| (generator * scalar).compress().to_bytes());
        assert_eq!(share, bytes("383a85dd236978f17f8c8545b50dabc52a39fcdab2cf8bc531ce040ff77ca82d"));
        assert_eq!(other, bytes("a6206309c0e8e5f579295e35997ac4300ab3fecec3c17f7b604f3e698fa1383c"));
        let points = [exchange(&first, &other).unwrap(), exchange(&second, &share).unwrap()];
        assert_eq!(*points[0], bytes("fa1d0318864e2cacb26875f1b791c9ae83204fe8359addb53e95a2e98893853f"));
        assert_eq!(points[0], points[1]);
        let expected: [u8; 64] = bytes(
            "e91ccb2c0f5e0d0993a33956e3be59754f3f2b07db57631f5394452ea2e7b435\
             4674eb1f5686c078462bf83bec72e8743df440108e638f3526d9b90e85be096f",
        );
        assert_eq!(*key(&session, &*points[0], (&share, b"ADa"), (&other, b"ADb")), expected);
    }

    /// Draft, B.3.9 and 10.
    #[test]
    fn shares_that_lead_everybody_to_one_key_are_refused() {
        let scalar = bytes("7cd0e075fa7955ba52c02759a6c90dbbfc10e6d40aea8d283e407d88cf538a05");
        let scalar = Scalar::from_canonical_bytes(scalar).unwrap();
        let point =
            exchange(&scalar, &bytes("2c3c6b8c4f3800e7aef6864025b4ed79bd599117e427c41bd47d93d654b4a51c")).unwrap();
        assert_eq!(*point, bytes("7c13645fe790a468f62c39beb7388e541d8405d1ade69d1778c5fe3e7f6b600e"));
        assert!(exchange(&scalar, &bytes("2b3c6b8c4f3800e7aef6864025b4ed79bd599117e427c41bd47d93d654b4a51c")).is_err());
        assert!(exchange(&scalar, &[0; 32]).is_err());
    }

    #[test]
    fn one_password_in_one_session_gives_one_key() {
        let mut random = Randomness::new([5; 32]);
        let mut keys = |passwords: [u8; 2], sessions: [u8; 2]| {
            let first = Party::new(&[passwords[0]; 32], [sessions[0]; 32], &mut random);
            let second = Party::new(&[passwords[1]; 32], [sessions[1]; 32], &mut random);
            let keys = [first.key_of_first(second.share()), second.key_of_second(first.share())];
            let [first, second] = keys.map(Result::unwrap);
            first == second
        };
        assert!(keys([1, 1], [2, 2]));
        assert!(!keys([1, 3], [2, 2]) && !keys([1, 1], [2, 3]));
    }
}
