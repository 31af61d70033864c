//! What a logical unit keeps whatever its type is: what SPC asks of every unit, and the store that its medium is.

mod flushing;
mod lineage;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use sanwire_core::quota::{PROGRAM_FUEL, Usage};
use sanwire_core::{DeviceType, NexusId};
use sanwire_scsi::mode::Settings;
use sanwire_scsi::{AdditionalSense, Identity, Reply, Sense, SenseKey};
use sanwire_store::{ErrorCounts, ErrorKind, Geometry, Patience, Store, StoreError};

use crate::abort_scope::UnitId;
use crate::derived::Derived;
use crate::disturbances::Disturbances;
use crate::fault;
use crate::flushes::UnitFlushes;
use crate::last_writer::LastWriter;
use crate::medium::Medium;
use crate::nexus::NexusPorts;
use crate::range::Range;
use crate::reservation::{KeptError, ReservationKeeper, ReservationReport, Reservations};
use crate::store_retry::StoreRetry;
use crate::tenure::{Tenures, Volatility};
use crate::tokens::{TokenSeed, Tokens};
use crate::unit_attention::{Met, Nexuses, UnitAttention};
use crate::unit_exclusion::UnitExclusion;
use crate::viewers::{Viewers, Wanted};

/// How a unit behaves, as its owner wishes.
#[derive(Clone, Debug)]
pub struct UnitOptions {
    /// What it is to initiators.
    pub device_type: DeviceType,
    /// Whether the write cache is on after a reset: without it every write is flushed before it is answered.
    pub write_cache: bool,
    /// Where reservations are kept through restarts; `None` when they cannot be.
    pub reservations: Option<Arc<dyn ReservationKeeper>>,
    /// Whether initiators can eject and load the medium (RMB).
    pub removable: bool,
    /// A number by which the owner finds what it keeps beside the unit.
    pub slot: u16,
    /// How long commands wait for a store that cannot do its work now. The driver of the store sees to it.
    pub patience: Patience,
    /// What may become of writes that are complete and not flushed; `None`: they stay for as long as the unit is the same.
    pub volatility: Option<Volatility>,
    /// From what it makes tokens that stand for its data; `None`: it makes none. A unit that is derived has those of its root.
    pub token_seed: Option<TokenSeed>,
}

impl Default for UnitOptions {
    fn default() -> Self {
        UnitOptions {
            device_type: DeviceType::Disk,
            write_cache: true,
            removable: false,
            reservations: None,
            slot: 0,
            patience: Patience::default(),
            volatility: None,
            token_seed: None,
        }
    }
}

/// The state of a logical unit that all its initiators share, but for that of its device type: its identity and its store, unit
/// attentions, reservations, bits of mode pages, and what commands hold of its blocks.
#[derive(Debug)]
pub struct UnitState {
    id: UnitId,
    identity: Identity,
    store: Arc<dyn Store>,
    default: Settings,
    /// The mode pages in effect, as [`Settings::to_bits`].
    settings: AtomicU8,
    slot: u16,
    is_gone: AtomicBool,
    pub(crate) nexuses: Nexuses,
    pub(crate) viewers: Viewers,
    /// Whether it meets each nexus when that comes, not when that first uses it: it must know which nexuses were there when
    /// something happened.
    is_watchful: AtomicBool,
    pub(crate) exclusion: UnitExclusion,
    /// Of a unit that is derived those of its root count.
    pub(crate) tenures: Tenures,
    pub(crate) flushes: UnitFlushes,
    pub(crate) last_writer: LastWriter,
    pub(crate) reservations: Reservations,
    stalls: Arc<StoreRetry>,
    store_errors: ErrorCounts,
    pub(crate) disturbances: Disturbances,
    medium: Arc<dyn Medium>,
    /// How often its owner has replaced its content. Of a unit that is derived that of its root counts.
    replaced: AtomicU32,
    /// Of a unit that is derived those of its root count.
    tokens: Tokens,
    lineage: Option<Box<Lineage>>,
    /// The units that are derived from it.
    children: Mutex<Children>,
}

/// The units that are derived from one.
#[derive(Default, Debug)]
struct Children {
    units: Vec<Weak<UnitState>>,
    /// Whether there will be no more: the unit is taken back, or goes.
    is_closed: bool,
}

