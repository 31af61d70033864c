//! How fast owners may change what is theirs: of each change events and the audit log tell, which others want to read.

use std::collections::BTreeMap;

use sanwire_core::quota::{
    CHANGES_OF_OWNER, CHANGES_OF_OWNERS, Limiter, Pace, Quota, RENEWALS_OF_OWNER, RENEWALS_OF_OWNERS, Usage,
};
use sanwire_core::{ClientId, Instant};

/// Owners that are remembered before it is looked whether any have rested.
const REMEMBERED: usize = 64;

/// What owners have left of their quotas.
#[derive(Debug)]
pub(super) struct Paces {
    pub(super) changes: OwnerPaces,
    /// Of what lasts some minutes longer.
    pub(super) renewals: OwnerPaces,
}

impl Default for Paces {
    fn default() -> Self {
        Paces {
            changes: OwnerPaces::new(&CHANGES_OF_OWNER, &CHANGES_OF_OWNERS),
            renewals: OwnerPaces::new(&RENEWALS_OF_OWNER, &RENEWALS_OF_OWNERS),
        }
    }
}

impl Paces {
    /// How the quotas are used.
    pub(super) fn usages(&self) -> [Usage; 4] {
        let [of_owner, of_owners] = self.changes.usages();
        let [renewed_by_owner, renewed_by_owners] = self.renewals.usages();
        [of_owner, of_owners, renewed_by_owner, renewed_by_owners]
    }
}

/// What they have left of one kind.
#[derive(Debug)]
pub(super) struct OwnerPaces {
    quota: &'static Quota,
    /// Those that have not rested: no more than all together may have begun with.
    of_client: BTreeMap<ClientId, Pace>,
    refused: u64,
    all: Limiter,
}

impl OwnerPaces {
    /// `quota` of each of them, and `all` of them together.
    fn new(quota: &'static Quota, all: &'static Quota) -> OwnerPaces {
        OwnerPaces { quota, of_client: BTreeMap::new(), refused: 0, all: Limiter::new(all) }
    }

    /// Takes one change of an owner, if one is left of its own quota and that of all.
    pub(super) fn take(&mut self, owner: ClientId, now: Instant) -> bool {
        if self.of_client.len() >= REMEMBERED {
            self.of_client.retain(|_, pace| !pace.is_full(now));
        }
        let mut pace = self.of_client.get(&owner).copied().unwrap_or(Pace::new(self.quota));
        if !pace.take(now) {
            self.refused += 1;
            return false;
        }
        let is_taken = self.all.take(now);
        if is_taken {
            self.of_client.insert(owner, pace);
        }
        is_taken
    }

    fn usages(&self) -> [Usage; 2] {
        [Usage::refused(self.quota, self.refused), self.all.usage()]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn owner(number: u32) -> ClientId {
        ClientId(u128::from(number).to_be_bytes())
    }

    #[test]
    fn an_owner_that_changes_without_end_is_slowed_down_and_no_other_one() {
        let mut paces = Paces::default().changes;
        let taken = (0..1000).filter(|_| paces.take(owner(1), at(1))).count();
        assert_eq!(taken, 256);
        assert!(paces.take(owner(2), at(1)), "another one has its own");
        let taken = (2..62).filter(|second| paces.take(owner(1), at(*second))).count();
        assert_eq!(taken, 30, "in a minute");
        assert!(paces.usages()[0].refused >= 1000 - 256);
    }

    #[test]
    fn all_owners_together_are_slowed_down_too() {
        let Paces { changes, renewals } = Paces::default();
        for (mut paces, burst) in [(changes, 1024), (renewals, 256)] {
            // As where anybody owns a volume, and comes with key after key.
            let taken = (0..5000).filter(|number| paces.take(owner(*number), at(1))).count();
            assert_eq!((taken, paces.of_client.len()), (burst, burst));
            assert!(paces.usages()[1].refused > 0);
            assert!(paces.take(owner(9999), at(3600)));
            assert_eq!(paces.of_client.len(), 1, "who has rested is not remembered");
        }
    }
}
