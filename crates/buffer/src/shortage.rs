//! Who waits for memory, and whose memory would help.

use std::collections::BTreeMap;

use sanwire_core::NexusId;

use crate::region::Region;

/// Sessions that wait for memory, collected with the shares that they wait for.
#[derive(Debug, Default)]
pub struct Shortage {
    /// Those that have not even what is guaranteed to them: anybody's memory would help.
    denied: Waiting,
    /// All of them, by their shares: what other sessions have of the same share would help.
    by_share: BTreeMap<usize, Waiting>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Waiting {
    #[default]
    Nobody,
    One(NexusId),
    Several,
}

impl Waiting {
    fn add(&mut self, nexus: NexusId) {
        *self = match *self {
            Waiting::Nobody => Waiting::One(nexus),
            Waiting::One(known) if known == nexus => return,
            Waiting::One(_) | Waiting::Several => Waiting::Several,
        };
    }

    fn is_any_but(self, nexus: NexusId) -> bool {
        match self {
            Waiting::Nobody => false,
            Waiting::One(known) => known != nexus,
            Waiting::Several => true,
        }
    }
}

impl Shortage {
    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_share.is_empty()
    }

    /// Whether what a session has of this share keeps another one waiting: by leaving it not even what is guaranteed to it, or by
    /// having taken the share of both.
    #[must_use]
    pub fn is_due_to(&self, nexus: NexusId, share: &Region) -> bool {
        let of_share = || self.by_share.get(&share.identity()).is_some_and(|waiting| waiting.is_any_but(nexus));
        (self.denied.is_any_but(nexus) || of_share()) && share.held_bytes() > 0
    }
}

impl<'a> FromIterator<(NexusId, &'a Region)> for Shortage {
    fn from_iter<I: IntoIterator<Item = (NexusId, &'a Region)>>(waiting: I) -> Self {
        let mut shortage = Shortage::default();
        for (nexus, share) in waiting {
            if share.is_denied() {
                shortage.denied.add(nexus);
            }
            shortage.by_share.entry(share.identity()).or_default().add(nexus);
        }
        shortage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UNIT_BYTES;

    const ONE: NexusId = NexusId(1);
    const OTHER: NexusId = NexusId(2);

    #[test]
    fn who_is_denied_its_least_waits_for_all_that_have_any_and_others_for_their_own_share() {
        let region = Region::new(8 * UNIT_BYTES).unwrap();
        let [share, shared, empty] = [(); 3].map(|()| region.share(4 * UNIT_BYTES));
        let _held = [share.frame(1), shared.frame(1)];
        let of = |waiting: &[(NexusId, &Region)]| waiting.iter().copied().collect::<Shortage>();
        let due = |shortage: &Shortage| [&share, &shared, &empty].map(|region| shortage.is_due_to(ONE, region));
        assert!(of(&[]).is_empty() && due(&of(&[])) == [false; 3]);
        assert_eq!(due(&of(&[(OTHER, &shared)])), [false, true, false]);
        assert_eq!(due(&of(&[(ONE, &shared)])), [false; 3], "its own waiting");
        assert_eq!(due(&of(&[(ONE, &shared), (OTHER, &shared)])), [false, true, false]);
        let _rest = region.frame(6 * UNIT_BYTES);
        assert!(empty.frame(1).is_none());
        assert_eq!(due(&of(&[(OTHER, &empty)])), [true, true, false], "it has nothing");
        assert_eq!(due(&of(&[(ONE, &empty)])), [false; 3]);
    }
}
