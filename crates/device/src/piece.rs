//! Long transfers, which go in pieces: READ, WRITE, VERIFY and WRITE AND VERIFY (SBC-4 4.2.2: other commands may come between).
//!
//! Each piece is a command of its own for the unit: it claims its own blocks, and has its own turn. What depends on the nexus
//! is looked at once only: attentions, reservations and access states count when the first piece begins.

use sanwire_core::limits::{HYPERSCSI_TRANSFER_MAX_BYTES, LONG_TRANSFER_MAX_BYTES, PIECE_BYTES, TRANSFER_MAX_BYTES};
use sanwire_scsi::{Extent, Rest, Sense, Task};
use sanwire_store::Geometry;

use crate::data::written_bytes;
use crate::range::{Range, length_error};

/// What of an extent is done now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) extent: Extent,
    /// Where it begins in the data of the command.
    pub(crate) from_bytes: u32,
    /// What comes after it.
    pub(crate) rest: Option<Rest>,
}

/// The longest transfer that the way of a task allows, in bytes.
pub(crate) fn transfer_max_bytes(task: &Task) -> usize {
    if task.piece.is_some() { LONG_TRANSFER_MAX_BYTES } else { HYPERSCSI_TRANSFER_MAX_BYTES }
}

/// The most of a task that may be in memory at once, in bytes.
pub(crate) fn memory_max_bytes(task: &Task) -> usize {
    if task.piece.is_some() { TRANSFER_MAX_BYTES } else { HYPERSCSI_TRANSFER_MAX_BYTES }
}

/// Of a command that sends no data: all of it where that may be held in memory, else the next piece.
pub(crate) fn of_read(extent: Extent, geometry: &Geometry, task: &Task) -> Result<Part, Sense> {
    of_long_read(extent, geometry, (TRANSFER_MAX_BYTES, PIECE_BYTES), task)
}

/// The same where only `whole_bytes` may be held in memory, and a piece has at most `piece_bytes`, which is at least one block.
pub(crate) fn of_long_read(
    extent: Extent,
    geometry: &Geometry,
    (whole_bytes, piece_bytes): (usize, usize),
    task: &Task,
) -> Result<Part, Sense> {
    let Some(length) = long_bytes(extent, geometry, task)? else { return Ok(Part::whole(extent)) };
    let from = from_bytes(task);
    if from == 0 && length <= whole_bytes {
        return Ok(Part::whole(extent));
    }
    let whole_blocks = piece_bytes - piece_bytes % geometry.block_bytes.max(1) as usize;
    Part::new(extent, geometry, (from, from.saturating_add(whole_blocks).min(length), length), task)
}

/// Of a command that sends data: what the data that is here is for.
pub(crate) fn of_write(extent: Extent, geometry: &Geometry, task: &Task) -> Result<Part, Sense> {
    let Some(length) = long_bytes(extent, geometry, task)? else { return Ok(Part::whole(extent)) };
    let (from, length) = (from_bytes(task), written_bytes(task, length, geometry)?);
    let here = task.data_out.as_ref().map_or(0, |data| data.len());
    if from == 0 && (length <= here || task.data_out_bytes() <= here as u64) {
        return Ok(Part::whole(extent));
    }
    let whole_blocks = here - here % geometry.block_bytes as usize;
    Part::new(extent, geometry, (from, from.saturating_add(whole_blocks).min(length), length), task)
}

/// The same where nothing is done with less data than the extent is long.
pub(crate) fn of_check(extent: Extent, geometry: &Geometry, task: &Task) -> Result<Part, Sense> {
    let length = Range::of(extent, geometry)?.length_bytes;
    if task.data_out_bytes() < length { Ok(Part::whole(extent)) } else { of_write(extent, geometry, task) }
}

fn from_bytes(task: &Task) -> usize {
    task.piece.map_or(0, |piece| piece.from_bytes as usize)
}

/// How long the whole transfer is; `None` where it cannot go in pieces.
fn long_bytes(extent: Extent, geometry: &Geometry, task: &Task) -> Result<Option<usize>, Sense> {
    if task.piece.is_none() {
        return Ok(None);
    }
    Range::of(extent, geometry)?.length_within(LONG_TRANSFER_MAX_BYTES, task).map(Some)
}

impl Part {
    /// All of it at once.
    pub(crate) fn whole(extent: Extent) -> Part {
        Part { extent, from_bytes: 0, rest: None }
    }

    /// The bytes `from..to` of `end`.
    fn new(
        extent: Extent,
        geometry: &Geometry,
        (from, to, end): (usize, usize, usize),
        task: &Task,
    ) -> Result<Part, Sense> {
        let block_bytes = geometry.block_bytes.max(1) as usize;
        if from >= to || from % block_bytes != 0 {
            // There is no such piece.
            return Err(length_error(task));
        }
        let medium = task.piece.map_or(0, |piece| piece.medium);
        let (first, blocks) = (from / block_bytes, (to - from) / block_bytes);
        let rest = (to < end).then_some(Rest { from_bytes: to as u32, end_bytes: end as u32, medium });
        let extent = Extent { lba: extent.lba + first as u64, blocks: blocks as u32 };
        Ok(Part { extent, from_bytes: from as u32, rest })
    }
}
