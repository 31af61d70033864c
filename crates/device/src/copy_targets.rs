//! Which units a copy may read and write.

use std::fmt;
use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::reservation::Access;
use sanwire_scsi::vpd::Designator;
use sanwire_scsi::{AdditionalSense, OperationClass};

use crate::abort_scope::AbortScope;
use crate::derived::{Guest, Refused};
use crate::refusal::Refusal;
use crate::unit_state::UnitState;

/// Finds the units that an initiator may use, for copies that it asks for.
///
/// A copy manager reads and writes in its initiator's name. It must never use a unit that the initiator itself could
/// not: an implementation looks only among the units that it would list to that initiator.
pub trait CopyTargetResolver: fmt::Debug + Send + Sync {
    /// The unit of this name, if there is one and the initiator of the nexus may use it.
    fn find(&self, nexus: NexusId, designator: &Designator) -> Option<CopyTargetUnit>;
}

/// A unit that a copy may use.
#[derive(Clone, Debug)]
pub struct CopyTargetUnit {
    /// The unit.
    pub unit: Arc<UnitState>,
    /// The nexus through which the copy uses it, by which the reservations of the unit know it: the one that the initiator itself has
    /// with the unit's target; without one, that of the copy, which has registered and reserved nothing there.
    pub nexus: NexusId,
    /// Which content it had when the copy began.
    pub(crate) content: u32,
    /// Of a unit that is derived: who asks for the copy.
    pub(crate) guest: Option<Arc<Guest>>,
}

impl CopyTargetUnit {
    /// The unit as it is now: a copy ends when its content is replaced.
    #[must_use]
    pub fn new(unit: Arc<UnitState>, nexus: NexusId) -> CopyTargetUnit {
        let content = unit.content();
        CopyTargetUnit { unit, nexus, content, guest: None }
    }

    /// Refuses what a reservation of others forbids.
    pub(crate) fn check(&self, access: Access) -> Result<(), Refusal> {
        self.unit.reservations.check_access(access, self.nexus)
    }

    /// Refuses what its derivation forbids: to be read or written by copies, or anything any more.
    pub(crate) fn check_allowed(&self, direction: OperationClass) -> Result<(), AdditionalSense> {
        let Some(derived) = self.unit.derived() else { return Ok(()) };
        match () {
            () if self.unit.is_revoked() => Err(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED),
            () if derived.operations().allow_copies(direction) => Ok(()),
            () => {
                self.guest.iter().for_each(|guest| guest.note_refused(Refused::Operation));
                Err(AdditionalSense::ACCESS_DENIED_NO_ACCESS_RIGHTS)
            }
        }
    }

    pub(crate) fn is_covered_by(&self, scope: &AbortScope) -> bool {
        scope.covers(self.unit.id(), self.nexus)
    }
}
