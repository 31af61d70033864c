//! UNMAP (SBC-4 5.35): a bounded series of discards.

use sanwire_buffer::Region;
use sanwire_scsi::{Sense, Task, UnmapList};
use sanwire_store::{Completion, ErrorKind, Geometry, Request};

use crate::beginning::Beginning;
use crate::data::parameter_list;
use crate::disk::write_same::DISCARD_BYTES;
use crate::range::Range;
use crate::step::{CommandState, Ongoing, Step, finish};
use crate::unit_state::UnitState;

/// The most descriptors of one UNMAP.
pub(crate) const DESCRIPTORS_MAX: usize = 256;
/// The most blocks that one UNMAP may cover.
pub(crate) const UNMAP_MAX_BLOCKS: u32 = 1 << 20;

/// The state of an UNMAP: its ranges, and how many of them are discarded.
#[derive(Debug)]
pub(crate) struct Unmapping {
    ranges: Vec<Range>,
    /// The range after the current one.
    next: usize,
    /// What is left of the current one.
    rest: Range,
    flush: bool,
}

pub(crate) fn unmap(parameter_bytes: u16, begun: &Beginning<'_>, task: &Task) -> Result<Step, Sense> {
    let (unit, geometry) = (begun.unit, &begun.geometry);
    unit.check_writable(geometry)?;
    if parameter_bytes == 0 {
        return Ok(Step::Good);
    }
    let list = parameter_list(task, usize::from(parameter_bytes))?;
    let ranges = ranges(UnmapList::parse(&list)?, geometry)?;
    let rest = Range { offset_bytes: 0, length_bytes: 0 };
    let flush = !unit.settings().write_cache;
    Ok(Box::new(Unmapping { ranges, next: 0, rest, flush }).advance())
}

/// All of the list is checked before anything is unmapped.
fn ranges(list: UnmapList<'_>, geometry: &Geometry) -> Result<Vec<Range>, Sense> {
    if list.len() > DESCRIPTORS_MAX {
        return Err(Sense::invalid_field_in_parameters(2, None));
    }
    let mut ranges = Vec::with_capacity(list.len());
    let mut total_blocks = 0_u64;
    for (at, extent) in list.extents().enumerate() {
        ranges.push(Range::of(extent, geometry)?);
        total_blocks += u64::from(extent.blocks);
        if total_blocks > u64::from(UNMAP_MAX_BLOCKS) {
            return Err(Sense::invalid_field_in_parameters((8 + 16 * at + 8) as u16, None));
        }
    }
    Ok(ranges)
}

impl Ongoing for Unmapping {
    fn is_by_pieces(&self) -> bool {
        true
    }

    /// What lies between the extents of the list that are not done is kept too.
    fn ahead(&self) -> Option<Range> {
        let rest = self.ranges.iter().skip(self.next.saturating_sub(1));
        let ends = rest.map(|range| (range.offset_bytes, range.offset_bytes + range.length_bytes));
        let (from, to) = ends.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))?;
        Some(Range { offset_bytes: from, length_bytes: to - from })
    }

    fn is_stable(&self) -> bool {
        self.flush
    }

    fn next(self: Box<Self>, disk: &UnitState, completion: Completion, _: &Region) -> Result<Step, Sense> {
        match completion {
            Ok(_) => Ok(self.advance()),
            // SBC-4 4.7.3.4: unmapping is a request, not an order. What cannot be given back stays.
            Err(error) if error.kind == ErrorKind::Unsupported => Ok(self.advance()),
            Err(error) => Err(disk.fault(&error)),
        }
    }
}

impl Unmapping {
    fn advance(mut self: Box<Self>) -> Step {
        while self.rest.length_bytes == 0 {
            let Some(range) = self.ranges.get(self.next) else { return finish(self.flush) };
            self.rest = *range;
            self.next += 1;
        }
        let Range { offset_bytes, length_bytes } = self.rest.split_front(DISCARD_BYTES);
        Step::Store(CommandState::Ongoing(self), Request::Discard { offset_bytes, length_bytes })
    }
}
