//! The key of what is not encrypted.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use zeroize::Zeroizing;

/// What only the two ends of a connection know, for one direction: with it the checksum of an unprotected packet tells who
/// made its header, though not who made its data.
///
/// The checksum of data can be computed by anybody. So what steers the connection goes through SipHash-2-4 under this key, and the low
/// 32 bits of the result are added to the checksum, modulo 2.
#[derive(Clone)]
pub struct HeaderKey(Zeroizing<[u8; 16]>);

impl HeaderKey {
    /// The key of one direction.
    #[must_use]
    pub fn new(key: &[u8; 16]) -> Self {
        HeaderKey(Zeroizing::new(*key))
    }

    /// The code of a header, which is these bytes one after the other.
    #[must_use]
    pub fn code(&self, parts: [&[u8]; 2]) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        parts.into_iter().for_each(|part| hasher.write(part));
        hasher.finish() as u32
    }
}

impl fmt::Debug for HeaderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeaderKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key and message of the example in appendix A of "SipHash: a fast short-input PRF" (Aumasson, Bernstein 2012).
    #[test]
    fn the_code_is_siphash_2_4() {
        let key = HeaderKey::new(&std::array::from_fn(|at| at as u8));
        let message: [u8; 15] = std::array::from_fn(|at| at as u8);
        assert_eq!(key.code([&message[..4], &message[4..]]), 0xa129_ca61_49be_45e5_u64 as u32);
    }
}
