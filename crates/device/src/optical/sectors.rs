//! READ CD (MMC-6 6.16 and 6.17) of more than the user data: sectors as they would be on a CD, made from the blocks of the image.

use sanwire_buffer::{Frame, Region, UNIT_BYTES};
use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_scsi::mmc::{BLOCK_BYTES, Disc, Profile, SectorFields};
use sanwire_scsi::{AdditionalSense, Extent, Sense, SenseKey, Task};
use sanwire_store::{Completion, Geometry, Outcome, Request};

use crate::beginning::Beginning;
use crate::data::frame;
use crate::fault;
use crate::range::Range;
use crate::refusal::Refusal;
use crate::step::{CommandState, Ongoing, Step};
use crate::unit_state::UnitState;
use crate::{piece, transfer};

/// What is made at once where the data goes in pieces: a shard serves no other command meanwhile.
const PIECE_BYTES: usize = 64 * 2352;

/// Sectors whose user data is being read.
#[derive(Debug)]
struct Reading {
    fields: SectorFields,
    lba: u32,
    medium: u32,
    /// Where they go.
    sectors: Frame,
    /// So much of them the initiator has room for.
    room_bytes: usize,
}

pub(super) fn read(
    extent: Extent,
    fields: SectorFields,
    disc: Disc,
    begun: &Beginning<'_>,
    task: &Task,
) -> Result<Step, Refusal> {
    // First: another disc may have been put in since the command began.
    let medium = transfer::medium(begun.unit, task)?;
    if disc.profile() != Profile::Cd {
        return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::INCOMPATIBLE_FORMAT).into());
    }
    let length_bytes = u64::from(disc.blocks) * fields.bytes() as u64;
    let geometry = Geometry { block_bytes: fields.bytes() as u32, length_bytes, ..begun.geometry };
    let part = begun.part(piece::of_long_read(extent, &geometry, (PIECE_BYTES, PIECE_BYTES), task)?);
    let length = Range::of(part.extent, &geometry)?.length_within(TRANSFER_MAX_BYTES, task)?;
    let room_bytes = length.min(task.data_in_max_bytes as usize);
    if room_bytes == 0 {
        return Ok(Step::Good);
    }
    // What the initiator has no room for is not read.
    let blocks = room_bytes.div_ceil(fields.bytes());
    let lba = part.extent.lba as u32;
    let (made_bytes, read_bytes) = (blocks * fields.bytes(), blocks * BLOCK_BYTES as usize);
    if !fields.has_user_data() {
        let mut sectors = frame(begun.memory, made_bytes)?;
        let all = (lba..).zip(sectors.chunks_exact_mut(fields.bytes()));
        all.for_each(|(lba, sector)| fields.write(lba, &[], sector));
        return Ok(finish(sectors, room_bytes));
    }
    let unit_bytes = |bytes: usize| bytes.next_multiple_of(UNIT_BYTES);
    if unit_bytes(made_bytes) + unit_bytes(read_bytes) > begun.memory.length_bytes() {
        // Waiting would not help.
        return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::INSUFFICIENT_RESOURCES).into());
    }
    // Both or none: a frame that is given back wakes those that wait for memory, also this command.
    if !begun.memory.has_frames(made_bytes, read_bytes) {
        return Err(Refusal::NoMemory);
    }
    let sectors = frame(begun.memory, made_bytes)?;
    let request = Request::Read {
        offset_bytes: u64::from(lba) * u64::from(BLOCK_BYTES),
        buffer: frame(begun.memory, read_bytes)?,
    };
    let reading = Reading { fields, lba, medium, sectors, room_bytes };
    Ok(Step::Store(CommandState::Ongoing(Box::new(reading)), request))
}

fn finish(mut sectors: Frame, room_bytes: usize) -> Step {
    sectors.truncate(room_bytes);
    Step::Data(sectors.freeze().into())
}

impl Ongoing for Reading {
    fn next(mut self: Box<Self>, unit: &UnitState, completion: Completion, _: &Region) -> Result<Step, Sense> {
        if self.medium != unit.medium() {
            return Err(fault::MEDIUM_CHANGED);
        }
        let Outcome::Read(found) = completion.map_err(|error| unit.fault(&error))? else { return Err(fault::INTERNAL) };
        let blocks = found.chunks_exact(BLOCK_BYTES as usize);
        let sectors = self.sectors.chunks_exact_mut(self.fields.bytes());
        (self.lba..).zip(blocks.zip(sectors)).for_each(|(lba, (block, sector))| self.fields.write(lba, block, sector));
        Ok(finish(self.sectors, self.room_bytes))
    }

    fn medium(&self) -> Option<u32> {
        Some(self.medium)
    }
}
