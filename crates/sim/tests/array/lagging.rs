//! A member that lags: what is asked of it is done when the others have nothing to do, and seldom before. After a while it is another one.

use sanwire_sim::random::Random;

/// How many of a million times a request at the member that lags may be done before those at the others.
const AHEAD_PER_MILLION: u32 = 10_000;

/// Which member lags.
#[derive(Debug)]
pub(super) struct Laggard {
    /// How many of a million times another one lags from then on; at first none does.
    changes_per_million: u32,
    disk: Option<usize>,
}

impl Laggard {
    pub(super) fn new(changes_per_million: u32) -> Self {
        Laggard { changes_per_million, disk: None }
    }

    /// Which of so many requests is done next; `disk_of` says at which of so many disks each is.
    pub(super) fn next(
        &mut self,
        random: &mut Random,
        disks: usize,
        requests: usize,
        disk_of: impl Fn(usize) -> usize,
    ) -> usize {
        if self.changes_per_million == 0 {
            return one_of(random, requests);
        }
        if random.chance(self.changes_per_million) {
            self.disk = Some(one_of(random, disks));
        }
        let mut ready: Vec<usize> = (0..requests).filter(|request| Some(disk_of(*request)) != self.disk).collect();
        if ready.is_empty() || random.chance(AHEAD_PER_MILLION) {
            ready = (0..requests).collect();
        }
        ready[one_of(random, ready.len())]
    }
}

fn one_of(random: &mut Random, count: usize) -> usize {
    random.range(0..=count as u64 - 1) as usize
}
