//! EXTENDED COPY and RECEIVE COPY RESULTS (SPC-3 6.3 and 6.17): data goes from store to store, a bounded piece at a time.

mod plan;
mod record;

use std::sync::Arc;

use sanwire_buffer::{Frame, Region, Slice};
use sanwire_core::NexusId;
use sanwire_scsi::copy::{self, CopyList, CopyResults};
use sanwire_scsi::{OperationClass, Sense, Task};
use sanwire_store::{Completion, Outcome, Request};

use crate::abort_scope::AbortScope;
use crate::allowed_operations::OF_DISK;
use crate::beginning::Beginning;
use crate::command_program::BlockRange;
use crate::copy_targets::CopyTargetUnit;
use crate::data::{cut, frame, parameter_list};
use crate::exclusion::Claim;
use crate::fault;
use crate::hold::{Hold, Turn};
use crate::judging::Judging;
use crate::refusal::Refusal;
use crate::step::{CommandState, Ongoing, Step};
use crate::unit_state::UnitState;

use plan::{Leg, Plan, aborted};
pub(crate) use record::Copies;
use record::{Failure, Ticket};

/// What is read and written at once, so that other commands get their turn between.
const PIECE_BYTES: u64 = 256 << 10;

/// An EXTENDED COPY under way.
#[derive(Debug)]
pub(crate) struct Copying {
    plan: Plan,
    /// The current segment's place in the list.
    at: usize,
    leg: Leg,
    stage: CopyStage,
    /// A frame that waits for the next piece.
    spare: Option<Frame>,
    /// The blocks that are being read or written, for this while: other commands may want them undisturbed. Or the flush.
    piece: Option<Hold>,
    nexus: NexusId,
    /// Whether this segment wrote what must be made stable before it counts as copied: there is no write cache.
    is_volatile: bool,
    ticket: Ticket,
}

#[derive(Debug)]
enum CopyStage {
    /// The source is being read, for this place of the destination.
    Reading { offset_bytes: u64 },
    /// The destination is being written; the frame comes back from it.
    Writing { data: Slice },
    /// What was written of this segment is being made stable.
    Flushing,
}

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
    let mut ticket = list_id.map_or(Ok(Ticket::NONE), |id| copies.begin(begun.nexus, id))?;
    match checked.and_then(|_| plan.leg(0)) {
        Ok(Some(leg)) => {
            let nexus = begun.nexus;
            let stage = CopyStage::Flushing;
            let copying = Copying { plan, at: 0, leg, stage, spare, piece: None, nexus, is_volatile: false, ticket };
            Ok(Box::new(copying).go_on(|copying| copying.advance(begun.memory))?)
        }
        Ok(None) => {
            ticket.end(None);
            Ok(Step::Good)
        }
        Err(sense) => {
            ticket.end(Some(Failure::Sense(sense)));
            Err(sense.into())
        }
    }
}

