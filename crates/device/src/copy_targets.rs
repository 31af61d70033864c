//! Which units a copy may read and write.

use std::fmt;

use sanwire_core::NexusId;
use sanwire_scsi::vpd::Designator;

use crate::beginning::Reached;

/// Finds the units that an initiator may use, for copies that it asks for.
///
/// A copy manager reads and writes in its initiator's name. It must never reach a unit that the initiator itself could
/// not: who implements this looks only among the units that he would list to that initiator.
pub trait CopyTargetResolver: fmt::Debug + Send + Sync {
    /// The unit of this name, if there is one and the initiator of the nexus may use it.
    fn find(&self, nexus: NexusId, designator: &Designator) -> Option<Reached>;
}
