//! The parameter lists of POPULATE TOKEN and WRITE USING TOKEN (SBC-4 5.12.2 and 5.59.2).

use super::token::TOKEN_BYTES;
use super::{INACTIVITY_DEFAULT_S, INACTIVITY_MAX_S, RANGES_MAX, ROD_MAX_BYTES, rod_type};
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::sense::{AdditionalSense, Sense, SenseKey};

const RANGE_BYTES: usize = 16;
const POPULATE_HEAD_BYTES: usize = 16;
const WRITE_HEAD_BYTES: usize = 536;
const TOKEN_AT: usize = 16;

/// A run of blocks (the block device range descriptor, SBC-4 5.12.3); perhaps of none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockRun {
    /// The first one.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
}

/// For which blocks a token is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PopulateToken {
    /// How long the token is kept while nobody uses it, in seconds.
    pub inactivity_s: u32,
    /// The blocks, none of them twice.
    pub ranges: Vec<BlockRun>,
    /// Whether to answer before it is done.
    pub is_immediate: bool,
}

/// What to write where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteUsingToken {
    /// From which block of the token's data on, in blocks of the unit that is written.
    pub offset_blocks: u64,
    /// What stands for the data.
    pub token: [u8; TOKEN_BYTES],
    /// Where to write it, none of the blocks twice.
    pub ranges: Vec<BlockRun>,
    /// Whether to answer before it is done.
    pub is_immediate: bool,
    /// Whether the token is not needed any more afterwards.
    pub deletes: bool,
}

impl PopulateToken {
    /// Reads a list of at least one byte, for a unit with blocks of so many bytes.
    ///
    /// # Errors
    /// The sense data to answer.
    pub fn parse(list: &[u8], block_bytes: u32) -> Result<Self, Sense> {
        let head = list.get(..POPULATE_HEAD_BYTES).ok_or(LENGTH_ERROR)?;
        let field = |at| u32_at(head, at).unwrap_or(0);
        let data_bytes = usize::from(u16_at(head, 0).unwrap_or(0));
        if data_bytes < POPULATE_HEAD_BYTES + RANGE_BYTES - 2 {
            return Err(invalid(0));
        }
        let inactivity_s = match field(4) {
            0 => INACTIVITY_DEFAULT_S,
            asked if asked > INACTIVITY_MAX_S => return Err(invalid(4)),
            asked => asked,
        };
        let (is_immediate, has_type) = (head[2] & 0x01 != 0, head[2] & 0x02 != 0);
        let kinds = [rod_type::POINT_IN_TIME, rod_type::CHANGE_VULNERABLE, rod_type::ANY_POINT_IN_TIME];
        if has_type && !kinds.contains(&field(8)) {
            return Err(invalid(8));
        }
        let ranges = ranges(&list[..list.len().min(data_bytes + 2)], POPULATE_HEAD_BYTES, block_bytes)?;
        Ok(PopulateToken { inactivity_s, ranges, is_immediate })
    }
}

impl WriteUsingToken {
    /// Reads a list of at least one byte, for a unit with blocks of so many bytes.
    ///
    /// # Errors
    /// The sense data to answer.
    pub fn parse(list: &[u8], block_bytes: u32) -> Result<Self, Sense> {
        let head = list.get(..WRITE_HEAD_BYTES).ok_or(LENGTH_ERROR)?;
        let data_bytes = usize::from(u16_at(head, 0).unwrap_or(0));
        let ranges_bytes = usize::from(u16_at(head, WRITE_HEAD_BYTES - 2).unwrap_or(0));
        if data_bytes < WRITE_HEAD_BYTES + RANGE_BYTES - 2 || data_bytes != WRITE_HEAD_BYTES - 2 + ranges_bytes {
            return Err(invalid(0));
        }
        let ranges = ranges(list, WRITE_HEAD_BYTES, block_bytes)?;
        let token = head[TOKEN_AT..].first_chunk().copied().ok_or(LENGTH_ERROR)?;
        let offset_blocks = u64_at(head, 8).unwrap_or(0);
        let (is_immediate, deletes) = (head[2] & 0x01 != 0, head[2] & 0x02 != 0);
        Ok(WriteUsingToken { offset_blocks, token, ranges, is_immediate, deletes })
    }
}

const LENGTH_ERROR: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

fn invalid(at: usize) -> Sense {
    Sense::invalid_field_in_parameters(u16::try_from(at).unwrap_or(u16::MAX), None)
}

/// The ranges behind the head, whose last two bytes say how long they are together. What is cut off is ignored (SBC-4 5.12.2).
fn ranges(list: &[u8], head_bytes: usize, block_bytes: u32) -> Result<Vec<BlockRun>, Sense> {
    let length = usize::from(u16_at(list, head_bytes - 2).unwrap_or(0));
    if length < RANGE_BYTES {
        return Err(invalid(head_bytes - 2));
    }
    let all = list.get(head_bytes..).unwrap_or(&[]);
    let descriptors = all[..length.min(all.len())].as_chunks::<RANGE_BYTES>().0;
    if descriptors.len() > RANGES_MAX {
        return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS));
    }
    let mut ranges = Vec::<BlockRun>::with_capacity(descriptors.len());
    let mut total_bytes = 0_u64;
    for (descriptor, at) in descriptors.iter().zip((head_bytes..).step_by(RANGE_BYTES)) {
        let lba = u64_at(descriptor, 0).unwrap_or(0);
        let range = BlockRun { lba, blocks: u32_at(descriptor, 8).unwrap_or(0) };
        total_bytes += u64::from(range.blocks) * u64::from(block_bytes);
        if total_bytes > ROD_MAX_BYTES {
            return Err(invalid(at + 8));
        }
        if ranges.iter().any(|other| other.overlaps(range)) {
            return Err(invalid(at));
        }
        ranges.push(range);
    }
    Ok(ranges)
}

impl BlockRun {
    fn overlaps(self, other: BlockRun) -> bool {
        let ends_after = |one: BlockRun, lba: u64| one.lba.saturating_add(one.blocks.into()) > lba;
        self.blocks > 0 && other.blocks > 0 && ends_after(self, other.lba) && ends_after(other, self.lba)
    }
}

#[cfg(test)]
mod tests;
