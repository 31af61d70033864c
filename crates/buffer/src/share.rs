//! How much of a region one holder may have, so that whatever it does, others find some.
//!
//! A limit in bytes would be too little for a holder that is alone, or too much for many. So it moves with what is free
//! (dynamic thresholds, A. K. Choudhury and E. L. Hahne, *Dynamic queue length thresholds for shared-memory packet
//! switches*, 1998): no holder may have more than [`FREE_PARTS`] times what it leaves free. One alone has three quarters of
//! the region, two have three sevenths each, and a part is left for the next session. What each needs for its largest
//! operation is guaranteed besides, as long as it is there at all.

use sanwire_core::quota::MEMORY_OF_CLIENT;

/// A holder may have so many times what is free: then it has no more than its quota.
pub(crate) const FREE_PARTS: usize = (MEMORY_OF_CLIENT.limit / (100 - MEMORY_OF_CLIENT.limit)) as usize;

/// What one holder has of a region.
#[derive(Debug)]
pub(crate) struct Share {
    held_bytes: usize,
    guaranteed_bytes: usize,
    /// What it asked for within what is guaranteed to it, was not there, and it has not got since.
    lacking_bytes: usize,
}

impl Share {
    pub(crate) fn new(guaranteed_bytes: usize) -> Self {
        Share { held_bytes: 0, guaranteed_bytes, lacking_bytes: 0 }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// What it was denied of what is guaranteed to it.
    pub(crate) fn lacking_bytes(&self) -> usize {
        self.lacking_bytes
    }

    /// Whether it may have so many more bytes of those that are free.
    pub(crate) fn allows(&self, more_bytes: usize, free_bytes: usize) -> bool {
        let held_bytes = self.held_bytes + more_bytes;
        let left_bytes = free_bytes.saturating_sub(more_bytes);
        held_bytes <= self.guaranteed_bytes || held_bytes <= FREE_PARTS * left_bytes
    }

    /// The most that it may have besides what it has.
    pub(crate) fn allowed_bytes(&self, free_bytes: usize) -> usize {
        let guaranteed_bytes = self.guaranteed_bytes.saturating_sub(self.held_bytes).min(free_bytes);
        let of_free_bytes = (FREE_PARTS * free_bytes).saturating_sub(self.held_bytes) / (FREE_PARTS + 1);
        guaranteed_bytes.max(of_free_bytes)
    }

    /// It has so many more bytes.
    pub(crate) fn took(&mut self, bytes: usize) {
        self.held_bytes += bytes;
        self.lacking_bytes = self.lacking_bytes.saturating_sub(bytes);
    }

    /// It asked for so many more bytes, and did not get them.
    pub(crate) fn refused(&mut self, more_bytes: usize) {
        if self.held_bytes + more_bytes <= self.guaranteed_bytes {
            self.lacking_bytes = self.lacking_bytes.max(more_bytes);
        }
    }

    /// It does not want any more what it has not got.
    pub(crate) fn forgo(&mut self) {
        self.lacking_bytes = 0;
    }

    /// It has given so many bytes back.
    pub(crate) fn gave_back(&mut self, bytes: usize) {
        self.held_bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// So many holders take turns to take as much as they may, by pieces; gives what each has, and what is left.
    fn fill(holders: usize, region_bytes: usize, piece_bytes: usize) -> (Vec<usize>, usize) {
        let mut shares: Vec<Share> = (0..holders).map(|_| Share::new(0)).collect();
        let mut free_bytes = region_bytes;
        loop {
            let before = free_bytes;
            for share in &mut shares {
                if piece_bytes <= free_bytes && share.allows(piece_bytes, free_bytes) {
                    share.took(piece_bytes);
                    free_bytes -= piece_bytes;
                }
            }
            if free_bytes == before {
                return (shares.iter().map(Share::held_bytes).collect(), free_bytes);
            }
        }
    }

    #[test]
    fn one_holder_has_three_quarters_and_more_of_them_have_even_parts() {
        assert_eq!(fill(1, 16 * MIB, 4096), (vec![12 * MIB], 4 * MIB));
        let (held, left) = fill(2, 14 * MIB, 4096);
        assert!(held.iter().all(|held| held.abs_diff(6 * MIB) <= 4096) && left.abs_diff(2 * MIB) <= 8192, "{held:?}");
    }

    #[test]
    fn however_many_take_all_that_they_may_something_is_left() {
        for holders in [1, 3, 10, 100] {
            let (_, left) = fill(holders, 16 * MIB, 4096);
            assert!(left >= 16 * MIB / (1 + 3 * holders), "{left} with {holders}");
        }
    }

    #[test]
    fn what_is_allowed_is_what_may_be_taken() {
        for (held, guaranteed, free) in
            [(0, 0, 100), (50, 0, 100), (50, 80, 100), (50, 200, 20), (9, 9, 0), (7, 30, 40)]
        {
            let share = Share { held_bytes: held, ..Share::new(guaranteed) };
            let allowed = share.allowed_bytes(free);
            assert!(allowed <= free);
            assert!(allowed == 0 || share.allows(allowed, free), "{held} {guaranteed} {free}");
            assert!(allowed == free || !share.allows(allowed + 1, free), "{held} {guaranteed} {free}");
        }
    }

    #[test]
    fn only_who_asks_for_what_is_guaranteed_is_denied_it() {
        let mut share = Share::new(100);
        share.refused(101);
        assert_eq!(share.lacking_bytes(), 0);
        share.refused(100);
        share.refused(10);
        assert_eq!(share.lacking_bytes(), 100);
        share.took(60);
        assert_eq!(share.lacking_bytes(), 40, "little of it is not all of it");
        share.forgo();
        share.refused(60);
        assert_eq!(share.lacking_bytes(), 0, "it has some");
        share.gave_back(60);
        assert_eq!(share.held_bytes(), 0);
    }
}
