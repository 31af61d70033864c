//! Shares as weights of congestion control: whole numbers of a small range, whose ratios are those of the shares as well as that
//! allows.

use std::collections::BTreeSet;

use crate::wire::flow::WEIGHT_MAX;

/// The share of the only connection of a client of weight 1. Any number of connections up to 16 divides it without a rest.
pub(super) const UNIT: u64 = 720_720;

/// A weight that is off by no more than such a part of itself is as good as exact.
const EXACT_PARTS: u64 = 32;

/// By what shares are multiplied, and then divided, to be weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scale {
    times: u64,
    per: u64,
}

impl Scale {
    /// For all these shares. Whole ones that fit are the weights. Otherwise the smallest multiple is taken that makes them whole,
    /// or the largest part of them; and if there is none, the largest weight is the largest that there may be.
    pub(super) fn new(shares: &BTreeSet<u64>) -> Self {
        let largest = u64::from(WEIGHT_MAX);
        let most = shares.last().copied().unwrap_or(UNIT).max(1);
        let multiples = (1..=largest * UNIT / most).map(|times| Scale { times, per: UNIT });
        let parts = (1..=largest).rev().map(|times| Scale { times, per: most });
        let is_exact = |scale: &Scale| shares.iter().all(|share| scale.is_exact(*share));
        multiples.chain(parts).find(is_exact).unwrap_or(Scale { times: largest, per: most })
    }

    /// The weight for a share, 1 to [`WEIGHT_MAX`].
    pub(super) fn weight(self, share: u64) -> u16 {
        let nearest = (share * self.times + self.per / 2) / self.per;
        nearest.clamp(1, u64::from(WEIGHT_MAX)) as u16
    }

    fn is_exact(self, share: u64) -> bool {
        let exact = share * self.times;
        exact.abs_diff(u64::from(self.weight(share)) * self.per) * EXACT_PARTS <= exact
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The weights of connections of clients of such weights, each with so many connections.
    fn weights(clients: &[(u64, u64)]) -> Vec<u16> {
        let shares: Vec<u64> = clients.iter().map(|(weight, connections)| weight * UNIT / connections).collect();
        let scale = Scale::new(&shares.iter().copied().collect());
        shares.into_iter().map(|share| scale.weight(share)).collect()
    }

    #[test]
    fn whole_shares_that_fit_are_the_weights() {
        assert_eq!(weights(&[(1, 1), (1, 1)]), [1, 1]);
        assert_eq!(weights(&[(16, 1), (3, 1), (2, 1)]), [16, 3, 2]);
        assert_eq!(weights(&[(6, 2), (1, 1)]), [3, 1]);
    }

    #[test]
    fn the_connections_of_a_client_have_together_what_one_would_have() {
        assert_eq!(weights(&[(1, 2), (1, 1)]), [1, 2]);
        assert_eq!(weights(&[(3, 2), (1, 1)]), [3, 2]);
        assert_eq!(weights(&[(1, 3), (1, 4)]), [4, 3]);
        assert_eq!(weights(&[(1, 4096)]), [1]);
    }

    #[test]
    fn shares_of_any_size_keep_their_ratio_as_well_as_the_range_allows() {
        assert_eq!(weights(&[(300, 1), (100, 1)]), [15, 5]);
        assert_eq!(weights(&[(32, 1), (2, 1)]), [16, 1]);
        assert_eq!(weights(&[(8000, 1), (1, 4096)]), [16, 1]);
        let [large, middle, small] = weights(&[(1000, 1), (333, 1), (70, 1)])[..] else { panic!("three weights") };
        assert_eq!((large, middle, small), (16, 5, 1));
    }
}
