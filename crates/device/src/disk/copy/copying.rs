//! A copy under way: what it reads and writes next, one way after the other.

use std::sync::Arc;

use sanwire_buffer::{Frame, Region, Slice};
use sanwire_core::NexusId;
use sanwire_scsi::Sense;
use sanwire_store::{Allocation, Completion, ErrorKind, Outcome, Request, StoreError};

use super::plan::{Leg, Route};
use crate::abort_scope::AbortScope;
use crate::beginning::Beginning;
use crate::copies::Ticket;
use crate::copy_targets::CopyTargetUnit;
use crate::exclusion::Claim;
use crate::fault;
use crate::hold::{Hold, Turn};
use crate::range::Range;
use crate::step::{CommandState, Ongoing, Step};
use crate::unit_state::UnitState;

/// What is read and written at once, so that other commands get their turn between.
pub(crate) const PIECE_BYTES: u64 = 256 << 10;
/// What becomes zeroes at once.
const ZERO_BYTES: u64 = 32 << 20;

/// A copy under way.
#[derive(Debug)]
pub(crate) struct Copying {
    route: Box<dyn Route>,
    /// The current way's place in the route.
    at: usize,
    leg: Leg,
    /// How the source stands from where the leg begins; of no length when that is not known.
    run: Allocation,
    zeroing: Zeroing,
    stage: CopyStage,
    /// A frame that waits for the next piece.
    spare: Option<Frame>,
    /// The blocks that are being read or written, for this while: other commands may want them undisturbed. Or the flush.
    piece: Option<Hold>,
    nexus: NexusId,
    /// Whether this way wrote what must be made stable before it counts as copied: there is no write cache.
    is_volatile: bool,
    /// The last, for who waits for the end of the copy finds nothing held then.
    ticket: Ticket,
}

#[derive(Debug)]
enum CopyStage {
    /// The source tells where it has no space behind its blocks.
    Asking,
    /// The source is being read, for this place of the destination.
    Reading { offset_bytes: u64 },
    /// The destination is being written; the frame comes back from it.
    Writing { data: Slice },
    /// So much of the destination becomes zeroes.
    Zeroing { length_bytes: u64 },
    /// What was written on this way is being made stable.
    Flushing,
}

/// How blocks of the destination become zeroes: in the easiest way that it can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Zeroing {
    Discard,
    Zero,
    Write,
}

impl Zeroing {
    fn of(leg: &Leg) -> Zeroing {
        if leg.destination.unit.store().geometry().discards { Zeroing::Discard } else { Zeroing::Zero }
    }
}

/// Of a source of which nothing is known.
const UNKNOWN: Allocation = Allocation { is_mapped: true, length_bytes: 0 };

impl Copying {
    /// Begins on the first way of a route.
    pub(crate) fn begin(
        (route, leg): (Box<dyn Route>, Leg),
        spare: Option<Frame>,
        begun: &Beginning<'_>,
        ticket: Ticket,
    ) -> Result<Step, Sense> {
        let copying = Copying {
            route,
            at: 0,
            run: UNKNOWN,
            zeroing: Zeroing::of(&leg),
            leg,
            stage: CopyStage::Flushing,
            spare,
            piece: None,
            nexus: begun.nexus,
            is_volatile: false,
            ticket,
        };
        Box::new(copying).go_on(|copying| copying.advance(begun.memory))
    }

    /// The unit whose store works for it now.
    fn unit(&self) -> &Arc<UnitState> {
        match (&self.stage, &self.leg.source) {
            (CopyStage::Asking | CopyStage::Reading { .. }, Some(source)) => &source.unit,
            _ => &self.leg.destination.unit,
        }
    }

    fn claim(&self, target: &CopyTargetUnit, request: &Request) -> Hold {
        Hold::of_copy(Arc::clone(&target.unit), target.content, Claim::of(request), self.nexus)
    }

    fn failed(&self, sense: Sense) -> Sense {
        self.route.failed(self.at, None, sense)
    }