/// From what a unit is derived, and how.
#[derive(Debug)]
pub(crate) struct Lineage {
    pub(crate) parent: Arc<UnitState>,
    /// The unit at the end of the line, on whose store all of them stand.
    pub(crate) root: Arc<UnitState>,
    pub(crate) derived: Derived,
}

impl UnitState {
    pub(crate) fn new(
        identity: Identity,
        store: Arc<dyn Store>,
        medium: Arc<dyn Medium>,
        options: UnitOptions,
        lineage: Option<Box<Lineage>>,
    ) -> Result<Self, KeptError> {
        let default = Settings { write_cache: options.write_cache, ..Settings::default() };
        let stalls = Arc::new(StoreRetry::new(identity.name(), options.patience));
        let id = UnitId::next();
        let (exclusion, flushes, is_watchful) = match &lineage {
            None => {
                let has_failed = options.volatility.as_ref().is_some_and(|kept| kept.has_failed);
                (
                    UnitExclusion::default(),
                    UnitFlushes::new((id, identity.uuid()), options.volatility.as_ref()),
                    has_failed,
                )
            }
            Some(lineage) => {
                let (root, map) = (&lineage.root, Arc::clone(&lineage.derived.in_root));
                (root.exclusion.of_part(map), root.flushes.of_part(id, identity.uuid()), root.is_watchful())
            }
        };
        Ok(UnitState {
            id,
            identity,
            store,
            default,
            settings: AtomicU8::new(default.to_bits()),
            slot: options.slot,
            is_gone: AtomicBool::new(false),
            nexuses: Nexuses::default(),
            viewers: Viewers::default(),
            is_watchful: AtomicBool::new(is_watchful),
            tenures: Tenures::new(options.volatility, &exclusion),
            exclusion,
            flushes,
            last_writer: LastWriter::default(),
            reservations: Reservations::load(options.reservations)?,
            stalls,
            store_errors: ErrorCounts::default(),
            disturbances: Disturbances::default(),
            medium,
            replaced: AtomicU32::default(),
            tokens: Tokens::new(options.token_seed),
            lineage,
            children: Mutex::default(),
        })
    }

