//! What a copy list means for the units there are: each segment as a way between two stores.

use std::fmt::Debug;
use std::sync::Arc;

use sanwire_scsi::copy::{CopyAmount, CopyList, CopySegment, CopyTarget, SEGMENT_MAX_BYTES};
use sanwire_scsi::reservation::Access;
use sanwire_scsi::{AdditionalSense, FailedSegment, OperationClass, Sense, SenseKey};
use sanwire_store::Geometry;

use crate::abort_scope::AbortScope;
use crate::copy_targets::CopyTargetUnit;
use crate::range::Range;
use crate::refusal::Refusal;
use crate::tokens::Token;
use crate::unit_state::UnitState;

/// Which ways the data of a copy goes, one after the other.
pub(crate) trait Route: Debug + Send {
    /// The way at this place; `None` behind the last. It is checked against what its units are now.
    fn leg(&self, at: usize) -> Result<Option<Leg>, Sense>;

    /// What the initiator is told when the way at this place cannot be gone; `byte`: the field of its descriptor that is to blame.
    fn failed(&self, at: usize, byte: Option<u16>, sense: Sense) -> Sense;

    /// Whether what was written on this way must be stable before the next one begins, where there is no write cache.
    fn ends_stable(&self, at: usize) -> bool;

    /// The copy is over.
    fn end(&self) {}
}

/// A copy list whose targets were looked up.
#[derive(Debug)]
pub(crate) struct Plan {
    targets: Vec<Target>,
    segments: Vec<CopySegment>,
}

#[derive(Debug)]
struct Target {
    named: CopyTarget,
    /// `None` when it is not there, or not for this initiator.
    unit: Option<CopyTargetUnit>,
}

/// One way: what is still to copy on it.
#[derive(Debug)]
pub(crate) struct Leg {
    /// `None`: zeroes are written.
    pub(crate) source: Option<CopyTargetUnit>,
    pub(crate) destination: CopyTargetUnit,
    pub(crate) from: Range,
    pub(crate) to: Range,
    /// From the end to the begin, because the destination overlaps the source behind its begin.
    pub(crate) is_backward: bool,
    /// What must stand for the source still, when that was read.
    pub(crate) token: Option<Arc<Token>>,
}

/// Places within a segment descriptor, for the sense data.
mod place {
    pub(super) const SOURCE: u16 = 4;
    pub(super) const DESTINATION: u16 = 6;
    pub(super) const AMOUNT: u16 = 8;
    pub(super) const SOURCE_LBA: u16 = 12;
    pub(super) const DESTINATION_LBA: u16 = 20;
}

impl Plan {
    pub(crate) fn new(list: CopyList, find: impl Fn(&CopyTarget) -> Option<CopyTargetUnit>) -> Plan {
        let target = |named| Target { unit: find(&named), named };
        Plan { targets: list.targets.into_iter().map(target).collect(), segments: list.segments }
    }

    /// Checks every segment, before anything is copied. Gives the length of the longest.
    pub(crate) fn check(&self) -> Result<u64, Sense> {
        let mut longest_bytes = 0;
        for at in 0..self.segments.len() {
            let length_bytes = self.leg(at)?.map_or(0, |leg| leg.from.length_bytes);
            longest_bytes = longest_bytes.max(length_bytes);
        }
        Ok(longest_bytes)
    }

    /// Has the programs of derived units judge each segment, and moves those that they want elsewhere.
    pub(crate) fn judge(
        &mut self,
        judge: &mut dyn FnMut(&CopyTargetUnit, OperationClass, Range) -> Result<u64, Refusal>,
    ) -> Result<(), Refusal> {
        let told = |at: usize, place: u16| {
            move |refusal: Refusal| match refusal {
                Refusal::Sense(sense) => aborted(at, Some(place), sense.additional).into(),
                refusal => refusal,
            }
        };
        for at in 0..self.segments.len() {
            let Some(leg) = self.leg(at)? else { break };
            if leg.from.length_bytes == 0 {
                continue;
            }
            let (source, target) = (OperationClass::CopySource, OperationClass::CopyTarget);
            let Some(from) = &leg.source else { continue };
            let from_blocks = judge(from, source, leg.from).map_err(told(at, place::SOURCE))?;
            let to_blocks = judge(&leg.destination, target, leg.to).map_err(told(at, place::DESTINATION))?;
            let segment = &mut self.segments[at];
            segment.source_lba = segment.source_lba.wrapping_add(from_blocks);
            segment.destination_lba = segment.destination_lba.wrapping_add(to_blocks);
        }
        Ok(())
    }

