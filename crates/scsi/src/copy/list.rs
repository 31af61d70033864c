//! The parameter list of EXTENDED COPY (LID1) (SPC-3 6.3, SPC-4 6.4).

use super::{
    BLOCK_TO_BLOCK, BLOCK_TO_BLOCK_WITH_OFFSET, DESCRIPTORS_MAX_BYTES, IDENTIFICATION, SEGMENTS_MAX, TARGETS_MAX,
};
use crate::bytes::{u16_at, u24_at, u32_at, u64_at};
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::vpd::Designator;

const HEADER_BYTES: usize = 16;
const TARGET_BYTES: usize = 32;
/// The designator of a target begins here ...
const DESIGNATOR_AT: usize = 4;
/// ... and ends here at the latest.
const DESIGNATOR_END: usize = 28;

/// A checked parameter list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyList {
    /// Under which identifier results are kept; `None` when the initiator wants none kept (LIST ID USAGE 11b).
    pub list_id: Option<u8>,
    /// Between which units.
    pub targets: Vec<CopyTarget>,
    /// What to copy, in this order.
    pub segments: Vec<CopySegment>,
}

/// A unit to copy from or to (the identification descriptor).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyTarget {
    /// What it is called.
    pub designator: Designator,
    /// Its peripheral device type.
    pub device_type: u8,
    /// Its block length; zero when the initiator does not say.
    pub block_bytes: u32,
}

/// A run of data to copy (a block to block segment, in blocks or in bytes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopySegment {
    /// From which target: its place in the list, not checked.
    pub source: u16,
    /// To which target.
    pub destination: u16,
    /// From which block on.
    pub source_lba: u64,
    /// To which block on.
    pub destination_lba: u64,
    /// How much.
    pub amount: CopyAmount,
}

/// How much a segment copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyAmount {
    /// So many blocks of the source (DC 0).
    SourceBlocks(u16),
    /// So many blocks of the destination (DC 1).
    DestinationBlocks(u16),
    /// So many bytes, from and to places within the first blocks.
    Bytes {
        /// How many.
        length: u32,
        /// Bytes to leave out of the source's first block.
        source_offset: u16,
        /// Bytes to leave out of the destination's first block.
        destination_offset: u16,
    },
}

impl CopyList {
    /// Reads a parameter list of at least one byte.
    ///
    /// # Errors
    /// The sense data to answer: a list that ends early, exceeds the limits, or has descriptors that are not understood.
    pub fn parse(list: &[u8]) -> Result<Self, Sense> {
        let list_id = list_id(list)?;
        let field = |at| u32_at(list, at).map(|length| length as usize).ok_or(LENGTH_ERROR);
        let targets_bytes = usize::from(u16_at(list, 2).ok_or(LENGTH_ERROR)?);
        let (segments_bytes, inline_bytes) = (field(8)?, field(12)?);
        let descriptors_bytes = targets_bytes.checked_add(segments_bytes).ok_or(LENGTH_ERROR)?;
        if descriptors_bytes > DESCRIPTORS_MAX_BYTES || !targets_bytes.is_multiple_of(TARGET_BYTES) {
            return Err(LENGTH_ERROR);
        }
        let rest = list.get(HEADER_BYTES..).ok_or(LENGTH_ERROR)?;
        let descriptors = rest.get(..descriptors_bytes).ok_or(LENGTH_ERROR)?;
        if inline_bytes > rest.len() - descriptors_bytes {
            return Err(LENGTH_ERROR);
        }
        if inline_bytes != 0 {
            return Err(illegal(AdditionalSense::INLINE_DATA_LENGTH_EXCEEDED));
        }
        let (targets, segments) = descriptors.split_at(targets_bytes);
        let segments = parse_segments(segments, HEADER_BYTES + targets_bytes);
        Ok(CopyList { list_id, targets: parse_targets(targets)?, segments: segments? })
    }
}

const LENGTH_ERROR: Sense = illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

const fn illegal(additional: AdditionalSense) -> Sense {
    Sense::new(SenseKey::IllegalRequest, additional)
}

