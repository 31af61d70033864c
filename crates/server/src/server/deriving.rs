//! What a server has for volumes that are derived from others.

use std::sync::Arc;

use sanwire_store::VolumeSpec;

use super::Server;
use crate::derived::Owners;
use crate::latest_time::LatestTime;
use crate::programs::Programs;
use crate::volumes::forget_derived;
use crate::wall_time::set_clock;

impl Server {
    /// Tells the device what time it is: it reads no clock.
    pub(crate) fn set_clock(&self) {
        set_clock(self.clock.clone());
    }

    /// Forgets who a volume was that was derived from another one: one of its name that comes later is another one.
    pub(crate) fn forget_derived(&self, spec: &VolumeSpec) {
        if spec.parent().is_some() {
            forget_derived(&spec.name, self.state_directory.as_deref(), &self.programs);
        }
    }

    /// The latest time that it has seen.
    pub(crate) fn latest_time(&self) -> &Arc<LatestTime> {
        &self.latest_time
    }

    /// The programs that judge commands.
    pub(crate) fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Who owns volumes.
    pub(crate) fn owners(&self) -> &Arc<Owners> {
        &self.clients.owners
    }
}