    fn leg_of(&self, segment: &CopySegment) -> Result<Leg, (u16, AdditionalSense)> {
        let source = self.unit(segment.source).map_err(|additional| (place::SOURCE, additional))?;
        let destination = self.unit(segment.destination).map_err(|additional| (place::DESTINATION, additional))?;
        check_access(Some(source), destination)?;
        let (source_geometry, destination_geometry) =
            (source.unit.store().geometry(), destination.unit.store().geometry());
        let cause = |place| move |sense: Sense| (place, sense.additional);
        source.unit.check_ready(&source_geometry).map_err(cause(place::SOURCE))?;
        destination.unit.check_ready(&destination_geometry).map_err(cause(place::DESTINATION))?;
        destination.unit.check_writable(&destination_geometry).map_err(cause(place::DESTINATION))?;
        let (from, to) = ranges(segment, &source_geometry, &destination_geometry)?;
        let overlaps = match (place_of(&source.unit, from), place_of(&destination.unit, to)) {
            (Some((one, from)), Some((other, to))) if std::ptr::eq(one, other) => from.contains(&to.start),
            _ => false,
        };
        let (source, destination) = (Some(source.clone()), destination.clone());
        Ok(Leg { source, destination, from, to, is_backward: overlaps, token: None })
    }

    fn unit(&self, index: u16) -> Result<&CopyTargetUnit, AdditionalSense> {
        let target = self.targets.get(usize::from(index)).ok_or(AdditionalSense::UNREACHABLE_COPY_TARGET)?;
        if target.named.device_type != 0 {
            return Err(AdditionalSense::INCORRECT_COPY_TARGET_DEVICE_TYPE);
        }
        let unit = target.unit.as_ref().ok_or(AdditionalSense::COPY_TARGET_DEVICE_NOT_REACHABLE)?;
        if ![0, unit.unit.store().geometry().block_bytes].contains(&target.named.block_bytes) {
            return Err(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
        }
        Ok(unit)
    }
}

impl Route for Plan {
    fn leg(&self, at: usize) -> Result<Option<Leg>, Sense> {
        let Some(segment) = self.segments.get(at) else { return Ok(None) };
        self.leg_of(segment).map(Some).map_err(|(place, additional)| aborted(at, Some(place), additional))
    }

    fn failed(&self, at: usize, byte: Option<u16>, sense: Sense) -> Sense {
        aborted(at, byte, sense.additional)
    }

