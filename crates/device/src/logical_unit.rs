//! One disk: a logical unit on a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use sanwire_core::NexusId;
use sanwire_core::quota::Usage;
use sanwire_scsi::log::ResourceCounts;
use sanwire_scsi::mode::{CountedResources, ModeValues, Settings, Thresholds};
use sanwire_scsi::{AdditionalSense, Capacity, Features, Identity, Reply, Sense, SenseKey, Status};
use sanwire_store::{ErrorKind, Geometry, Patience, Store, StoreError};

use crate::disk::copy::Copies;
use crate::disk::provisioning_threshold::{self, Reached, Watch};
use crate::disk::sanitize::SanitizeState;
use crate::disturbances::Disturbances;
use crate::exclusion::Exclusion;
use crate::fault;
use crate::flushes::Flushes;
use crate::nexus::NexusPorts;
use crate::reservation::{KeptError, ReservationKeeper, Reservations};
use crate::store_retry::StoreRetry;
use crate::tenure::{Tenures, Volatility};
use crate::unit_attention::{Nexuses, UnitAttention};

/// How a disk behaves, as its owner wishes.
#[derive(Clone, Debug)]
pub struct UnitOptions {
    /// Whether the write cache is on after a reset: without it every write is flushed before it is answered.
    pub write_cache: bool,
    /// Where reservations are kept through restarts; `None` when they cannot be.
    pub reservations: Option<Arc<dyn ReservationKeeper>>,
    /// Whether initiators can eject and load the medium (RMB).
    pub removable: bool,
    /// A number by which the owner finds what it keeps beside the disk.
    pub slot: u16,
    /// How long commands wait for a store that cannot do its work now. Who drives the store sees to it.
    pub patience: Patience,
    /// What may become of writes that are complete and not flushed; `None`: they stay for as long as the disk is the same.
    pub volatility: Option<Volatility>,
}

impl Default for UnitOptions {
    fn default() -> Self {
        UnitOptions {
            write_cache: true,
            removable: false,
            reservations: None,
            slot: 0,
            patience: Patience::default(),
            volatility: None,
        }
    }
}

/// A store on which no disk can stand.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnitError {
    /// Blocks have 512 or 4096 bytes.
    #[error("a disk cannot have blocks of {0} bytes: choose 512 or 4096")]
    BlockSize(u32),
    /// There is not one block.
    #[error("a disk must have at least one block: the store is shorter than {0} bytes")]
    Empty(u32),
    /// It cannot be known what is reserved.
    #[error(transparent)]
    Reservations(#[from] KeptError),
}

/// One logical unit: a name, a store, and the state that all its initiators share.
#[derive(Debug)]
pub struct LogicalUnit {
    identity: Identity,
    store: Arc<dyn Store>,
    default: Settings,
    /// The mode pages in effect, as [`Settings::to_bits`].
    settings: AtomicU8,
    is_removable: bool,
    slot: u16,
    is_stopped: AtomicBool,
    is_ejected: AtomicBool,
    is_gone: AtomicBool,
    pub(crate) nexuses: Nexuses,
    pub(crate) exclusion: Exclusion,
    pub(crate) tenures: Tenures,
    pub(crate) flushes: Flushes,
    /// What it was asked to copy.
    pub(crate) copies: Arc<Copies>,
    pub(crate) reservations: Reservations,
    pub(crate) sanitize: SanitizeState,
    /// The space behind the store.
    watch: Watch,
    stalls: Arc<StoreRetry>,
    pub(crate) disturbances: Disturbances,
}

impl LogicalUnit {
    /// A disk on `store`.
    ///
    /// # Errors
    /// [`UnitError`] when the store's geometry is not one that a disk can have, or the kept reservations cannot be had.
    pub fn new(identity: Identity, store: Arc<dyn Store>, options: UnitOptions) -> Result<Self, UnitError> {
        let geometry = store.geometry();
        let block_bytes = geometry.block_bytes;
        if !matches!(block_bytes, 512 | 4096) {
            return Err(UnitError::BlockSize(block_bytes));
        }
        if geometry.length_bytes < u64::from(block_bytes) {
            return Err(UnitError::Empty(block_bytes));
        }
        let watch = Watch::new(store.space().as_ref());
        let default = Settings { write_cache: options.write_cache, ..Settings::default() };
        let stalls = Arc::new(StoreRetry::new(identity.name(), options.patience));
        let flushes = Flushes::new(options.volatility.as_ref());
        Ok(LogicalUnit {
            identity,
            store,
            default,
            settings: AtomicU8::new(default.to_bits()),
            is_removable: options.removable,
            slot: options.slot,
            is_stopped: AtomicBool::new(false),
            is_ejected: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            nexuses: Nexuses::default(),
            exclusion: Exclusion::default(),
            tenures: Tenures::new(options.volatility),
            flushes,
            copies: Arc::default(),
            reservations: Reservations::load(options.reservations)?,
            sanitize: SanitizeState::default(),
            watch,
            stalls,
            disturbances: Disturbances::default(),
        })
    }

