//! Who opens volumes while the server runs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sanwire_store::{Acceptance, VolumeSpec};

use crate::config::VolumeConfig;
use crate::error::StartError;
use crate::pools::Pools;
use crate::volumes::{Former, OpenVolume, Opening, forget_opening, open_volume};

/// Who opens volumes.
#[derive(Clone)]
pub(crate) struct VolumeOpener {
    pub(super) state: Option<PathBuf>,
    pub(super) pools: Pools,
}

impl VolumeOpener {
    /// Opens a volume, which may take long; `acceptance` says what is done when it is not what is remembered of it.
    ///
    /// # Errors
    /// [`StartError`]; then nothing is remembered of it that was not before.
    pub(crate) fn open(
        &self,
        volume: &VolumeConfig,
        acceptance: Acceptance,
        slot: u16,
    ) -> Result<OpenVolume, StartError> {
        let opening = Opening { state: self.state.as_deref(), pools: &self.pools, acceptance, until: None };
        open_volume(volume, &opening, slot)
    }

    /// The same for one whose file is just being closed elsewhere, for which it waits for so long at the most.
    ///
    /// # Errors
    /// As for [`VolumeOpener::open`].
    pub(crate) fn open_within(
        &self,
        patience: Duration,
        volume: &VolumeConfig,
        slot: u16,
    ) -> Result<OpenVolume, StartError> {
        let until = Some(Instant::now() + patience);
        let acceptance = Acceptance::Known;
        let opening = Opening { state: self.state.as_deref(), pools: &self.pools, acceptance, until };
        open_volume(volume, &opening, slot)
    }

    /// What is known of a volume that was opened just now, and is closed and not served after all, is what was known before.
    pub(crate) fn forget_opening(&self, spec: &VolumeSpec, is_first: bool, former: Option<&Former>) {
        forget_opening(spec, self.state.as_deref(), is_first, former);
        self.pools.give_up_room(spec);
    }
}
