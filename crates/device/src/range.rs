//! Places of a store, in bytes.

use sanwire_scsi::{Extent, Sense, Task, length_field};
use sanwire_store::Geometry;

use crate::fault;

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