    /// Which unit it is, among all that there ever are.
    #[must_use]
    pub fn id(&self) -> UnitId {
        self.id
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

    /// What its store has failed with, for whatever command.
    #[must_use]
    pub fn store_errors(&self) -> &ErrorCounts {
        &self.store_errors
    }

    /// How many persistent registrations there are, and whether the unit is reserved, in whichever way.
    #[must_use]
    pub fn reserved(&self) -> (usize, bool) {
        self.reservations.tally()
    }

    /// Who is registered for persistent reservations, and who has reserved the unit.
    #[must_use]
    pub fn reservation_report(&self) -> ReservationReport {
        self.reservations.report()
    }

    /// How the quotas of the volume are used.
    #[must_use]
    pub fn quotas(&self) -> [Usage; 5] {
        let [of_all, of_client] = self.disturbances.usages();
        let fuel = self.derived().map_or(Usage::refused(&PROGRAM_FUEL, 0), Derived::fuel_usage);
        [self.reservations.usage(), of_all, of_client, self.stalls.usage(), fuel]
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

    /// Whether an initiator asked that the medium stays (PREVENT ALLOW MEDIUM REMOVAL), so that no other one can eject it either.
    #[must_use]
    pub fn is_removal_prevented(&self) -> bool {
        // Some ask that of all units, and may not have used this one.
        self.acquaint_with(&Wanted::MediaLocked);
        self.nexuses.is_removal_prevented()
    }

    /// Tells every initiator to look at the capacity again: the store has grown or shrunk.
    pub fn capacity_changed(&self) {
        self.nexuses.raise(UnitAttention::CapacityChanged, None);
    }

    /// Makes a nexus known to the unit, if it sees it.
    pub(crate) fn acquaint(&self, nexus: NexusId) {
        self.acquaint_with(&Wanted::Nexus(nexus));
    }

    /// Makes those nexuses known to the unit that see it, as if each used it now.
    pub(crate) fn acquaint_with(&self, wanted: &Wanted<'_>) {
        self.viewers.all().into_iter().for_each(|(view, lun)| view.acquaint_with(lun, self.id, wanted));
    }

    /// From now on the unit meets each nexus when that comes, not when it first uses the unit.
    pub(crate) fn become_watchful(&self) {
        self.is_watchful.store(true, Ordering::SeqCst);
        self.viewers.all().into_iter().for_each(|(view, lun)| view.watch(lun, self.id));
        self.acquaint_with(&Wanted::All);
    }

    pub(crate) fn is_watchful(&self) -> bool {
        self.is_watchful.load(Ordering::SeqCst)
    }

    /// Takes in a nexus, when it first uses the unit.
    pub(crate) fn establish(&self, nexus: NexusId, ports: &Arc<NexusPorts>, met: Met) {
        self.reservations.establish(nexus, Arc::clone(ports));
        self.flushes.establish(nexus, Arc::clone(ports));
        self.nexuses.establish(nexus, met);
    }

    /// Refuses nearly every command while the unit, or one that it is derived from, does something that excludes them.
    pub(crate) fn check_not_busy(&self) -> Result<(), Sense> {
        self.ancestors().try_for_each(|unit| unit.medium.check_not_busy())?;
        self.medium.check_not_busy()
    }

    /// Refuses access to the medium for whatever reason there is.
    pub(crate) fn check_ready(&self, geometry: &Geometry) -> Result<(), Sense> {
        self.check_ancestors_ready()?;
        self.medium.check_ready(geometry)
    }

    /// Which medium is in, and which content: another number after each change.
    pub(crate) fn medium(&self) -> u32 {
        self.medium.number().wrapping_add(self.content())
    }

    /// Another number after each replacement of its content by its owner.
    pub(crate) fn content(&self) -> u32 {
        self.root().replaced.load(Ordering::SeqCst)
    }

    /// What stands for its data, and for that of all units with which it shares blocks.
    pub(crate) fn tokens(&self) -> &Tokens {
        &self.root().tokens
    }

    /// A range of it is about to be changed at its store: nothing stands any more for what was there.
    pub(crate) fn note_change(&self, range: Range) {
        if self.tokens().are_there() {
            self.tokens().cancel(&self.places(range));
        }
    }

    /// Where a range lies in its root.
    pub(crate) fn places(&self, range: Range) -> Vec<Range> {
        let Some(derived) = self.derived() else { return vec![range] };
        let pieces = derived.in_root.pieces(range.offset_bytes..range.offset_bytes.saturating_add(range.length_bytes));
        pieces.map(|piece| Range { offset_bytes: piece.start, length_bytes: piece.end - piece.start }).collect()
    }

    pub(crate) fn replace_content(&self) {
        self.root().replaced.fetch_add(1, Ordering::SeqCst);
    }

    /// A command has done something to the medium.
    pub(crate) fn medium_changed(&self) {
        self.medium.changed(&*self.store, &self.nexuses);
    }

    /// The mode page bits after a reset.
    pub(crate) fn default_settings(&self) -> Settings {
        self.default
    }

    pub(crate) fn set_settings(&self, settings: Settings) {
        self.settings.store(settings.to_bits(), Ordering::Release);
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings::from_bits(self.settings.load(Ordering::Acquire))
    }

    /// The number that its owner gave it.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// Refuses to change the medium while it is protected (SBC-4 4.13).
    pub(crate) fn check_writable(&self, geometry: &Geometry) -> Result<(), Sense> {
        if geometry.read_only {
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED));
        }
        if self.settings().software_write_protect || self.ancestors().any(|unit| unit.settings().software_write_protect)
        {
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
        let block_bytes = self.store.geometry().block_bytes;
        let offset_bytes = match self.derived() {
            Some(derived) => derived.number_of(error.offset_bytes),
            None => Some(error.offset_bytes),
        };
        fault::sense(error, offset_bytes.and_then(|offset| offset.checked_div(block_bytes.into())))
    }

    /// CHECK CONDITION, in the format that the control mode page asks for.
    pub(crate) fn check_condition(&self, sense: &Sense) -> Reply {
        fault::check_condition(sense, self.settings().descriptor_sense)
    }
}
