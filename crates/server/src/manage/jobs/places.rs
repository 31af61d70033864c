//! How many copies to other servers go on at a time. Each has a thread, a connection and memory for as long as it takes, so they have places of
//! their own: they keep no other change waiting.

use sanwire_core::ClientId;
use sanwire_core::quota::{Account, COPIES, COPIES_OF_OWNER, COPIES_OF_OWNERS, Usage};

/// What is left of these places.
#[derive(Debug)]
pub(super) struct CopyPlaces {
    all: Account,
    of_owners: Account,
    of_owner: Account,
}

impl Default for CopyPlaces {
    fn default() -> Self {
        CopyPlaces {
            all: Account::new(&COPIES),
            of_owners: Account::new(&COPIES_OF_OWNERS),
            of_owner: Account::new(&COPIES_OF_OWNER),
        }
    }
}

impl CopyPlaces {
    /// Whether one more may begin beside these that go on, of each of which it is said who ordered it, and only owns its volume.
    pub(super) fn admits(&mut self, running: &[Option<ClientId>], owner: Option<ClientId>) -> bool {
        if let Some(owner) = owner {
            let of_owner = running.iter().filter(|other| **other == Some(owner)).count() as u64;
            let of_owners = running.iter().flatten().count() as u64;
            if !self.of_owner.admits(of_owner, 1) || !self.of_owners.admits(of_owners, 1) {
                return false;
            }
        }
        self.all.admits(running.len() as u64, 1)
    }

    /// How the quotas are used.
    pub(super) fn usages(&self) -> [Usage; 3] {
        [self.of_owner.usage(), self.all.usage(), self.of_owners.usage()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_owners_are_few_and_leave_places_to_who_manages_the_server() {
        let (mut places, mut running) = (CopyPlaces::default(), Vec::new());
        let mut take = |owner: Option<u8>| {
            let owner = owner.map(|number| ClientId([number; 16]));
            let is_taken = places.admits(&running, owner);
            running.extend(is_taken.then_some(owner));
            is_taken
        };
        assert_eq!([Some(1), Some(1), Some(1)].map(&mut take), [true, true, false], "two of each");
        assert_eq!([Some(2), Some(3), Some(4)].map(&mut take), [true, true, false], "four of all of them");
        assert_eq!([None; 5].map(&mut take), [true, true, true, true, false], "eight in all");
        let refused = places.usages().map(|usage| usage.refused);
        assert_eq!(refused, [1, 1, 1]);
    }
}