    /// Its name and number.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where its blocks live.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Which commands wait for its store.
    #[must_use]
    pub fn stalls(&self) -> &Arc<StoreRetry> {
        &self.stalls
    }

    /// How the quotas of the volume are used.
    #[must_use]
    pub fn quotas(&self) -> [Usage; 4] {
        let [of_all, of_client] = self.disturbances.usages();
        [self.reservations.usage(), of_all, of_client, self.stalls.usage()]
    }

    /// Whether the last request told that the store's backing object is gone. It ends with the next one that succeeds.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Marks the backing object as gone or back, when the owner of the store knows before a request does.
    pub fn set_gone(&self, is_gone: bool) {
        self.is_gone.store(is_gone, Ordering::Relaxed);
    }

    pub(crate) fn prevent_removal(&self, nexus: NexusId, is_prevented: bool) {
        self.nexuses.set_prevent(nexus, is_prevented);
    }

    /// Whether an initiator asked that the medium stays (PREVENT ALLOW MEDIUM REMOVAL).
    #[must_use]
    pub fn is_removal_prevented(&self) -> bool {
        self.nexuses.is_removal_prevented()
    }

    /// Tells every initiator to look at the capacity again: the store has grown or shrunk.
    pub fn capacity_changed(&self) {
        self.nexuses.raise(UnitAttention::CapacityChanged, None);
    }

    /// Takes in a nexus; one that was there before the disk had its number finds it only when it has asked who is there.
    pub(crate) fn establish(&self, nexus: NexusId, ports: &Arc<NexusPorts>, is_unseen: bool) {
        self.reservations.establish(nexus, Arc::clone(ports));
        self.flushes.establish(nexus, Arc::clone(ports));
        self.nexuses.establish(nexus, is_unseen);
    }

    pub(crate) fn forget(&self, nexus: NexusId) {
        self.nexuses.forget(nexus);
        self.flushes.forget(nexus);
        self.tenures.forget(nexus);
        self.copies.forget(nexus);
        self.reservations.forget(nexus);
    }

    pub(crate) fn reset(&self) {
        self.reservations.reset();
        self.settings.store(self.default.to_bits(), Ordering::Release);
        self.watch.set(Thresholds::default(), None);
        self.is_stopped.store(false, Ordering::Release);
        self.nexuses.allow_all();
        self.copies.clear();
        // SAM-5 6.3.3: everybody is told, also who asked for it.
        self.nexuses.raise(UnitAttention::Reset, None);
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings::from_bits(self.settings.load(Ordering::Acquire))
    }

    /// What the mode pages say.
    pub(crate) fn mode_values(&self) -> ModeValues {
        ModeValues { settings: self.settings(), thresholds: self.watch.thresholds() }
    }

    /// What they say after a reset.
    pub(crate) fn default_values(&self) -> ModeValues {
        ModeValues { settings: self.default, ..ModeValues::default() }
    }

    pub(crate) fn change_values(&self, values: ModeValues, by: NexusId) {
        self.settings.store(values.settings.to_bits(), Ordering::Release);
        if values.thresholds != self.watch.thresholds() {
            self.watch.set(values.thresholds, self.store.space().as_ref());
        }
        self.nexuses.raise(UnitAttention::ModeChanged, Some(by));
    }

    /// What LOG SENSE and the thresholds count.
    pub(crate) fn counted(&self) -> CountedResources {
        self.watch.counted()
    }

    /// The space behind the store; `None` when it is not counted.
    pub(crate) fn resource_counts(&self) -> Option<ResourceCounts> {
        let space = self.store.space().filter(|_| self.counted().any())?;
        Some(provisioning_threshold::counts(&space))
    }