    /// Then the segment counts as copied.
    fn ends_stable(&self, _at: usize) -> bool {
        true
    }
}

/// Where a range lies in the unit on whose store its own stands, if it lies there in one piece.
fn place_of(unit: &UnitState, range: Range) -> Option<(&UnitState, std::ops::Range<u64>)> {
    let bytes = range.offset_bytes..range.offset_bytes + range.length_bytes;
    let place = match unit.derived() {
        Some(derived) => derived.in_root.piece(bytes)?,
        None => bytes,
    };
    Some((unit.root(), place))
}

/// What reservations or derivations forbid. SPC-3 6.3.3: RESERVATION CONFLICT is not GOOD.
fn check_access(source: Option<&CopyTargetUnit>, destination: &CopyTargetUnit) -> Result<(), (u16, AdditionalSense)> {
    let conflict = |place| move |_: Refusal| (place, AdditionalSense::THIRD_PARTY_DEVICE_FAILURE);
    let denied = |place| move |additional: AdditionalSense| (place, additional);
    if let Some(source) = source {
        source.check_allowed(OperationClass::CopySource).map_err(denied(place::SOURCE))?;
        source.check(Access::Read).map_err(conflict(place::SOURCE))?;
    }
    destination.check_allowed(OperationClass::CopyTarget).map_err(denied(place::DESTINATION))?;
    destination.check(Access::Write).map_err(conflict(place::DESTINATION))
}

/// Where a segment's bytes lie in both stores. What is not whole blocks on both sides is refused, whatever PAD and CAT
/// say of the rest.
fn ranges(
    segment: &CopySegment,
    source: &Geometry,
    destination: &Geometry,
) -> Result<(Range, Range), (u16, AdditionalSense)> {
    let (source_block, destination_block) = (u64::from(source.block_bytes), u64::from(destination.block_bytes));
    let (length_bytes, source_offset, destination_offset) = match segment.amount {
        CopyAmount::SourceBlocks(blocks) => (u64::from(blocks) * source_block, 0, 0),
        CopyAmount::DestinationBlocks(blocks) => (u64::from(blocks) * destination_block, 0, 0),
        CopyAmount::Bytes { length, source_offset, destination_offset } => {
            (length.into(), source_offset, destination_offset)
        }
    };
    if length_bytes > SEGMENT_MAX_BYTES.into() {
        return Err((place::AMOUNT, AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST));
    }
    let is_whole = |offset: u16, block| length_bytes.is_multiple_of(block) && u64::from(offset).is_multiple_of(block);
    if !is_whole(source_offset, source_block) || !is_whole(destination_offset, destination_block) {
        return Err((place::AMOUNT, AdditionalSense::UNEXPECTED_INEXACT_SEGMENT));
    }
    let range = |lba: u64, offset: u16, geometry: &Geometry| {
        let offset_bytes = lba.checked_mul(geometry.block_bytes.into())?.checked_add(offset.into())?;
        let end = offset_bytes.checked_add(length_bytes)?;
        (end <= geometry.length_bytes).then_some(Range { offset_bytes, length_bytes })
    };
    // There is no code for a segment beyond the end of a unit; the segment's place in error says it.
    let from = range(segment.source_lba, source_offset, source).ok_or((place::SOURCE_LBA, AdditionalSense::NONE))?;
    let to = range(segment.destination_lba, destination_offset, destination)
        .ok_or((place::DESTINATION_LBA, AdditionalSense::NONE))?;
    Ok((from, to))
}

/// COPY ABORTED in this segment, at this byte of its descriptor (SPC-3 6.3.3).
fn aborted(segment: usize, byte: Option<u16>, additional: AdditionalSense) -> Sense {
    // A list has few segments.
    Sense::copy_aborted(additional, FailedSegment { number: segment as u16, byte })
}

impl Leg {
    /// Asks again whether the copy may go on: a nexus that was preempted while it runs must not write any more, and what was read must
    /// be what a token stands for. Tells which field names what is in its way.
    pub(crate) fn check(&self) -> Result<(), (u16, Sense)> {
        let denied = |(place, additional)| (place, Sense::new(SenseKey::CopyAborted, additional));
        check_access(self.source.as_ref(), &self.destination).map_err(denied)?;
        let (Some(token), Some(source)) = (&self.token, &self.source) else { return Ok(()) };
        token.check(source.unit.medium()).map_err(|sense| (place::SOURCE, sense))
    }

    /// Whether what one of the nexuses, through which it copies, does to its unit is to be ended.
    pub(crate) fn is_covered_by(&self, scope: &AbortScope) -> bool {
        self.source.iter().any(|source| source.is_covered_by(scope)) || self.destination.is_covered_by(scope)
    }

    /// How much is left.
    pub(crate) fn length_bytes(&self) -> u64 {
        self.to.length_bytes
    }

    /// Puts back the piece that was cut off last, of a way that is gone forwards.
    pub(crate) fn put_back(&mut self, length_bytes: u64) {
        for range in [&mut self.from, &mut self.to] {
            range.offset_bytes -= length_bytes;
            range.length_bytes += length_bytes;
        }
    }

    /// Cuts the next piece off: where it is read and where it goes; `None` when all is copied.
    pub(crate) fn cut(&mut self, max_bytes: u64) -> Option<(Range, Range)> {
        if self.from.length_bytes == 0 {
            return None;
        }
        Some(if self.is_backward {
            (self.from.split_back(max_bytes), self.to.split_back(max_bytes))
        } else {
            (self.from.split_front(max_bytes), self.to.split_front(max_bytes))
        })
    }
}
