//! READ, WRITE and SYNCHRONIZE CACHE (SBC-4 5.15 to 5.18, 5.39 to 5.42, 5.31).

use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_scsi::{Extent, Sense, Task};
use sanwire_store::{Geometry, Request};

use crate::beginning::Beginning;
use crate::data::{frame, take_data, written_bytes};
use crate::fault;
use crate::piece::memory_max_bytes;
use crate::range::{Range, length_error};
use crate::refusal::Refusal;
use crate::step::{CommandState, Step};
use crate::unit_state::UnitState;

pub(crate) fn read(extent: Extent, begun: &Beginning<'_>, task: &Task) -> Result<Step, Refusal> {
    let (unit, geometry) = (begun.unit, &begun.geometry);
    let medium = medium(unit, task)?;
    let range = Range::of(extent, geometry)?;
    let length = range.length_within(memory_max_bytes(task), task)?;
    let room_bytes = length.min(task.data_in_max_bytes as usize);
    if room_bytes == 0 {
        return Ok(Step::Good);
    }
    // What the initiator has no room for is not read.
    let whole_blocks = room_bytes.next_multiple_of(geometry.block_bytes as usize).min(length);
    // What a lost command may still change is waited for, as by every read that copies.
    if task.may_share
        && unit.exclusion.is_open()
        && let Some(data) = unit.store().share(range.offset_bytes, whole_blocks)
    {
        begun.guest.iter().for_each(|guest| guest.note_read(whole_blocks as u64));
        return Ok(Step::Data(if whole_blocks == room_bytes { data } else { data.slice(0..room_bytes) }));
    }
    let buffer = frame(begun.memory, whole_blocks)?;
    let request = Request::Read { offset_bytes: range.offset_bytes, buffer };
    Ok(Step::Store(CommandState::Read { room_bytes: room_bytes as u32, medium }, request))
}

/// The medium of which a task reads a piece.
pub(crate) fn medium(unit: &UnitState, task: &Task) -> Result<u32, Sense> {
    let medium = unit.medium();
    let is_of_another = task.piece.is_some_and(|piece| piece.from_bytes > 0 && piece.medium != medium);
    if is_of_another { Err(fault::MEDIUM_CHANGED) } else { Ok(medium) }
}

pub(crate) fn write(
    extent: Extent,
    (force_unit_access, is_last): (bool, bool),
    begun: &Beginning<'_>,
    task: &mut Task,
) -> Result<Step, Sense> {
    let (unit, geometry) = (begun.unit, &begun.geometry);
    unit.check_writable(geometry)?;
    let range = Range::of(extent, geometry)?;
    let length = written_bytes(task, range.length_within(memory_max_bytes(task), task)?, geometry)?;
    if length == 0 {
        return Ok(Step::Good);
    }
    let data = take_data(task, length)?;
    // The flush after the last piece makes all of them stable.
    let flush = is_last && (force_unit_access || !unit.settings().write_cache);
    Ok(Step::Store(CommandState::Write { flush }, Request::Write { offset_bytes: range.offset_bytes, data }))
}

/// WRITE ATOMIC (SBC-4 5.48): no longer than the store writes wholly or not at all.
pub(crate) fn write_atomic(
    extent: Extent,
    force_unit_access: bool,
    begun: &Beginning<'_>,
    task: &mut Task,
) -> Result<Step, Sense> {
    let geometry = &begun.geometry;
    let range = Range::of(extent, geometry)?;
    let length = range.length_within(geometry.atomic_write_bytes as usize, task)?;
    if written_bytes(task, length, geometry)? < length {
        // Wholly or not at all.
        return Err(length_error(task));
    }
    write(extent, (force_unit_access, true), begun, task)
}

/// PRE-FETCH: the blocks are read, so that they are where the next command finds them faster. GOOD says that not all of
/// them may be there (SBC-4 5.13), CONDITION MET that they are.
pub(crate) fn pre_fetch(extent: Extent, immediate: bool, begun: &Beginning<'_>) -> Result<Step, Refusal> {
    let geometry = &begun.geometry;
    let mut range = Range::of(extent, geometry)?;
    if extent.blocks == 0 {
        // SBC-4 5.13: up to the end.
        range.length_bytes = geometry.length_bytes - range.offset_bytes;
    }
    let length = usize::try_from(range.length_bytes).unwrap_or(usize::MAX).min(TRANSFER_MAX_BYTES);
    if length == 0 {
        return Ok(Step::ConditionMet);
    }
    let state = CommandState::PreFetch { is_all: length as u64 == range.length_bytes };
    let request = Request::Read { offset_bytes: range.offset_bytes, buffer: frame(begun.memory, length)? };
    Ok(if immediate { Step::Detached(state, request) } else { Step::Store(state, request) })
}

/// The whole cache is flushed, whatever the extent: it costs no more, and the standard allows it.
pub(crate) fn synchronize_cache(extent: Extent, immediate: bool, geometry: &Geometry) -> Result<Step, Sense> {
    Range::of(extent, geometry)?;
    let (state, request) = (CommandState::Flush, Request::Flush);
    Ok(if immediate { Step::Detached(state, request) } else { Step::Store(state, request) })
}