    /// Takes the next turn, which gives the request for the store or `None` at the end, and notes how it ends.
    fn go_on(
        mut self: Box<Self>,
        turn: impl FnOnce(&mut Self) -> Result<Option<Request>, Sense>,
    ) -> Result<Step, Sense> {
        match self.ticket.check().and_then(|()| turn(&mut self)) {
            Ok(Some(request)) => Ok(Step::Store(CommandState::Ongoing(self), request)),
            Ok(None) => {
                self.route.end();
                self.ticket.end(None);
                Ok(Step::Good)
            }
            Err(sense) => {
                self.route.end();
                self.ticket.failed(sense);
                Err(sense)
            }
        }
    }

    fn completed(&mut self, completion: Completion, memory: &Region) -> Result<Option<Request>, Sense> {
        let outcome = match completion {
            Ok(outcome) => outcome,
            Err(error) if error.kind == ErrorKind::Unsupported && self.can_do_without() => return self.advance(memory),
            Err(error) => return Err(self.fault(&error)),
        };
        self.ticket.request_done();
        match (std::mem::replace(&mut self.stage, CopyStage::Flushing), outcome) {
            (CopyStage::Asking, Outcome::Allocated(run)) => self.run = self.whole(run),
            (CopyStage::Reading { offset_bytes }, Outcome::Read(found)) => {
                let data = found.freeze();
                let request = Request::Write { offset_bytes, data: data.clone().into() };
                return self.change(CopyStage::Writing { data }, request).map(Some);
            }
            (CopyStage::Asking | CopyStage::Reading { .. }, _) => return Err(fault::INTERNAL),
            (CopyStage::Writing { data }, _) => {
                self.changed(data.len() as u64);
                self.spare = data.thaw().ok();
            }
            (CopyStage::Zeroing { length_bytes }, _) => self.changed(length_bytes),
            (CopyStage::Flushing, _) => self.is_volatile = false,
        }
        self.piece = None;
        self.advance(memory)
    }

    fn fault(&self, error: &StoreError) -> Sense {
        self.failed(self.unit().fault(error))
    }

    /// What a store does not do for it is done in another way, if there is any.
    fn can_do_without(&mut self) -> bool {
        match (&self.stage, self.zeroing) {
            (CopyStage::Asking, _) => {
                self.run = Allocation { is_mapped: true, length_bytes: self.leg.length_bytes() };
            }
            (CopyStage::Zeroing { length_bytes }, Zeroing::Discard | Zeroing::Zero) => {
                let length_bytes = *length_bytes;
                self.leg.put_back(length_bytes);
                self.run.length_bytes += length_bytes;
                let is_discard = self.zeroing == Zeroing::Discard;
                self.zeroing = if is_discard { Zeroing::Zero } else { Zeroing::Write };
            }
            _ => return false,
        }
        self.piece = None;
        true
    }

    /// In whole blocks of both sides: a block of which a part has space has.
    fn whole(&self, run: Allocation) -> Allocation {
        let block = |target: &CopyTargetUnit| u64::from(target.unit.store().geometry().block_bytes);
        let block_bytes = self.leg.source.iter().chain([&self.leg.destination]).map(block).max().unwrap_or(1).max(1);
        let blocks =
            if run.is_mapped { run.length_bytes.div_ceil(block_bytes) } else { run.length_bytes / block_bytes };
        let length_bytes = blocks.max(1).saturating_mul(block_bytes).min(self.leg.length_bytes());
        Allocation { is_mapped: run.is_mapped || blocks == 0, length_bytes }
    }

    /// Reads the next piece, or has it become zeroes: on this way, or on the next that has one.
    fn advance(&mut self, memory: &Region) -> Result<Option<Request>, Sense> {
        loop {
            if self.leg.length_bytes() > 0 {
                return self.next_piece(memory).map(Some);
            }
            if self.is_volatile && self.route.ends_stable(self.at) {
                self.stage = CopyStage::Flushing;
                self.piece = Some(self.claim(&self.leg.destination, &Request::Flush));
                return Ok(Some(Request::Flush));
            }
            self.ticket.segment_done();
            self.at += 1;
            let Some(leg) = self.route.leg(self.at)? else { return Ok(None) };
            (self.run, self.zeroing, self.leg) = (UNKNOWN, Zeroing::of(&leg), leg);
        }
    }

