//! The mode pages of a disk (SBC-4 6.5).

use sanwire_core::NexusId;
use sanwire_scsi::mode::{self, ModeState, ModeValues};
use sanwire_scsi::{ModeForm, ModeSense, Sense};
use sanwire_store::Geometry;

use crate::beginning::Beginning;
use crate::disk::capacity::capacity;
use crate::disk::provisioning_threshold::Watch;
use crate::refusal::Refusal;
use crate::step::{Step, finish};
use crate::unit_attention::UnitAttention;
use crate::unit_state::UnitState;

pub(super) fn sense(asked: &ModeSense, watch: &Watch, unit: &UnitState, geometry: &Geometry) -> Result<Vec<u8>, Sense> {
    mode::sense(asked, &state(watch, unit, geometry))
}

pub(super) fn select(form: ModeForm, list: &[u8], watch: &Watch, begun: &Beginning<'_>) -> Result<Step, Refusal> {
    let unit = &**begun.unit;
    let state = state(watch, unit, &begun.geometry);
    let (before, after) = (state.current, mode::select(form, list, &state)?);
    if after == before {
        return Ok(Step::Good);
    }
    begun.check_quiet()?;
    change(after, watch, unit, begun.nexus);
    // SBC-4 6.5.5: when the write cache is switched off, what is in it must reach the medium.
    Ok(finish(before.settings.write_cache && !after.settings.write_cache))
}

fn change(values: ModeValues, watch: &Watch, unit: &UnitState, by: NexusId) {
    unit.set_settings(values.settings);
    if values.thresholds != watch.thresholds() {
        watch.set(values.thresholds, unit.store().space().as_ref());
    }
    unit.nexuses.raise(UnitAttention::ModeChanged, Some(by));
}

fn state(watch: &Watch, unit: &UnitState, geometry: &Geometry) -> ModeState {
    let capacity = capacity(geometry);
    ModeState {
        current: ModeValues { settings: unit.settings(), thresholds: watch.thresholds() },
        default: ModeValues { settings: unit.default_settings(), ..ModeValues::default() },
        counted: watch.counted(),
        write_protected: unit.check_writable(geometry).is_err(),
        blocks: capacity.blocks,
        block_bytes: capacity.block_bytes,
    }
}
