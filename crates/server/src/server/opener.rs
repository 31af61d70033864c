//! Who opens volumes while the server runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sanwire_core::WallClock;
use sanwire_device::{LogicalUnit, LogicalUnits};
use sanwire_store::{Acceptance, VolumeSpec};

use crate::config::VolumeConfig;
use crate::error::StartError;
use crate::pools::Pools;
use crate::programs::Programs;
use crate::volumes::{Former, OpenVolume, Opening, forget_opening, open_volume};

/// Who opens volumes.
#[derive(Clone)]
pub(crate) struct VolumeOpener {
    pub(super) state: Option<PathBuf>,
    pub(super) pools: Pools,
    /// Where it finds those from which others are derived.
    pub(super) units: Arc<LogicalUnits>,
    pub(super) clock: WallClock,
    pub(super) programs: Programs,
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
        self.open_from(self.parent_of(&volume.spec).as_ref(), volume, acceptance, slot)
    }

    /// The same of one that is derived from this one, which need not be served yet.
    ///
    /// # Errors
    /// As for [`VolumeOpener::open`].
    pub(crate) fn open_from(
        &self,
        parent: Option<&Arc<LogicalUnit>>,
        volume: &VolumeConfig,
        acceptance: Acceptance,
        slot: u16,
    ) -> Result<OpenVolume, StartError> {
        open_volume(volume, parent, &self.opening(acceptance, None), slot)
    }

    /// That from which a volume is derived, if it is, and that one is served.
    pub(crate) fn parent_of(&self, spec: &VolumeSpec) -> Option<Arc<LogicalUnit>> {
        self.units.find_named(spec.parent()?).map(|(_, unit)| unit)
    }

    fn opening(&self, acceptance: Acceptance, until: Option<Instant>) -> Opening<'_> {
        let VolumeOpener { pools, clock, programs, .. } = self;
        let seen = SystemTime::UNIX_EPOCH;
        Opening { state: self.state.as_deref(), pools, clock, programs, seen, acceptance, until }
    }

    /// The same for one whose file is just being closed elsewhere, for which it waits for so long at the most. `parent` is that from which it is
    /// derived, where that is not served yet.
    ///
    /// # Errors
    /// As for [`VolumeOpener::open`].
    pub(crate) fn open_within(
        &self,
        patience: Duration,
        parent: Option<Arc<LogicalUnit>>,
        volume: &VolumeConfig,
        slot: u16,
    ) -> Result<OpenVolume, StartError> {
        let opening = self.opening(Acceptance::Known, Some(Instant::now() + patience));
        let parent = parent.or_else(|| self.parent_of(&volume.spec));
        open_volume(volume, parent.as_ref(), &opening, slot)
    }

    /// What is known of a volume that was opened just now, and is closed and not served after all, is what was known before.
    pub(crate) fn forget_opening(&self, spec: &VolumeSpec, is_first: bool, former: Option<&Former>) {
        forget_opening(spec, self.state.as_deref(), is_first, former);
        self.pools.give_up_room(spec);
    }
}
