//! Block devices (SBC-4): the device server of a disk.

mod access;
mod capacity;
pub(crate) mod compare_and_write;
pub(crate) mod copy;
pub(crate) mod growth;
mod inquiry;
pub(crate) mod lba_status;
mod mode;
pub(crate) mod provisioning_threshold;
mod rod;
pub(crate) mod sanitize;
mod start_stop;
pub(crate) mod unmap;
pub(crate) mod verify;
pub(crate) mod write_same;

use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::log::ResourceCounts;
use sanwire_scsi::mode::Thresholds;
use sanwire_scsi::rod::RodCommand;
use sanwire_scsi::{BlockCommand, CommandSet, Features, ModeForm, ModeSense, Operation, Sense, Task};
use sanwire_store::{Geometry, Space, Store};

use crate::beginning::Beginning;
use crate::copies::Copies;
use crate::device_server::DeviceServer;
use crate::medium::{Medium, MediumError};
use crate::refusal::Refusal;
use crate::step::Step;
use crate::unit_attention::{Nexuses, UnitAttention};
use crate::unit_state::UnitState;

use provisioning_threshold::{ReachedThresholds, Watch};
use sanitize::SanitizeState;
use start_stop::Load;

/// The state of a disk that its initiators share, besides that of the unit.
#[derive(Debug)]
pub(crate) struct Disk {
    load: Arc<Load>,
    /// What it was asked to copy.
    copies: Arc<Copies>,
    sanitize: Arc<SanitizeState>,
    /// The space behind the store.
    watch: Watch,
}

impl Disk {
    /// A disk whose store has this space behind it.
    pub(crate) fn new(is_removable: bool, space: Option<&Space>) -> Disk {
        let (load, sanitize) = (Arc::new(Load::new(is_removable)), Arc::default());
        Disk { load, copies: Arc::default(), sanitize, watch: Watch::new(space) }
    }
}

impl Medium for Disk {
    fn check_not_busy(&self) -> Result<(), Sense> {
        self.sanitize.check_not_running()
    }

    /// Also while a sanitize has left the medium undefined.
    fn check_ready(&self, geometry: &Geometry) -> Result<(), Sense> {
        self.sanitize.check_not_running()?;
        self.load.check_present(geometry)?;
        self.sanitize.check_not_failed()
    }

    /// Tells all initiators of the thresholds that a change of the medium has reached.
    fn changed(&self, store: &dyn Store, nexuses: &Nexuses) {
        let Some(space) = self.watch.is_watching().then(|| store.space()).flatten() else { return };
        let ReachedThresholds { available, used } = self.watch.observe(&space);
        let is_second = self.watch.counted().available;
        let of_used = if is_second { UnitAttention::SecondThreshold } else { UnitAttention::FirstThreshold };
        let attentions = [available.then_some(UnitAttention::FirstThreshold), used.then_some(of_used)];
        attentions.into_iter().flatten().for_each(|attention| nexuses.raise(attention, None));
    }
}

impl DeviceServer for Disk {
    fn commands(&self, unit: &UnitState, geometry: &Geometry) -> CommandSet {
        let atomic = geometry.atomic_write_bytes >= geometry.block_bytes;
        CommandSet::disk(Features { thin: geometry.discards, atomic, tokens: unit.tokens().can_be_made() })
    }

    fn standard_inquiry(&self) -> Vec<u8> {
        sanwire_scsi::inquiry::standard_inquiry(self.load.is_removable()).to_vec()
    }

    fn vpd_pages(&self) -> &'static [u8] {
        inquiry::PAGES
    }

    fn vpd_page(&self, page: u8, unit: &UnitState, geometry: &Geometry, transfer_max_bytes: usize) -> Option<Vec<u8>> {
        inquiry::page(page, (self.watch.counted(), unit.tokens().can_be_made()), geometry, transfer_max_bytes)
    }

    fn mode_sense(&self, asked: &ModeSense, unit: &UnitState, geometry: &Geometry) -> Result<Vec<u8>, Sense> {
        mode::sense(asked, &self.watch, unit, geometry)
    }

    fn mode_select(&self, form: ModeForm, list: &[u8], begun: &Beginning<'_>) -> Result<Step, Refusal> {
        mode::select(form, list, &self.watch, begun)
    }

    fn resource_counts(&self, unit: &UnitState) -> Option<ResourceCounts> {
        let space = unit.store().space().filter(|_| self.watch.counted().any())?;
        Some(provisioning_threshold::counts(&space))
    }

    fn check_started(&self) -> Result<(), Sense> {
        self.load.check_started()
    }

    fn begin(&self, operation: &Operation, begun: &Beginning<'_>, task: &mut Task) -> Result<Step, Refusal> {
        let command = BlockCommand::parse(operation, &task.cdb)?;
        begun.takes(command.data_out_bytes(begun.geometry.block_bytes), task);
        let unit = &**begun.unit;
        match command {
            // These work without a medium, or end the state that refuses it.
            BlockCommand::StartStopUnit(asked) => {
                return Ok(start_stop::start_stop(asked, &self.load, unit, begun.nexus)?);
            }
            BlockCommand::PreventAllowMediumRemoval { prevent } => {
                unit.prevent_removal(begun.nexus, prevent);
                return Ok(Step::Good);
            }
            BlockCommand::ReceiveCopyResults { asked, list_id, allocation_bytes } => {
                return Ok(copy::receive_copy_results(asked, list_id, allocation_bytes, &self.copies, begun)?);
            }
            BlockCommand::Rod(
                asked @ (RodCommand::Abort { .. } | RodCommand::Status { .. } | RodCommand::Information { .. }),
            ) => return Ok(rod::ask(asked, &self.copies, begun)?),
            BlockCommand::Sanitize(asked) => {
                return sanitize::sanitize(asked, (&self.sanitize, &self.load), begun, task);
            }
            _ => unit.check_ready(&begun.geometry)?,
        }
        access::access(&command, begun, task, &self.copies)
    }

    fn eject(&self, unit: &UnitState, is_forced: bool) -> Result<(), MediumError> {
        if !self.load.is_removable() {
            return Err(MediumError::Fixed);
        }
        if unit.is_removal_prevented() && !is_forced {
            return Err(MediumError::Prevented);
        }
        start_stop::eject(&self.load, unit);
        Ok(())
    }

    fn load(&self, medium: Option<Arc<dyn Store>>, unit: &UnitState) -> Result<(), MediumError> {
        if medium.is_some() || !self.load.is_removable() {
            return Err(MediumError::Fixed);
        }
        self.load.load(unit, None);
        Ok(())
    }

    fn reset(&self) {
        self.watch.set(Thresholds::default(), None);
        self.load.start();
        self.copies.clear();
    }

    fn forget(&self, nexus: NexusId) {
        self.copies.forget(nexus);
    }
}
