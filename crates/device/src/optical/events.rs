//! Which initiator must still be told of which event of the medium, when it asks (GET EVENT STATUS NOTIFICATION).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;
use sanwire_scsi::mmc::MediaEvent;

/// The last event for each nexus that asks for events; those before it do not count any more.
#[derive(Default, Debug)]
pub(super) struct Events(Mutex<BTreeMap<NexusId, Option<MediaEvent>>>);

impl Events {
    /// Something has happened.
    pub(super) fn raise(&self, event: MediaEvent) {
        self.lock().values_mut().for_each(|pending| *pending = Some(event));
    }

    /// What the nexus has not been told; it is told of what happens from its first question on.
    pub(super) fn take(&self, nexus: NexusId) -> Option<MediaEvent> {
        self.lock().entry(nexus).or_default().take()
    }

    pub(super) fn forget(&self, nexus: NexusId) {
        self.lock().remove(&nexus);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NexusId, Option<MediaEvent>>> {
        // Nothing panics between two writes to the map: a poisoned one is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
