//! The keys of memory: STags that a stranger cannot guess, and that do not come again before all others have.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::wire::Stag;

const ROUNDS: u8 = 4;

/// Gives STags: the numbers 1, 2, 3, ... by a permutation of all 32-bit numbers that only this end knows (a Feistel network, whose
/// round function is SipHash with the connection's seed). So the peer cannot tell the next one from those that it has seen, and one
/// that has ended is not given again before 2^32 others were.
pub(crate) struct Keys {
    seed: [u8; 16],
    given: u32,
}

impl Keys {
    pub(crate) fn new(seed: [u8; 16]) -> Self {
        Keys { seed, given: 0 }
    }

    /// The next one; never 0, which some peers take for none.
    pub(crate) fn next(&mut self) -> Stag {
        loop {
            self.given = self.given.wrapping_add(1);
            let stag = self.permuted(self.given);
            if stag != 0 {
                return Stag(stag);
            }
        }
    }

    fn permuted(&self, number: u32) -> u32 {
        let (mut left, mut right) = ((number >> 16) as u16, number as u16);
        for round in 0..ROUNDS {
            let mut hasher = SipHasher13::new_with_key(&self.seed);
            hasher.write(&[round, (right >> 8) as u8, right as u8]);
            (left, right) = (right, left ^ hasher.finish() as u16);
        }
        u32::from(left) << 16 | u32::from(right)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_key_comes_twice() {
        let mut keys = Keys::new([3; 16]);
        let given: BTreeSet<Stag> = (0..200_000).map(|_| keys.next()).collect();
        assert_eq!(given.len(), 200_000);
        assert!(!given.contains(&Stag(0)));
    }

    #[test]
    fn keys_do_not_follow_each_other_and_differ_from_connection_to_connection() {
        let list = |seed| {
            let mut keys = Keys::new([seed; 16]);
            (0..1000).map(|_| keys.next().0).collect::<Vec<_>>()
        };
        let (one, other) = (list(1), list(2));
        assert!(one.iter().all(|key| !other.contains(key)));
        let near = one.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 1 << 16).count();
        assert!(near < 5, "{near} of 999 keys are near the one before");
        let bits: u32 = one.iter().map(|key| key.count_ones()).sum();
        assert!((15_000..17_000).contains(&bits), "{bits} of 32,000 bits are set");
    }
}
