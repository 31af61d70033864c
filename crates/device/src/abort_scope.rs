//! Which unit a command is for, among all that there ever are, and whose commands a PREEMPT AND ABORT ends.

use std::collections::BTreeSet;

use sanwire_core::NexusId;

use crate::generation::Generation;

/// A logical unit, whatever numbers it has, for as long as the process lives: no other unit gets its identifier, also after it is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnitId(Generation);

impl UnitId {
    /// That of a new unit.
    pub(crate) fn next() -> Self {
        UnitId(Generation::next())
    }
}

/// The commands that a PREEMPT AND ABORT ends: those of these nexuses, for this unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AbortScope {
    unit: UnitId,
    nexuses: BTreeSet<NexusId>,
}

impl AbortScope {
    pub(crate) fn new(unit: UnitId, nexuses: BTreeSet<NexusId>) -> Self {
        AbortScope { unit, nexuses }
    }

    /// Whether a command of this nexus for this unit is to be ended.
    #[must_use]
    pub fn covers(&self, unit: UnitId, nexus: NexusId) -> bool {
        self.unit == unit && self.nexuses.contains(&nexus)
    }
}
