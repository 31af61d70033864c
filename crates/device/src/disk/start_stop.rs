//! START STOP UNIT (SBC-4 5.31): whether the medium of a disk is there, and turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sanwire_buffer::Region;
use sanwire_core::NexusId;
use sanwire_scsi::{AdditionalSense, Sense, SenseKey, StartStop};
use sanwire_store::{Completion, Geometry, Request};

use crate::fault;
use crate::range::Range;
use crate::step::{CommandState, Ongoing, Step, flushed};
use crate::unit_attention::UnitAttention;
use crate::unit_state::UnitState;

/// What START STOP UNIT has done.
#[derive(Debug)]
pub(crate) struct Load {
    /// Whether initiators can eject and load the medium (RMB).
    is_removable: bool,
    is_stopped: AtomicBool,
    is_ejected: AtomicBool,
}

impl Load {
    /// Loaded and started.
    pub(super) fn new(is_removable: bool) -> Load {
        Load { is_removable, is_stopped: AtomicBool::new(false), is_ejected: AtomicBool::new(false) }
    }

    pub(super) fn is_removable(&self) -> bool {
        self.is_removable
    }

    pub(super) fn start(&self) {
        self.is_stopped.store(false, Ordering::Release);
    }

    fn eject(&self) {
        self.is_ejected.store(true, Ordering::Release);
    }

    /// The medium is back; all others are told.
    pub(super) fn load(&self, unit: &UnitState, by: Option<NexusId>) {
        if self.is_ejected.swap(false, Ordering::AcqRel) {
            unit.nexuses.raise(UnitAttention::MediumChanged, by);
        }
    }

    fn is_ejected(&self) -> bool {
        self.is_ejected.load(Ordering::Acquire)
    }

    /// Refuses access to the medium while it is ejected or the unit stopped (SBC-4 4.21).
    pub(super) fn check_started(&self) -> Result<(), Sense> {
        if self.is_ejected() {
            return Err(Sense::new(SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT));
        }
        if self.is_stopped.load(Ordering::Acquire) {
            return Err(Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_INITIALIZING_COMMAND_REQUIRED));
        }
        Ok(())
    }

    /// The same, or when the store has shrunk to nothing.
    pub(super) fn check_present(&self, geometry: &Geometry) -> Result<(), Sense> {
        self.check_started()?;
        if geometry.length_bytes < u64::from(geometry.block_bytes) { Err(fault::NOT_ACCESSIBLE) } else { Ok(()) }
    }
}

pub(super) fn start_stop(asked: StartStop, load: &Arc<Load>, unit: &UnitState, nexus: NexusId) -> Result<Step, Sense> {
    if asked.power_condition != 0 {
        // There is no power to save: every condition is entered by doing nothing, and wakes up by itself.
        return Ok(Step::Good);
    }
    if asked.load_eject {
        return load_eject(asked, load, unit, nexus);
    }
    // A removable unit is there as long as its medium is: initiators stop it without starting it again.
    let stops = !asked.start && !load.is_removable;
    if asked.start || (stops && asked.no_flush) {
        load.is_stopped.store(stops, Ordering::Release);
        return Ok(Step::Good);
    }
    // SBC-4 5.31: what is cached is written before the unit stops.
    let state = if stops { Unloading::of(load, Unload::Stop) } else { CommandState::Flush };
    Ok(Step::Store(state, Request::Flush))
}

fn load_eject(asked: StartStop, load: &Arc<Load>, unit: &UnitState, nexus: NexusId) -> Result<Step, Sense> {
    if !load.is_removable {
        return Err(Sense::invalid_field_in_cdb(4, Some(1)));
    }
    if unit.is_removal_prevented() {
        return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::MEDIUM_REMOVAL_PREVENTED));
    }
    if asked.start {
        load.load(unit, Some(nexus));
        return Ok(Step::Good);
    }
    if asked.no_flush || load.is_ejected() {
        eject(load, unit);
        return Ok(Step::Good);
    }
    Ok(Step::Store(Unloading::of(load, Unload::Eject), Request::Flush))
}

/// Takes the medium out. When it is back, nobody knows what is on it.
pub(super) fn eject(load: &Load, unit: &UnitState) {
    load.eject();
    unit.note_change(Range { offset_bytes: 0, length_bytes: u64::MAX });
}

/// Flushing before the unit is stopped or its medium ejected.
#[derive(Debug)]
struct Unloading {
    load: Arc<Load>,
    change: Unload,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unload {
    Stop,
    Eject,
}

impl Unloading {
    fn of(load: &Arc<Load>, change: Unload) -> CommandState {
        CommandState::Ongoing(Box::new(Unloading { load: Arc::clone(load), change }))
    }
}

impl Ongoing for Unloading {
    fn next(self: Box<Self>, unit: &UnitState, completion: Completion, _: &Region) -> Result<Step, Sense> {
        let step = flushed(completion)?;
        match self.change {
            Unload::Stop => self.load.is_stopped.store(true, Ordering::Release),
            Unload::Eject => eject(&self.load, unit),
        }
        Ok(step)
    }
}
