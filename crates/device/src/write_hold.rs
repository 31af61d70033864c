//! Keeps the blocks of a unit as they are for a moment, while its owner does something to all of its content: takes a snapshot, or puts one
//! back.

use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_store::CompletionQueue;

use crate::exclusion::{Claim, Lane, Permit};
use crate::unit_attention::UnitAttention;
use crate::unit_state::UnitState;

/// No command changes a block of the unit while this lives and is held: those that come wait for its end, on every shard, and none fails. Reads
/// go on. Commands of units that have some of these blocks too wait in the same way.
#[must_use]
#[derive(Debug)]
pub struct WriteHold {
    unit: Arc<UnitState>,
    permit: Permit,
}

impl WriteHold {
    /// Begins: changes that come from now on wait.
    pub fn begin(unit: &Arc<UnitState>) -> WriteHold {
        let permit = unit.exclusion.enter(Claim::BARRIER, Lane::of(NexusId(0)));
        WriteHold { unit: Arc::clone(unit), permit }
    }

    /// Whether every change has ended that had begun before, also one that no nexus waits for any more and that its store still works on.
    #[must_use]
    pub fn is_held(&self) -> bool {
        // A handover of the tenure that is over may be in the way, and no command waits for it.
        let root = self.unit.root();
        root.tenures.settle(&root.exclusion, &root.nexuses);
        self.unit.exclusion.may_go(&self.permit)
    }

    /// Has this driver woken, once, when that may have become so. To be asked again after this call.
    pub fn wake(&self, driver: &CompletionQueue) {
        self.unit.exclusion.bell().wait(driver);
    }
}

impl Drop for WriteHold {
    fn drop(&mut self) {
        self.unit.exclusion.leave(&self.permit);
    }
}

impl UnitState {
    /// Its owner has replaced its content, while it had the writes wait: what began on the other content, and has not ended, ends with an
    /// error. What initiators have not made stable is lost, so that their flushes fail; who is away hears that when it is back. Nobody
    /// writes it again, for the tenure ends. Every initiator is told that the medium may be another one, also those of the units that are
    /// derived from it.
    pub fn content_replaced(&self) {
        self.replace_content();
        self.root().tenures.end();
        if self.is_volatile() {
            self.flush_failed();
        }
        self.root().for_each_derived(&mut |unit| unit.nexuses.raise(UnitAttention::MediumChanged, None));
    }
}
