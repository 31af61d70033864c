//! The ranges of blocks that lists of tokens name.

use sanwire_scsi::rod::BlockRun;
use sanwire_scsi::{Extent, OperationClass, Sense};
use sanwire_store::Geometry;

use crate::beginning::Beginning;
use crate::copy_targets::CopyTargetUnit;
use crate::disk::copy::judge_range;
use crate::range::Range;
use crate::refusal::Refusal;

/// Where the ranges of a list lie, but for those of no blocks.
pub(super) fn placed(runs: &[BlockRun], geometry: &Geometry) -> Result<Vec<Range>, Sense> {
    let of = |run: &BlockRun| Range::of(Extent { lba: run.lba, blocks: run.blocks }, geometry);
    let ranges: Result<Vec<Range>, Sense> = runs.iter().map(of).collect();
    Ok(ranges?.into_iter().filter(|range| range.length_bytes > 0).collect())
}

/// Has programs judge ranges of a unit, and moves those that they want elsewhere.
pub(super) fn judge(
    (target, direction): (&CopyTargetUnit, OperationClass),
    ranges: &mut [Range],
    begun: &Beginning<'_>,
) -> Result<(), Refusal> {
    let block_bytes = u64::from(begun.geometry.block_bytes);
    let mut judged = begun.judged.take();
    let done = ranges.iter_mut().try_for_each(|range| {
        let blocks = judge_range((target, direction), *range, begun, &mut judged)?;
        range.offset_bytes = range.offset_bytes.wrapping_add(blocks.wrapping_mul(block_bytes));
        Ok(())
    });
    begun.judged.set(judged);
    done
}
