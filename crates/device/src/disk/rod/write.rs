//! WRITE USING TOKEN (SBC-4 5.59): a copy from the blocks that a token stands for.

use std::sync::Arc;

use sanwire_scsi::reservation::Access;
use sanwire_scsi::rod::{PresentedToken, TOKEN_BYTES, WriteUsingToken};
use sanwire_scsi::{AdditionalSense, OperationClass, Sense, SenseKey, Task, operation_code as code};

use super::ranges::{judge, placed};
use crate::beginning::Beginning;
use crate::copies::{AskedCopy, Copies};
use crate::copy_targets::CopyTargetUnit;
use crate::data::{frame, parameter_list};
use crate::disk::copy::{Copying, Leg, PIECE_BYTES, Route, note_moved};
use crate::range::Range;
use crate::refusal::Refusal;
use crate::step::Step;
use crate::tokens::Token;
use crate::unit_state::UnitState;

/// OFFSET INTO ROD, in the parameter list.
const OFFSET_AT: u16 = 8;

/// What a token stands for, on the way to a unit.
#[derive(Debug)]
struct TokenRoute {
    source: Option<Source>,
    destination: CopyTargetUnit,
    /// From where to where: of the same length.
    ways: Vec<(Range, Range)>,
    deletes: bool,
}

#[derive(Debug)]
struct Source {
    creator: CopyTargetUnit,
    token: Arc<Token>,
}

pub(crate) fn write(
    (list_id, parameter_bytes): (u32, u32),
    copies: &Arc<Copies>,
    begun: &Beginning<'_>,
    task: &Task,
) -> Result<Step, Refusal> {
    if parameter_bytes == 0 {
        return Ok(Step::Good);
    }
    let block_bytes = begun.geometry.block_bytes;
    let asked = WriteUsingToken::parse(&parameter_list(task, parameter_bytes as usize)?, block_bytes)?;
    begun.unit.check_writable(&begun.geometry)?;
    let mut ranges = placed(&asked.ranges, &begun.geometry)?;
    let source = find(&asked.token, begun)?;
    let destination = begun.own_target();
    let offset_bytes = asked.offset_blocks.checked_mul(block_bytes.into()).ok_or(OFFSET_BEYOND)?;
    let is_partial = cut(&mut ranges, source.as_ref(), offset_bytes, block_bytes)?;
    let total_bytes: u64 = ranges.iter().map(|range| range.length_bytes).sum();
    let spare = if total_bytes > 0 { Some(frame(begun.memory, total_bytes.min(PIECE_BYTES) as usize)?) } else { None };
    judge((&destination, OperationClass::CopyTarget), &mut ranges, begun)?;
    let ways = match &source {
        Some(source) => ways(source, offset_bytes, &ranges, &destination)?,
        None => ranges.iter().map(|range| (*range, *range)).collect(),
    };
    note_moved((&destination, OperationClass::CopyTarget), total_bytes);
    source.iter().for_each(|source| note_moved((&source.creator, OperationClass::CopySource), total_bytes));
    let action = code::WRITE_USING_TOKEN_ACTION;
    let asked_copy = AskedCopy { action, block_bytes, is_background: asked.is_immediate };
    let mut ticket = copies.begin(begun.nexus, list_id, asked_copy, begun.unit.exclusion.bell())?;
    if is_partial {
        ticket.note_partial();
    }
    let route = TokenRoute { source, destination, ways, deletes: asked.deletes };
    match route.leg(0) {
        Ok(Some(leg)) => {
            let step = Copying::begin((Box::new(route), leg), spare, begun, ticket)?;
            Ok(match step {
                Step::Store(state, request) if asked.is_immediate => Step::Detached(state, request),
                step => step,
            })
        }
        Ok(None) => {
            route.end();
            ticket.end(None);
            Ok(Step::Good)
        }
        Err(sense) => {
            ticket.failed(sense);
            Err(sense.into())
        }
    }
}

const OFFSET_BEYOND: Sense = Sense::invalid_field_in_parameters(OFFSET_AT, None);

const fn illegal(additional: AdditionalSense) -> Sense {
    Sense::new(SenseKey::IllegalRequest, additional)
}

/// What the token stands for; `None`: zeroes.
///
/// The unit that has made it is looked for as that of a copy: among those that the initiator may use. Where it finds none, the token is
/// that of another copy manager to him.
fn find(bytes: &[u8; TOKEN_BYTES], begun: &Beginning<'_>) -> Result<Option<Source>, Refusal> {
    let PresentedToken::Made { id, creator } = PresentedToken::parse(bytes)? else { return Ok(None) };
    let creator = if begun.unit.identity().is_named(&creator) {
        Some(begun.own_target())
    } else {
        begun.target.copy_target(begun.nexus, &creator, begun.now)
    };
    let creator = creator.ok_or(illegal(AdditionalSense::REMOTE_TOKEN_USAGE_NOT_SUPPORTED))?;
    let principal = begun.target.principal(begun.nexus);
    let unit = &creator.unit;
    let token = unit.tokens().find((id, bytes), unit.id(), &principal, begun.now)?;
    token.check(unit.medium())?;
    creator.check_allowed(OperationClass::CopySource).map_err(illegal)?;
    let conflict = |_| Sense::new(SenseKey::CopyAborted, AdditionalSense::THIRD_PARTY_DEVICE_FAILURE);
    creator.check(Access::Read).map_err(conflict)?;
    unit.check_ready(&unit.store().geometry())?;
    Ok(Some(Source { creator, token }))
}

