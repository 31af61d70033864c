//! What handlers of commands give back.

use sanwire_scsi::{AdditionalSense, Extent, Sense, SenseKey, Task, length_field};
use sanwire_store::{Geometry, Request};

use crate::execution::State;
use crate::fault;
use crate::reservation::{AbortScope, Reserving};

/// The next thing in the life of a command that is well so far.
#[derive(Debug)]
pub(crate) enum Step {
    /// GOOD, without data.
    Good,
    /// GOOD, with an answer; it is cut to what the initiator has room for.
    Answer(Vec<u8>),
    /// GOOD, with data.
    Data(sanwire_buffer::Slices),
    /// The store's turn.
    Store(State, Request),
    /// GOOD at once; the store's turn nevertheless, and nobody hears what becomes of it.
    Detached(State, Request),
    /// The same, but not before others had their turn.
    Later(State, Request),
    /// CONDITION MET.
    ConditionMet,
    /// GOOD, after the commands of others have been ended.
    Abort(AbortScope),
    /// Nothing, until a record of reservations is kept.
    Reserve(Box<Reserving>),
}

/// Why a command did not begin.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// CHECK CONDITION.
    Sense(Sense),
    /// RESERVATION CONFLICT.
    Conflict,
    /// BUSY: there were too many of the kind lately.
    Busy,
    /// The region has no frame free; nothing has happened yet.
    NoMemory,
}

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Self {
        Refusal::Sense(sense)
    }
}

/// A range of the store, checked against its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
}

impl Range {
    /// The place of an extent.
    pub(crate) fn of(extent: Extent, geometry: &Geometry) -> Result<Range, Sense> {
        let block_bytes = u64::from(geometry.block_bytes);
        let bytes = |blocks: u64| blocks.checked_mul(block_bytes).ok_or(fault::LBA_OUT_OF_RANGE);
        let range = Range { offset_bytes: bytes(extent.lba)?, length_bytes: bytes(extent.blocks.into())? };
        match range.offset_bytes.checked_add(range.length_bytes) {
            Some(end) if end <= geometry.length_bytes => Ok(range),
            _ => Err(fault::LBA_OUT_OF_RANGE),
        }
    }

    /// The length, when one command may ask for so much: else the CDB's length field is at fault.
    pub(crate) fn length_within(&self, max_bytes: usize, task: &Task) -> Result<usize, Sense> {
        let length = usize::try_from(self.length_bytes).ok().filter(|&length| length <= max_bytes);
        length.ok_or_else(|| length_error(task))
    }

    /// Whether they have a byte in common.
    pub(crate) fn overlaps(self, other: Range) -> bool {
        let ends_after = |one: Range, start: u64| one.offset_bytes.saturating_add(one.length_bytes) > start;
        ends_after(self, other.offset_bytes) && ends_after(other, self.offset_bytes)
    }

    /// Cuts at most `max_bytes` from the front.
    pub(crate) fn split_front(&mut self, max_bytes: u64) -> Range {
        let front = Range { length_bytes: self.length_bytes.min(max_bytes), ..*self };
        self.offset_bytes += front.length_bytes;
        self.length_bytes -= front.length_bytes;
        front
    }

    /// Cuts at most `max_bytes` from the end.
    pub(crate) fn split_back(&mut self, max_bytes: u64) -> Range {
        let length_bytes = self.length_bytes.min(max_bytes);
        self.length_bytes -= length_bytes;
        Range { offset_bytes: self.offset_bytes + self.length_bytes, length_bytes }
    }
}

/// INVALID FIELD IN CDB at the transfer (or parameter list) length.
pub(crate) fn length_error(task: &Task) -> Sense {
    Sense::invalid_field_in_cdb(length_field(task.cdb.operation_code()), None)
}

/// What carried the command brought other data than it should (FCP-4 9.5.8 b, which LIO follows for iSCSI too).
const WRONG_DATA: Sense =
    Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);

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
pub(crate) fn take_data(task: &mut Task, length_bytes: usize) -> Result<sanwire_buffer::Slice, Sense> {
    let data = task.data_out.take().filter(|data| data.len() >= length_bytes).ok_or(WRONG_DATA)?;
    Ok(if data.len() == length_bytes { data } else { data.slice(0..length_bytes) })
}

/// A frame for a transfer.
pub(crate) fn frame(memory: &sanwire_buffer::Region, length_bytes: usize) -> Result<sanwire_buffer::Frame, Refusal> {
    if length_bytes > memory.length_bytes() {
        // Waiting would not help.
        return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::INSUFFICIENT_RESOURCES).into());
    }
    memory.frame(length_bytes).ok_or(Refusal::NoMemory)
}
