//! Tokens that stand for data, and copies with list identifiers of four bytes (SBC-4 5.12, 5.25 and 5.59; SPC-4 6.3, 6.24 and 6.26).

mod populate;
mod write;

use std::sync::Arc;

use sanwire_scsi::rod::{BlockRun, RodCommand};
use sanwire_scsi::{Extent, OperationClass, Sense};
use sanwire_store::Geometry;

use crate::beginning::Beginning;
use crate::copy_targets::CopyTargetUnit;
use crate::data::cut;
use crate::disk::copy::{Copies, judge_range};
use crate::fault;
use crate::range::Range;
use crate::refusal::Refusal;
use crate::step::Step;

pub(super) use populate::populate;
pub(super) use write::write;

/// What needs no medium.
pub(super) fn ask(asked: RodCommand, copies: &Arc<Copies>, begun: &Beginning<'_>) -> Result<Step, Sense> {
    let (unknown, nexus) = (Sense::invalid_field_in_cdb(2, None), begun.nexus);
    match asked {
        RodCommand::Status { list_id, allocation_bytes } => {
            let told = copies.long_status(nexus, list_id).ok_or(unknown)?;
            Ok(Step::Answer(cut(told, allocation_bytes as usize)))
        }
        RodCommand::Information { list_id, allocation_bytes } => {
            let told = copies.information(nexus, list_id, allocation_bytes as usize).ok_or(unknown)?;
            Ok(Step::Answer(cut(told, allocation_bytes as usize)))
        }
        RodCommand::Abort { list_id } => {
            let end = copies.cancel(nexus, list_id).ok_or(unknown)?;
            // If it waits, it hears of it now.
            begun.unit.exclusion.bell().ring();
            Ok(Step::AwaitCopy(end))
        }
        RodCommand::Populate { .. } | RodCommand::Write { .. } => Err(fault::INTERNAL),
    }
}

/// Where the ranges of a list lie, but for those of no blocks.
fn placed(runs: &[BlockRun], geometry: &Geometry) -> Result<Vec<Range>, Sense> {
    let of = |run: &BlockRun| Range::of(Extent { lba: run.lba, blocks: run.blocks }, geometry);
    let ranges: Result<Vec<Range>, Sense> = runs.iter().map(of).collect();
    Ok(ranges?.into_iter().filter(|range| range.length_bytes > 0).collect())
}

/// Has programs judge ranges of a unit, and moves those that they want elsewhere.
fn judge(
    (target, direction): (&CopyTargetUnit, OperationClass),
    ranges: &mut [Range],
    begun: &Beginning<'_>,
) -> Result<(), Refusal> {
    let block_bytes = u64::from(begun.geometry.block_bytes);
    let mut judged = begun.judged.take().unwrap_or_default();
    let done = ranges.iter_mut().try_for_each(|range| {
        let blocks = judge_range((target, direction), *range, begun, &mut judged)?;
        range.offset_bytes = range.offset_bytes.wrapping_add(blocks.wrapping_mul(block_bytes));
        Ok(())
    });
    begun.judged.set((!judged.is_empty()).then_some(judged));
    done
}
