//! Which initiator must still be told of which event of the medium, when it asks (GET EVENT STATUS NOTIFICATION).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;
use sanwire_scsi::mmc::MediaEvent;

/// What each nexus that asks for events has not been told.
#[derive(Default, Debug)]
pub(super) struct Events(Mutex<BTreeMap<NexusId, Pending>>);

/// Of media that come and go only the last event counts; that one is wanted out is told after that, as long as it is in.
#[derive(Clone, Copy, Default, Debug)]
struct Pending {
    moved: Option<MediaEvent>,
    is_eject_wanted: bool,
}

impl Events {
    /// Something has happened.
    pub(super) fn raise(&self, event: MediaEvent) {
        for pending in self.lock().values_mut() {
            match event {
                MediaEvent::EjectRequest => pending.is_eject_wanted = true,
                MediaEvent::NewMedia | MediaEvent::Removal => {
                    *pending = Pending { moved: Some(event), is_eject_wanted: false };
                }
            }
        }
    }

    /// What the nexus has not been told; it is told of what happens from its first question on.
    pub(super) fn take(&self, nexus: NexusId) -> Option<MediaEvent> {
        let pending = &mut *self.lock();
        let pending = pending.entry(nexus).or_default();
        pending
            .moved
            .take()
            .or_else(|| std::mem::take(&mut pending.is_eject_wanted).then_some(MediaEvent::EjectRequest))
    }

    pub(super) fn forget(&self, nexus: NexusId) {
        self.lock().remove(&nexus);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NexusId, Pending>> {
        // Nothing panics between two writes to the map: a poisoned one is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