fn invalid(at: usize, bit: Option<u8>) -> Sense {
    Sense::invalid_field_in_parameters(u16::try_from(at).unwrap_or(u16::MAX), bit)
}

/// LIST IDENTIFIER and LIST ID USAGE (SPC-4 6.4). Nothing is ever held for RECEIVE COPY DATA, so that 00b and 10b
/// are the same. PRIORITY and STR change nothing: a copy is executed when it comes, segment after segment.
fn list_id(list: &[u8]) -> Result<Option<u8>, Sense> {
    let [id, flags, ..] = *list else { return Err(LENGTH_ERROR) };
    match (flags >> 3) & 0x03 {
        0b00 | 0b10 => Ok(Some(id)),
        0b11 if id == 0 => Ok(None),
        0b11 => Err(invalid(0, None)),
        _ => Err(invalid(1, Some(4))),
    }
}

fn parse_targets(descriptors: &[u8]) -> Result<Vec<CopyTarget>, Sense> {
    let descriptors = descriptors.as_chunks::<TARGET_BYTES>().0;
    if descriptors.len() > TARGETS_MAX {
        return Err(illegal(AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS));
    }
    let places = (HEADER_BYTES..).step_by(TARGET_BYTES);
    descriptors.iter().zip(places).map(|(descriptor, at)| parse_target(descriptor, at)).collect()
}

/// LU ID TYPE and the relative initiator port identifier may say anything (SPC-4 6.4): the unit is named, and
/// reached without a port.
fn parse_target(descriptor: &[u8; TARGET_BYTES], at: usize) -> Result<CopyTarget, Sense> {
    if descriptor[0] != IDENTIFICATION {
        return Err(illegal(AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE));
    }
    if descriptor[1] & 0x20 != 0 {
        // NUL of SPC-3: a target that swallows everything.
        return Err(invalid(at + 1, Some(5)));
    }
    let (designator, _) = Designator::parse(&descriptor[DESIGNATOR_AT..DESIGNATOR_END])
        .ok_or_else(|| invalid(at + DESIGNATOR_AT + 3, None))?;
    if designator.association != 0 {
        return Err(invalid(at + DESIGNATOR_AT + 1, Some(5)));
    }
    let block_bytes = u24_at(descriptor, 29).unwrap_or(0);
    Ok(CopyTarget { designator, device_type: descriptor[1] & 0x1f, block_bytes })
}

fn parse_segments(mut rest: &[u8], mut at: usize) -> Result<Vec<CopySegment>, Sense> {
    let mut segments = Vec::new();
    while let Some(&kind) = rest.first() {
        let body_bytes = match kind {
            BLOCK_TO_BLOCK => 0x18,
            BLOCK_TO_BLOCK_WITH_OFFSET => 0x1c,
            _ => return Err(illegal(AdditionalSense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE)),
        };
        let (descriptor, next) = rest.split_at_checked(4 + body_bytes).ok_or(LENGTH_ERROR)?;
        if u16_at(descriptor, 2).map(usize::from) != Some(body_bytes) {
            return Err(invalid(at + 2, None));
        }
        if segments.len() == SEGMENTS_MAX {
            return Err(illegal(AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS));
        }
        segments.push(parse_segment(descriptor));
        (rest, at) = (next, at + descriptor.len());
    }
    Ok(segments)
}

/// A descriptor of the length that its type has.
fn parse_segment(descriptor: &[u8]) -> CopySegment {
    let short = |at| u16_at(descriptor, at).unwrap_or(0);
    let lba = |at| u64_at(descriptor, at).unwrap_or(0);
    let amount = match *descriptor {
        [BLOCK_TO_BLOCK, flags, ..] if flags & 0x02 != 0 => CopyAmount::DestinationBlocks(short(10)),
        [BLOCK_TO_BLOCK, ..] => CopyAmount::SourceBlocks(short(10)),
        _ => CopyAmount::Bytes {
            length: u32_at(descriptor, 8).unwrap_or(0),
            source_offset: short(28),
            destination_offset: short(30),
        },
    };
    CopySegment { source: short(4), destination: short(6), source_lba: lba(12), destination_lba: lba(20), amount }
}

#[cfg(test)]
mod tests;