/// Leaves out of the ranges what the token has no data for: whether there is such a part. SBC-4 5.59.2: as many whole blocks are written as
/// there are.
fn cut(ranges: &mut Vec<Range>, source: Option<&Source>, offset_bytes: u64, block_bytes: u32) -> Result<bool, Sense> {
    let Some(source) = source else { return Ok(false) };
    let all_bytes = source.token.origin().length_bytes();
    let there_bytes = all_bytes.checked_sub(offset_bytes).filter(|there| *there > 0).ok_or(OFFSET_BEYOND)?;
    let mut rest_bytes = there_bytes - there_bytes % u64::from(block_bytes);
    let mut is_partial = false;
    for range in ranges.iter_mut() {
        is_partial |= range.length_bytes > rest_bytes;
        range.length_bytes = range.length_bytes.min(rest_bytes);
        rest_bytes -= range.length_bytes;
    }
    ranges.retain(|range| range.length_bytes > 0);
    Ok(is_partial)
}

/// Which part of the token's data goes to which part of the ranges, in pieces that lie together on both sides.
fn ways(
    source: &Source,
    offset_bytes: u64,
    ranges: &[Range],
    destination: &CopyTargetUnit,
) -> Result<Vec<(Range, Range)>, Sense> {
    let origin = source.token.origin();
    let (from, to) = (&source.creator.unit, &destination.unit);
    // Its own first write would cancel the token.
    if std::ptr::eq(from.root(), to.root()) {
        let mut written = ranges.iter().flat_map(|range| to.places(*range));
        if written.any(|place| origin.places.iter().any(|own| own.overlaps(place))) {
            return Err(illegal(AdditionalSense::INVALID_OPERATION_FOR_COPY_SOURCE_OR_DESTINATION));
        }
    }
    let block = |unit: &UnitState| u64::from(unit.store().geometry().block_bytes);
    let block_bytes = block(from).max(block(to));
    let (mut sources, mut ways) = (origin.ranges.iter().copied(), Vec::new());
    let mut source = Range { offset_bytes: 0, length_bytes: 0 };
    let mut skipped_bytes = offset_bytes;
    for mut range in ranges.iter().copied() {
        while range.length_bytes > 0 {
            while source.length_bytes == 0 {
                source = sources.next().ok_or(OFFSET_BEYOND)?;
                let skipped = source.split_front(skipped_bytes);
                skipped_bytes -= skipped.length_bytes;
            }
            let length_bytes = source.length_bytes.min(range.length_bytes);
            if !length_bytes.is_multiple_of(block_bytes) {
                // Blocks of one side lie in several places of the other.
                return Err(illegal(AdditionalSense::COPY_SEGMENT_GRANULARITY_VIOLATION));
            }
            ways.push((source.split_front(length_bytes), range.split_front(length_bytes)));
        }
    }
    Ok(ways)
}

impl Route for TokenRoute {
    fn leg(&self, at: usize) -> Result<Option<Leg>, Sense> {
        let Some((from, to)) = self.ways.get(at).copied() else { return Ok(None) };
        if let Some(Source { creator, .. }) = &self.source {
            let geometry = creator.unit.store().geometry();
            creator.unit.check_ready(&geometry).map_err(|sense| self.failed(at, None, sense))?;
            check_within(from, geometry.length_bytes)?;
        }
        let geometry = self.destination.unit.store().geometry();
        let unit = &self.destination.unit;
        unit.check_ready(&geometry).map_err(|sense| self.failed(at, None, sense))?;
        unit.check_writable(&geometry).map_err(|sense| self.failed(at, None, sense))?;
        check_within(to, geometry.length_bytes)?;
        let source = self.source.as_ref().map(|source| source.creator.clone());
        let token = self.source.as_ref().map(|source| Arc::clone(&source.token));
        Ok(Some(Leg { source, destination: self.destination.clone(), from, to, is_backward: false, token }))
    }

    /// What is wrong with the token is the command's own fault; else the copy was begun and could not go on.
    fn failed(&self, _at: usize, _byte: Option<u16>, sense: Sense) -> Sense {
        let is_of_token = sense.additional.code == AdditionalSense::INVALID_TOKEN_OPERATION.code;
        if is_of_token { sense } else { Sense::new(SenseKey::CopyAborted, sense.additional) }
    }

    fn ends_stable(&self, at: usize) -> bool {
        at + 1 == self.ways.len()
    }

    fn end(&self) {
        if let Some(Source { creator, token }) = self.source.as_ref().filter(|_| self.deletes) {
            creator.unit.tokens().delete(token);
        }
    }
}

/// A unit may have shrunk meanwhile.
fn check_within(range: Range, length_bytes: u64) -> Result<(), Sense> {
    let is_within = range.offset_bytes.checked_add(range.length_bytes).is_some_and(|end| end <= length_bytes);
    if is_within { Ok(()) } else { Err(Sense::new(SenseKey::CopyAborted, AdditionalSense::LBA_OUT_OF_RANGE)) }
}
