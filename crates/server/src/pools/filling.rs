//! Pools that fill up: who watches the server is told before nothing more can be written.

use std::sync::{Mutex, PoisonError};

use super::{Pool, PoolError, PoolStatus};
use crate::events::{Happening, PoolBound};

/// Where a pool is told of, in percent.
const STEPS_PERCENT: [u8; 2] = [90, 95];

/// A step is told again only when it was further away than this in between.
const HYSTERESIS_PERCENT: u8 = 5;

/// The last step that was told of each bound; 0: none.
#[derive(Default, Debug)]
pub(super) struct Filling(Mutex<[u8; 2]>);

impl Pool {
    /// How many bytes its file system has left, and how many it has at all. That may take its time.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn space(&self) -> Result<(u64, u64), PoolError> {
        self.files().space(self.directory()).map_err(|source| PoolError::Directory {
            pool: self.name().to_owned(),
            directory: self.directory().to_owned(),
            source,
        })
    }

    /// How much of its file system is taken.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn percent_taken(&self) -> Result<u8, PoolError> {
        self.space().map(|(available_bytes, size_bytes)| percent_taken(available_bytes, size_bytes))
    }

    /// The steps that it has come to since it was looked at before, one for each of its bounds at the most.
    pub(crate) fn filled(&self, status: &PoolStatus) -> Vec<Happening> {
        let PoolStatus { size_bytes, available_bytes, provisioned_bytes, limit_bytes, .. } = *status;
        let limit_bytes = limit_bytes.unwrap_or(0);
        let left_bytes = limit_bytes.saturating_sub(provisioned_bytes);
        let bounds =
            [(PoolBound::Limit, left_bytes, limit_bytes), (PoolBound::FileSystem, available_bytes, size_bytes)];
        // Any value of it is whole.
        let mut told = self.filling().0.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = bounds.into_iter().zip(&mut *told).filter_map(|((of, available_bytes, whole_bytes), told)| {
            let percent = percent_taken(available_bytes, whole_bytes);
            let pool = self.name().to_owned();
            is_news(told, percent).then_some(Happening::PoolFilling { pool, of, available_bytes, percent })
        });
        filled.collect()
    }
}

/// How much is not available; what has no size is never full.
fn percent_taken(available_bytes: u64, whole_bytes: u64) -> u8 {
    let taken = u128::from(whole_bytes.saturating_sub(available_bytes)) * 100;
    taken.checked_div(whole_bytes.into()).and_then(|percent| percent.try_into().ok()).unwrap_or(0)
}

/// Whether a step is reached beyond the one that was told last, which it is from now on.
fn is_news(told: &mut u8, percent: u8) -> bool {
    let highest = |steps: &dyn Fn(u8) -> bool| STEPS_PERCENT.into_iter().filter(|step| steps(*step)).max().unwrap_or(0);
    let reached = highest(&|step| percent >= step);
    if reached > *told {
        *told = reached;
        return true;
    }
    *told = highest(&|step| step <= *told && percent >= step - HYSTERESIS_PERCENT);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_told_once_until_it_was_far_away_again() {
        let mut told = 0;
        let mut news = |percent| is_news(&mut told, percent);
        let seen: Vec<bool> = [89, 90, 94, 90, 89, 90, 95, 96, 91, 95].into_iter().map(&mut news).collect();
        assert_eq!(seen, [false, true, false, false, false, false, true, false, false, false]);
        let seen: Vec<bool> = [89, 95, 85, 90, 84, 90, 84, 100, 100].into_iter().map(&mut news).collect();
        assert_eq!(seen, [false, true, false, false, false, true, false, true, false]);
    }

    #[test]
    fn what_is_taken_is_rounded_down_whatever_its_size() {
        assert_eq!(
            [(0, 0), (5, 0), (0, 8), (8, 8), (9, 8)].map(|(left, all)| percent_taken(left, all)),
            [0, 0, 100, 0, 0]
        );
        assert_eq!((percent_taken(101, 1000), percent_taken(100, 1000)), (89, 90));
        assert_eq!((percent_taken(u64::MAX / 20, u64::MAX), percent_taken(1, u64::MAX)), (95, 99));
    }
}
