//! Units that are derived from units: what one of them tells, or asks, the others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sanwire_core::Principal;
use sanwire_scsi::Sense;

use super::{Children, UnitState};
use crate::derived::Derived;
use crate::fault::NOT_ACCESSIBLE;

impl Children {
    fn living(&self) -> Vec<Arc<UnitState>> {
        self.units.iter().filter_map(Weak::upgrade).collect()
    }
}

impl UnitState {
    /// How it is derived, if it is.
    #[must_use]
    pub fn derived(&self) -> Option<&Derived> {
        self.lineage.as_ref().map(|lineage| &lineage.derived)
    }

    /// The unit on whose store it stands: the one that is derived from none.
    pub(crate) fn root(&self) -> &UnitState {
        self.lineage.as_ref().map_or(self, |lineage| &lineage.root)
    }

    /// The same, to be kept.
    pub(crate) fn shared_root(self: &Arc<Self>) -> Arc<UnitState> {
        self.lineage.as_ref().map_or_else(|| Arc::clone(self), |lineage| Arc::clone(&lineage.root))
    }

    /// The unit from which it is derived, the one from which that is, and so on.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = &UnitState> {
        std::iter::successors(self.parent(), |unit| unit.parent())
    }

    fn parent(&self) -> Option<&UnitState> {
        self.lineage.as_ref().map(|lineage| &*lineage.parent)
    }

    /// This unit, and all that are derived from it or from one of those.
    pub(crate) fn for_each_derived(&self, visit: &mut dyn FnMut(&UnitState)) {
        visit(self);
        let children = lock(&self.children).living();
        children.iter().for_each(|child| child.for_each_derived(visit));
    }

    /// Takes in a unit that was derived from it; `false` if it was revoked.
    pub(crate) fn adopt(&self, child: &Arc<UnitState>) -> bool {
        let mut children = lock(&self.children);
        // Either this sees that it is revoked, or who revokes it sees the child.
        if children.is_closed {
            return false;
        }
        if children.units.len() == children.units.capacity() {
            children.units.retain(|child| child.strong_count() > 0);
        }
        children.units.push(Arc::downgrade(child));
        true
    }

    /// Whether it, or the unit on whose store it stands, is the same one after a restart: then reservations are kept of that.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        self.root().reservations.are_kept()
    }

    /// Whether this one may use it, and all that it is derived from. Of a unit that is not derived: yes, the unit does not ask.
    #[must_use]
    pub fn admits(&self, principal: &Principal) -> bool {
        std::iter::once(self).chain(self.ancestors()).filter_map(UnitState::derived).all(|of| of.admits(principal))
    }

    /// Takes it back, and all that is derived from it; of a unit that is not derived, only these. From now on nothing is
    /// derived from it any more, nothing begins at their store, and they are as if they were not there. What has begun ends at
    /// the store, and is answered LOGICAL UNIT NOT SUPPORTED. Who has to know when that is so begins a [`crate::WriteHold`] on
    /// it after this: it is held then.
    pub fn revoke(&self) {
        if let Some(derived) = self.derived() {
            derived.store.close();
            // What waits for its store waits in vain.
            self.stalls.give_up();
        }
        let children = {
            let mut children = lock(&self.children);
            children.is_closed = true;
            children.living()
        };
        children.iter().for_each(|child| child.revoke());
        self.exclusion.bell().ring();
    }

    /// Whether it was taken back. Never, of a unit that is not derived.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.derived().is_some_and(|derived| derived.store.is_closed())
    }

    /// Refuses access to the medium while one of those from which it is derived has none, or is served no longer.
    pub(crate) fn check_ancestors_ready(&self) -> Result<(), Sense> {
        for unit in self.ancestors() {
            if unit.stalls.is_over() {
                return Err(NOT_ACCESSIBLE);
            }
            unit.medium.check_ready(&unit.store.geometry())?;
        }
        Ok(())
    }

    /// Whether its store's backing object was gone when it was last asked, by whichever unit on that store.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.is_gone() || self.ancestors().any(UnitState::is_gone)
    }
}

fn lock(children: &Mutex<Children>) -> MutexGuard<'_, Children> {
    // Each change is one step: a poisoned list is still whole.
    children.lock().unwrap_or_else(PoisonError::into_inner)
}
