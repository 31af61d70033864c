//! Which units a copy may read and write.

use std::fmt;
use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::reservation::Access;
use sanwire_scsi::vpd::Designator;

use crate::logical_unit::LogicalUnit;
use crate::refusal::Refusal;
use crate::reservation::AbortScope;

/// Finds the units that an initiator may use, for copies that it asks for.
///
/// A copy manager reads and writes in its initiator's name. It must never reach a unit that the initiator itself could
/// not: who implements this looks only among the units that he would list to that initiator.
pub trait CopyTargetResolver: fmt::Debug + Send + Sync {
    /// The unit of this name, if there is one and the initiator of the nexus may use it.
    fn find(&self, nexus: NexusId, designator: &Designator) -> Option<Reached>;
}

/// A unit that a copy may use.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The unit.
    pub disk: Arc<LogicalUnit>,
    /// As whom the copy uses it, by which the reservations of the unit know it: the nexus that the initiator itself has with
    /// the unit's target; without one, that of the copy, which has registered and reserved nothing there.
    pub nexus: NexusId,
}

impl Reached {
    /// Refuses what a reservation of others forbids.
    pub(crate) fn check(&self, access: Access) -> Result<(), Refusal> {
        self.disk.reservations.check_access(access, self.nexus)
    }

    pub(crate) fn is_covered_by(&self, scope: &AbortScope) -> bool {
        scope.covers(&self.disk, self.nexus)
    }
}
