//! What is known of the unit. Several commands of a host may ask it at once, and their answers may come in any order: what was asked
//! later counts, and what was asked before the unit told of a change does not.

use std::sync::Arc;

use super::facts::Facts;

/// What the unit has said of itself, as far as that still holds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Knowledge {
    /// How often it was asked: the number of the last time.
    asked: u64,
    /// Up to this time the answers may be older than what is known, or than a change of which the unit has told.
    outdated: u64,
    facts: Option<Arc<Facts>>,
}

impl Knowledge {
    pub(super) fn facts(&self) -> Option<Arc<Facts>> {
        self.facts.clone()
    }

    /// The unit is asked from now on; the number of this time.
    pub(super) fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// The unit has answered all that it was asked; whether nothing newer is known, so that the answers count.
    pub(super) fn learn(&mut self, asked: u64, facts: Arc<Facts>) -> bool {
        let is_new = asked > self.outdated;
        if is_new {
            (self.outdated, self.facts) = (asked, Some(facts));
        }
        is_new
    }

    /// The unit has told of a change.
    pub(super) fn forget(&mut self) {
        (self.outdated, self.facts) = (self.asked, None);
    }
}
