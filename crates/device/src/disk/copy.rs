//! EXTENDED COPY and RECEIVE COPY RESULTS (SPC-3 6.3 and 6.17): data goes from store to store, a bounded piece at a time. Where the
//! source has no space behind its blocks, they are not copied: zeroes are, and a destination that can gives the space back.

mod copying;
mod plan;

use std::sync::Arc;

use sanwire_scsi::copy::{self, CopyList, CopyResults};
use sanwire_scsi::{OperationClass, Sense, Task};

use crate::allowed_operations::OF_DISK;
use crate::beginning::Beginning;
use crate::command_program::BlockRange;
use crate::copies::{AskedCopy, Copies, Ticket};
use crate::copy_targets::CopyTargetUnit;
use crate::data::{cut, frame, parameter_list};
use crate::judged::Judged;
use crate::judging::Judging;
use crate::range::Range;
use crate::refusal::Refusal;
use crate::step::Step;

pub(crate) use copying::{Copying, PIECE_BYTES};
use plan::Plan;
pub(crate) use plan::{Leg, Route};

pub(crate) fn extended_copy(
    parameter_bytes: u32,
    copies: &Arc<Copies>,
    begun: &Beginning<'_>,
    task: &Task,
) -> Result<Step, Refusal> {
    if parameter_bytes == 0 {
        return Ok(Step::Good);
    }
    let list = CopyList::parse(&parameter_list(task, parameter_bytes as usize)?)?;
    let list_id = list.list_id;
    let mut plan = Plan::new(list, |target| begun.target.copy_target(begun.nexus, &target.designator, begun.now));
    let mut checked = plan.check();
    // Without memory nothing must have happened: before the copy is noted.
    let spare = match checked {
        Ok(longest_bytes @ 1..) => Some(frame(begun.memory, longest_bytes.min(PIECE_BYTES) as usize)?),
        _ => None,
    };
    if checked.is_ok() {
        match judge(&mut plan, begun) {
            Err(Refusal::Sense(sense)) => checked = Err(sense),
            judged => judged?,
        }
    }
    let bell = begun.unit.exclusion.bell();
    let begin = |id: u8| copies.begin(begun.nexus, id.into(), AskedCopy::EXTENDED_COPY, bell);
    let mut ticket = list_id.map_or(Ok(Ticket::none()), begin)?;
    match checked.and_then(|_| plan.leg(0)) {
        Ok(Some(leg)) => Ok(Copying::begin((Box::new(plan), leg), spare, begun, ticket)?),
        Ok(None) => {
            ticket.end(None);
            Ok(Step::Good)
        }
        Err(sense) => {
            ticket.failed(sense);
            Err(sense.into())
        }
    }
}

/// Has programs judge all that is going to be read and written, before anything is.
fn judge(plan: &mut Plan, begun: &Beginning<'_>) -> Result<(), Refusal> {
    let mut judged = begun.judged.take();
    let done = plan.judge(&mut |target, direction, range| {
        let moved_blocks = judge_range((target, direction), range, begun, &mut judged)?;
        note_moved((target, direction), range.length_bytes);
        Ok(moved_blocks)
    });
    begun.judged.set(judged);
    done
}

/// Has programs of a unit judge what a copy reads or writes there. Gives by how many blocks they move it, in wrapping arithmetic.
pub(crate) fn judge_range(
    (target, direction): (&CopyTargetUnit, OperationClass),
    range: Range,
    begun: &Beginning<'_>,
    judged: &mut Option<Box<Judged>>,
) -> Result<u64, Refusal> {
    let (Some(derived), Some(guest)) = (target.unit.derived(), &target.guest) else { return Ok(0) };
    let geometry = &target.unit.store().geometry();
    let (now, deferred_since) = (begun.now, begun.deferred_since);
    let judging = Judging { derived, guest, geometry, commands: OF_DISK, now, deferred_since };
    let blocks = |bytes: u64| bytes / u64::from(geometry.block_bytes);
    let asked = BlockRange { lba: blocks(range.offset_bytes), blocks: blocks(range.length_bytes) };
    let lba = judging.judge_copy(direction, asked, judged)?;
    Ok(lba.wrapping_sub(asked.lba))
}

/// Counts what a copy reads or writes at a unit.
pub(crate) fn note_moved((target, direction): (&CopyTargetUnit, OperationClass), length_bytes: u64) {
    let Some(guest) = &target.guest else { return };
    match direction {
        OperationClass::CopyTarget => guest.note_written(length_bytes),
        _ => guest.note_read(length_bytes),
    }
}

pub(crate) fn receive_copy_results(
    asked: CopyResults,
    list_id: u8,
    allocation_bytes: u32,
    copies: &Copies,
    begun: &Beginning<'_>,
) -> Result<Step, Sense> {
    let nexus = begun.nexus;
    let unknown = || Sense::invalid_field_in_cdb(2, None);
    let bytes = match asked {
        CopyResults::Status => copies.status(nexus, list_id).ok_or_else(unknown)?.to_bytes().to_vec(),
        CopyResults::HeldData if copies.is_known(nexus, list_id) => copy::held_data().to_vec(),
        CopyResults::HeldData => return Err(unknown()),
        CopyResults::OperatingParameters => copy::operating_parameters(begun.geometry.block_bytes),
        CopyResults::FailedSegmentDetails => {
            let failure = copies.failure(nexus, list_id).ok_or_else(unknown)?;
            let answered = failure.map(|failure| failure.answered());
            copy::failed_segment_details(answered.as_ref().map(|(status, sense)| (*status, &**sense)))
        }
    };
    Ok(Step::Answer(cut(bytes, allocation_bytes as usize)))
}