/// Has programs judge all that is going to be read and written, before anything is.
fn judge(plan: &mut Plan, begun: &Beginning<'_>) -> Result<(), Refusal> {
    let mut judged = begun.judged.take().unwrap_or_default();
    let done = plan.judge(&mut |target, direction, range| {
        let (Some(derived), Some(guest)) = (target.unit.derived(), &target.guest) else { return Ok(0) };
        let geometry = &target.unit.store().geometry();
        let judging = Judging {
            derived,
            guest,
            geometry,
            commands: OF_DISK,
            now: begun.now,
            deferred_since: begun.deferred_since,
        };
        let blocks = |bytes: u64| bytes / u64::from(geometry.block_bytes);
        let asked = BlockRange { lba: blocks(range.offset_bytes), blocks: blocks(range.length_bytes) };
        let lba = judging.judge_copy(direction, asked, &mut judged)?;
        match direction {
            OperationClass::CopyTarget => guest.note_written(range.length_bytes),
            _ => guest.note_read(range.length_bytes),
        }
        Ok(lba.wrapping_sub(asked.lba))
    });
    begun.judged.set((!judged.is_empty()).then_some(judged));
    done
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

impl Ongoing for Copying {
    fn next(self: Box<Self>, _: &UnitState, completion: Completion, memory: &Region) -> Result<Step, Sense> {
        self.go_on(|copying| copying.completed(completion, memory))
    }

    /// It claims its pieces itself, at the units where they are.
    fn claim(&self, _first: &Request) -> Option<Claim> {
        None
    }

    fn goes_from_blocks_to_blocks(&self) -> bool {
        true
    }

    fn worker(&self) -> Option<&UnitState> {
        Some(self.unit())
    }

    fn worker_hold(&mut self) -> Option<&mut Hold> {
        self.piece.as_mut()
    }

    fn may_go(&mut self) -> Turn {
        match self.piece.as_mut().map_or(Turn::Now, Hold::may_go) {
            Turn::Never(sense) => {
                let sense = aborted(self.at, None, sense.additional);
                self.ticket.end(Some(Failure::Sense(sense)));
                Turn::Never(sense)
            }
            turn => turn,
        }
    }

    fn keep_blocks(&mut self) {
        self.piece.iter_mut().for_each(|hold| hold.keep(None));
    }

    fn is_covered_by(&self, scope: &AbortScope) -> bool {
        self.leg.is_covered_by(scope)
    }
}

impl Copying {
    /// The unit whose store works for it now.
    fn unit(&self) -> &Arc<UnitState> {
        match self.stage {
            CopyStage::Reading { .. } => &self.leg.source.unit,
            CopyStage::Writing { .. } | CopyStage::Flushing => &self.leg.destination.unit,
        }
    }

    fn claim(&self, target: &CopyTargetUnit, request: &Request) -> Hold {
        Hold::of_copy(Arc::clone(&target.unit), target.content, Claim::of(request), self.nexus)
    }

    /// Takes the next turn, which gives the request for the store or `None` at the end, and notes how it ends.
    fn go_on(
        mut self: Box<Self>,
        turn: impl FnOnce(&mut Self) -> Result<Option<Request>, Sense>,
    ) -> Result<Step, Sense> {
        match turn(&mut self) {
            Ok(Some(request)) => Ok(Step::Store(CommandState::Ongoing(self), request)),
            Ok(None) => {
                self.ticket.end(None);
                Ok(Step::Good)
            }
            Err(sense) => {
                self.ticket.end(Some(Failure::Sense(sense)));
                Err(sense)
            }
        }
    }

    fn completed(&mut self, completion: Completion, memory: &Region) -> Result<Option<Request>, Sense> {
        let outcome = completion.map_err(|error| aborted(self.at, None, self.unit().fault(&error).additional))?;
        match (std::mem::replace(&mut self.stage, CopyStage::Flushing), outcome) {
            (CopyStage::Reading { offset_bytes }, Outcome::Read(found)) => {
                self.leg.check(self.at)?;
                let data = found.freeze();
                self.stage = CopyStage::Writing { data: data.clone() };
                let request = Request::Write { offset_bytes, data: data.into() };
                let hold = self.claim(&self.leg.destination, &request);
                hold.check_not_busy().map_err(|sense| aborted(self.at, None, sense.additional))?;
                self.piece = Some(hold);
                return Ok(Some(request));
            }
            (CopyStage::Reading { .. }, _) => return Err(fault::INTERNAL),
            (CopyStage::Writing { data }, _) => {
                self.piece = None;
                self.ticket.written(data.len() as u32);
                self.is_volatile = !self.leg.destination.unit.settings().write_cache;
                self.spare = data.thaw().ok();
            }
            (CopyStage::Flushing, _) => (self.piece, self.is_volatile) = (None, false),
        }
        self.advance(memory)
    }

    /// Reads the next piece: of this segment, or of the next that has one.
    fn advance(&mut self, memory: &Region) -> Result<Option<Request>, Sense> {
        loop {
            if let Some((from, to)) = self.leg.cut(PIECE_BYTES) {
                let buffer = fitting(self.spare.take(), from.length_bytes as usize, memory);
                self.stage = CopyStage::Reading { offset_bytes: to.offset_bytes };
                let request = Request::Read { offset_bytes: from.offset_bytes, buffer };
                self.piece = Some(self.claim(&self.leg.source, &request));
                return Ok(Some(request));
            }
            if self.is_volatile {
                self.stage = CopyStage::Flushing;
                self.piece = Some(self.claim(&self.leg.destination, &Request::Flush));
                return Ok(Some(Request::Flush));
            }
            self.ticket.segment_done();
            self.at += 1;
            match self.plan.leg(self.at)? {
                Some(leg) => self.leg = leg,
                None => return Ok(None),
            }
        }
    }
}

/// A frame for a piece: the one at hand, or another of the region, or memory of its own; the command cannot wait any more.
fn fitting(spare: Option<Frame>, length_bytes: usize, memory: &Region) -> Frame {
    let spare = spare.filter(|frame| frame.len() >= length_bytes).or_else(|| memory.frame(length_bytes));
    let mut frame = spare.unwrap_or_else(|| vec![0; length_bytes].into());
    frame.truncate(length_bytes);
    frame
}
