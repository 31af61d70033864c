//! Who owns any volume at all: those who serve clients look here before they pass on what one asks.

use arc_swap::ArcSwap;
use sanwire_core::Principal;

use super::principal::PrincipalRule;

/// The rules of all volumes that name their owners, as they are now.
#[derive(Default, Debug)]
pub(crate) struct Owners(ArcSwap<Vec<PrincipalRule>>);

impl Owners {
    /// From now on these own something.
    pub(crate) fn set(&self, rules: Vec<PrincipalRule>) {
        self.0.store(rules.into());
    }

    /// Whether this one owns a volume.
    pub(crate) fn include(&self, principal: &Principal) -> bool {
        self.0.load().iter().any(|rule| rule.names(principal))
    }
}
