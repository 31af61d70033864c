//! COMPARE AND WRITE and ORWRITE (SBC-4 5.3 and 5.14): what is there is read, looked at, and replaced.

use sanwire_buffer::{Region, Slices};
use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_scsi::{Extent, Sense, Task};
use sanwire_store::{Completion, Geometry, Outcome, Request};

use crate::beginning::Beginning;
use crate::data::{frame, take_data};
use crate::disk::verify::compare;
use crate::exclusion::{Access, Claim};
use crate::fault;
use crate::range::{Range, length_error};
use crate::refusal::Refusal;
use crate::step::{CommandState, Ongoing, Step, finish};
use crate::unit_state::UnitState;

/// A swap under way.
#[derive(Debug)]
pub(crate) struct Swap {
    range: Range,
    kind: SwapKind,
    /// What the initiator sent; taken when the new content is on its way.
    sent: Option<Slices>,
    flush: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SwapKind {
    /// The first half is what must be there, the second half what comes instead.
    Compare,
    /// Bits are set where one is sent.
    Or,
}

/// The most blocks of one COMPARE AND WRITE: its data is twice as long, and its length has one byte.
pub(crate) fn compare_and_write_max_blocks(geometry: &Geometry) -> u8 {
    let blocks = TRANSFER_MAX_BYTES / 2 / geometry.block_bytes.max(1) as usize;
    u8::try_from(blocks).unwrap_or(u8::MAX)
}

pub(crate) fn compare_and_write(
    extent: Extent,
    force_unit_access: bool,
    begun: &Beginning<'_>,
    task: &mut Task,
) -> Result<Step, Refusal> {
    let geometry = &begun.geometry;
    begun.unit.check_writable(geometry)?;
    if extent.blocks > compare_and_write_max_blocks(geometry).into() {
        return Err(length_error(task).into());
    }
    let range = Range::of(extent, geometry)?;
    let length = range.length_within(TRANSFER_MAX_BYTES / 2, task)?;
    // More data than the command is for means that both ends do not mean the same: nothing may be changed then.
    if task.data_out.as_ref().map_or(0, |data| data.len()) != 2 * length {
        return Err(length_error(task).into());
    }
    begin(SwapKind::Compare, range, 2 * length, force_unit_access, begun, task)
}

pub(crate) fn or_write(
    extent: Extent,
    force_unit_access: bool,
    begun: &Beginning<'_>,
    task: &mut Task,
) -> Result<Step, Refusal> {
    let geometry = &begun.geometry;
    begun.unit.check_writable(geometry)?;
    let range = Range::of(extent, geometry)?;
    let length = range.length_within(TRANSFER_MAX_BYTES, task)?;
    begin(SwapKind::Or, range, length, force_unit_access, begun, task)
}

fn begin(
    kind: SwapKind,
    range: Range,
    sent_bytes: usize,
    force_unit_access: bool,
    begun: &Beginning<'_>,
    task: &mut Task,
) -> Result<Step, Refusal> {
    if range.length_bytes == 0 {
        return Ok(Step::Good);
    }
    let buffer = frame(begun.memory, range.length_bytes as usize)?;
    let sent = Some(take_data(task, sent_bytes)?);
    let flush = force_unit_access || !begun.unit.settings().write_cache;
    let request = Request::Read { offset_bytes: range.offset_bytes, buffer };
    Ok(Step::Store(CommandState::Ongoing(Box::new(Swap { range, kind, sent, flush })), request))
}

impl Ongoing for Swap {
    fn is_stable(&self) -> bool {
        self.flush
    }

    fn claim(&self, _first: &Request) -> Option<Claim> {
        Some(Claim { range: self.range, access: Access::Alone })
    }

    fn next(mut self: Box<Self>, disk: &UnitState, completion: Completion, _: &Region) -> Result<Step, Sense> {
        let outcome = completion.map_err(|error| disk.fault(&error))?;
        let Some(sent) = self.sent.take() else { return Ok(finish(self.flush)) };
        let Outcome::Read(mut found) = outcome else { return Err(fault::INTERNAL) };
        let data = match self.kind {
            SwapKind::Compare => {
                let half = sent.len() / 2;
                compare(Some(&sent.slice(0..half)), &found, 0)?;
                sent.slice(half..sent.len())
            }
            SwapKind::Or => {
                let sent = sent.pieces().iter().flat_map(|piece| piece.iter());
                found.iter_mut().zip(sent).for_each(|(found, sent)| *found |= sent);
                found.freeze().into()
            }
        };
        let request = Request::Write { offset_bytes: self.range.offset_bytes, data };
        Ok(Step::Store(CommandState::Ongoing(self), request))
    }
}