    fn next_piece(&mut self, memory: &Region) -> Result<Request, Sense> {
        if self.run.length_bytes == 0 {
            let Range { offset_bytes, length_bytes } = self.leg.from;
            match &self.leg.source {
                None => self.run = Allocation { is_mapped: false, length_bytes },
                // A derived unit that gives no space back has as little behind its blocks as the one on which it stands.
                Some(source) if !self.leg.is_backward && source.unit.root().store().geometry().discards => {
                    let request = Request::Allocation { offset_bytes, length_bytes };
                    let hold = self.claim(source, &request);
                    (self.stage, self.piece) = (CopyStage::Asking, Some(hold));
                    return Ok(request);
                }
                Some(_) => self.run = Allocation { is_mapped: true, length_bytes },
            }
        }
        match (&self.leg.source, self.run.is_mapped) {
            (Some(_), true) => self.read(memory),
            _ => self.zero(memory),
        }
    }

    fn cut(&mut self, max_bytes: u64) -> Result<(Range, Range), Sense> {
        let (from, to) = self.leg.cut(max_bytes.min(self.run.length_bytes)).ok_or(fault::INTERNAL)?;
        self.run.length_bytes -= from.length_bytes;
        Ok((from, to))
    }

    fn read(&mut self, memory: &Region) -> Result<Request, Sense> {
        let (from, to) = self.cut(PIECE_BYTES)?;
        let buffer = fitting(self.spare.take(), from.length_bytes as usize, memory);
        let request = Request::Read { offset_bytes: from.offset_bytes, buffer };
        self.stage = CopyStage::Reading { offset_bytes: to.offset_bytes };
        self.piece = self.leg.source.as_ref().map(|source| self.claim(source, &request));
        Ok(request)
    }

    fn zero(&mut self, memory: &Region) -> Result<Request, Sense> {
        let max_bytes = if self.zeroing == Zeroing::Write { PIECE_BYTES } else { ZERO_BYTES };
        let (_, Range { offset_bytes, length_bytes }) = self.cut(max_bytes)?;
        let stage = CopyStage::Zeroing { length_bytes };
        let (stage, request) = match self.zeroing {
            Zeroing::Discard => (stage, Request::Discard { offset_bytes, length_bytes }),
            Zeroing::Zero => (stage, Request::WriteZeroes { offset_bytes, length_bytes }),
            Zeroing::Write => {
                let mut zeroes = fitting(self.spare.take(), length_bytes as usize, memory);
                zeroes.fill(0);
                let data = zeroes.freeze();
                let request = Request::Write { offset_bytes, data: data.clone().into() };
                (CopyStage::Writing { data }, request)
            }
        };
        self.change(stage, request)
    }

    /// Goes to the destination with what the source has told, if it still may.
    fn change(&mut self, stage: CopyStage, request: Request) -> Result<Request, Sense> {
        self.leg.check().map_err(|(place, sense)| self.route.failed(self.at, Some(place), sense))?;
        self.stage = stage;
        let hold = self.claim(&self.leg.destination, &request);
        hold.check_not_busy().map_err(|sense| self.failed(sense))?;
        self.piece = Some(hold);
        Ok(request)
    }

    fn changed(&mut self, length_bytes: u64) {
        self.ticket.written(length_bytes);
        self.is_volatile = !self.leg.destination.unit.settings().write_cache;
    }
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
        let turn = match self.ticket.check() {
            Ok(()) => self.piece.as_mut().map_or(Turn::Now, Hold::may_go),
            Err(sense) => Turn::Never(sense),
        };
        match turn {
            Turn::Never(sense) => {
                let sense = if self.ticket.check() == Err(sense) { sense } else { self.failed(sense) };
                self.route.end();
                self.ticket.failed(sense);
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

/// A frame for a piece: the one at hand, or another of the region, or memory of its own; the command cannot wait any more.
fn fitting(spare: Option<Frame>, length_bytes: usize, memory: &Region) -> Frame {
    let spare = spare.filter(|frame| frame.len() >= length_bytes).or_else(|| memory.frame(length_bytes));
    let mut frame = spare.unwrap_or_else(|| vec![0; length_bytes].into());
    frame.truncate(length_bytes);
    frame
}
