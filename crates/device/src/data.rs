//! The data that comes with a command, and memory for that which goes.

use std::borrow::Cow;

use sanwire_buffer::{Frame, Region, Slices};
use sanwire_scsi::{AdditionalSense, Sense, SenseKey, Task};
use sanwire_store::Geometry;

use crate::refusal::Refusal;

/// What carried the command brought other data than it should (FCP-4 9.5.8 b, which LIO follows for iSCSI too).
const WRONG_DATA: Sense =
    Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);

/// A parameter list is shorter than its command says, or than what it begins needs.
pub(crate) const SHORT_LIST: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

/// How much of a write of `length_bytes` is done: the whole blocks that came, where the initiator learns of the rest by a
/// residual (RFC 7143 11.4.5.1).
///
/// # Errors
/// The data ends before the command's last block, and within a block. A residual tells only what did not come, so GOOD would
/// say that all that came was written.
pub(crate) fn written_bytes(task: &Task, length_bytes: usize, geometry: &Geometry) -> Result<usize, Sense> {
    if !task.tells_residual {
        return Ok(length_bytes);
    }
    let sent_bytes = usize::try_from(task.data_out_bytes()).unwrap_or(usize::MAX);
    let is_cut = sent_bytes < length_bytes && !sent_bytes.is_multiple_of(geometry.block_bytes as usize);
    if is_cut { Err(WRONG_DATA) } else { Ok(sent_bytes.min(length_bytes)) }
}

/// The first `length_bytes` of the data that came with the task; less is an error of what carried it (SPC-5 annex F).
pub(crate) fn take_data(task: &mut Task, length_bytes: usize) -> Result<Slices, Sense> {
    let data = task.data_out.take().filter(|data| data.len() >= length_bytes).ok_or(WRONG_DATA)?;
    Ok(if data.len() == length_bytes { data } else { data.slice(0..length_bytes) })
}

/// The parameter list of a command that says how long it is: as it came, or a copy where it came in several pieces.
pub(crate) fn parameter_list(task: &Task, length_bytes: usize) -> Result<Cow<'_, [u8]>, Sense> {
    match &task.data_out {
        Some(data) if data.len() >= length_bytes => Ok(data.bytes(0..length_bytes)),
        None if length_bytes == 0 => Ok(Cow::Borrowed(&[])),
        _ => Err(SHORT_LIST),
    }
}

/// A frame for a transfer.
pub(crate) fn frame(memory: &Region, length_bytes: usize) -> Result<Frame, Refusal> {
    if length_bytes > memory.length_bytes() {
        // Waiting would not help.
        return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::INSUFFICIENT_RESOURCES).into());
    }
    memory.frame(length_bytes).ok_or(Refusal::NoMemory)
}

/// No more of an answer than there is room for.
pub(crate) fn cut(mut bytes: Vec<u8>, allocation_bytes: usize) -> Vec<u8> {
    bytes.truncate(allocation_bytes);
    bytes
}