    /// Tells everybody of the thresholds that a change of the medium has reached.
    pub(crate) fn watch_space(&self) {
        let Some(space) = self.watch.is_watching().then(|| self.store.space()).flatten() else { return };
        let Reached { available, used } = self.watch.observe(&space);
        let of_used =
            if self.counted().available { UnitAttention::SecondThreshold } else { UnitAttention::FirstThreshold };
        for attention in
            [available.then_some(UnitAttention::FirstThreshold), used.then_some(of_used)].into_iter().flatten()
        {
            self.nexuses.raise(attention, None);
        }
    }

    pub(crate) fn set_stopped(&self, is_stopped: bool) {
        self.is_stopped.store(is_stopped, Ordering::Release);
    }

    /// The number that its owner gave it.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.slot
    }

    pub(crate) fn is_removable(&self) -> bool {
        self.is_removable
    }

    pub(crate) fn is_ejected(&self) -> bool {
        self.is_ejected.load(Ordering::Acquire)
    }

    pub(crate) fn set_ejected(&self, is_ejected: bool) {
        self.is_ejected.store(is_ejected, Ordering::Release);
    }

    /// Refuses access to the medium while there is none, it cannot be reached, or a sanitize has left it undefined.
    pub(crate) fn check_ready(&self, geometry: &Geometry) -> Result<(), Sense> {
        self.sanitize.check_not_running()?;
        self.check_present(geometry)?;
        self.sanitize.check_not_failed()
    }

    /// Refuses access to the medium while the unit is stopped (SBC-4 4.21), or when the store has shrunk to nothing.
    pub(crate) fn check_present(&self, geometry: &Geometry) -> Result<(), Sense> {
        self.check_started()?;
        if geometry.length_bytes < u64::from(geometry.block_bytes) { Err(fault::NOT_ACCESSIBLE) } else { Ok(()) }
    }

    /// Refuses access to the medium while it is ejected or the unit stopped.
    pub(crate) fn check_started(&self) -> Result<(), Sense> {
        if self.is_ejected() {
            return Err(Sense::new(SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT));
        }
        if self.is_stopped.load(Ordering::Acquire) {
            return Err(Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_INITIALIZING_COMMAND_REQUIRED));
        }
        Ok(())
    }

    /// Refuses to change the medium while it is protected (SBC-4 4.13).
    pub(crate) fn check_writable(&self, geometry: &Geometry) -> Result<(), Sense> {
        if geometry.read_only {
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED));
        }
        if self.settings().software_write_protect {
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::SOFTWARE_WRITE_PROTECTED));
        }
        Ok(())
    }

    /// Notes what a completion says about the store as a whole; a store that goes on working costs one load.
    pub(crate) fn note(&self, error: Option<&StoreError>) {
        let is_gone = error.is_some_and(|error| error.kind == ErrorKind::Gone);
        if self.is_gone() != is_gone && (is_gone || error.is_none()) {
            self.set_gone(is_gone);
        }
    }

    /// Sense data for a failed request on a place of the store.
    pub(crate) fn fault(&self, error: &StoreError) -> Sense {
        fault::sense(error, Some(self.store.geometry().block_bytes))
    }

    /// CHECK CONDITION, in the format that the control mode page asks for.
    pub(crate) fn check_condition(&self, sense: &Sense) -> Reply {
        check_condition(sense, self.settings().descriptor_sense)
    }
}

/// CHECK CONDITION with sense data in fixed or descriptor format.
pub(crate) fn check_condition(sense: &Sense, descriptor: bool) -> Reply {
    let sense = if descriptor { sense.to_descriptor() } else { sense.to_fixed() };
    Reply { sense, ..Reply::bare(Status::CheckCondition) }
}

/// What a disk on this store can do beyond the least.
pub(crate) fn features(geometry: &Geometry) -> Features {
    Features { thin: geometry.discards, atomic: geometry.atomic_write_bytes >= geometry.block_bytes }
}

pub(crate) fn capacity(geometry: &Geometry) -> Capacity {
    let block_bytes = geometry.block_bytes.max(1);
    let ratio = (geometry.physical_block_bytes / block_bytes).max(1);
    Capacity {
        blocks: geometry.length_bytes / u64::from(block_bytes),
        block_bytes,
        physical_block_exponent: ratio.ilog2().min(15) as u8,
        provisioning_management: geometry.discards,
        reads_zeroes: geometry.discards,
    }
}
