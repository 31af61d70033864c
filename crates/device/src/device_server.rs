//! What a device type has to say: the seam between a logical unit and what it is.

use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::log::ResourceCounts;
use sanwire_scsi::{CommandSet, ModeForm, ModeSense, Operation, Sense, Task};
use sanwire_store::{Geometry, Store};

use crate::beginning::Beginning;
use crate::medium::{Medium, MediumError};
use crate::refusal::Refusal;
use crate::step::Step;
use crate::unit_state::UnitState;

/// The device server of one type (SAM-5 4.6.4), as far as types differ: a [`UnitState`] is what SPC asks of all of them.
///
/// A command begins at [`DeviceServer::begin`]. What its store has to do comes back in the [`Step`], together with a state that goes
/// on when that is done: one of those that all types share, or an [`crate::step::Ongoing`] of the type, which is also
/// what an abort drops.
pub(crate) trait DeviceServer: Medium {
    /// The operations that this unit of the type has on such a medium.
    fn commands(&self, unit: &UnitState, geometry: &Geometry) -> CommandSet;

    /// Standard INQUIRY data. Its first byte is that of all VPD pages too.
    fn standard_inquiry(&self) -> Vec<u8>;

    /// The VPD pages that it has besides those of all units, ascending.
    fn vpd_pages(&self) -> &'static [u8];

    /// One of these pages; what passes the command on transfers so much at once, in bytes.
    fn vpd_page(&self, page: u8, unit: &UnitState, geometry: &Geometry, transfer_max_bytes: usize) -> Option<Vec<u8>>;

    /// MODE SENSE data, whole.
    fn mode_sense(&self, asked: &ModeSense, unit: &UnitState, geometry: &Geometry) -> Result<Vec<u8>, Sense>;

    /// MODE SELECT with this parameter list.
    fn mode_select(&self, form: ModeForm, list: &[u8], begun: &Beginning<'_>) -> Result<Step, Refusal>;

    /// The space behind the unit, where that is counted.
    fn resource_counts(&self, _unit: &UnitState) -> Option<ResourceCounts> {
        None
    }

    /// Refuses access to the medium while there is none, or it does not turn.
    fn check_started(&self) -> Result<(), Sense>;

    /// Begins one of the operations of [`DeviceServer::commands`] that SPC does not define.
    fn begin(&self, operation: &Operation, begun: &Beginning<'_>, task: &mut Task) -> Result<Step, Refusal>;

    /// Takes the medium out, whether initiators have asked that it stays or not if `is_forced`.
    fn eject(&self, unit: &UnitState, is_forced: bool) -> Result<(), MediumError>;

    /// Whether such a medium could be put in.
    fn check_medium(&self, _medium: &Arc<dyn Store>) -> Result<(), MediumError> {
        Err(MediumError::Fixed)
    }

    /// Puts a medium in, or the one back that was there.
    fn load(&self, medium: Option<Arc<dyn Store>>, unit: &UnitState) -> Result<(), MediumError>;

    /// The unit is reset.
    fn reset(&self);

    /// The nexus is gone.
    fn forget(&self, nexus: NexusId);
}
