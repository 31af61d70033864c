//! WRITE SAME (SBC-4 5.52 and 5.53): a bounded series of discards, zeroings or writes.

use sanwire_buffer::{Region, Slice};
use sanwire_scsi::{Extent, Sense, Task};
use sanwire_store::{Completion, ErrorKind, Request};

use crate::beginning::Beginning;
use crate::data::{frame, take_data};
use crate::fault;
use crate::range::{Range, length_error};
use crate::refusal::Refusal;
use crate::step::{CommandState, Ongoing, Step, finish};
use crate::unit_state::UnitState;

/// One request of the series: so much is written at once, ...
const WRITE_BYTES: u64 = 256 << 10;
/// ... zeroed, ...
const ZERO_BYTES: u64 = 32 << 20;
/// ... or discarded, so that other commands get their turn between.
pub(crate) const DISCARD_BYTES: u64 = 256 << 20;

/// A WRITE SAME under way.
#[derive(Debug)]
pub(crate) struct Fill {
    method: FillMethod,
    /// What the store is working on.
    current: Range,
    /// What comes after it.
    rest: Range,
    flush: bool,
}

#[derive(Debug)]
enum FillMethod {
    Discard,
    Zero,
    /// The block, repeated; as long as one request is.
    Write(Slice),
}

pub(crate) fn write_same(
    extent: Extent,
    (unmap, no_data): (bool, bool),
    begun: &Beginning<'_>,
    task: &mut Task,
) -> Result<Step, Refusal> {
    let geometry = &begun.geometry;
    begun.unit.check_writable(geometry)?;
    if unmap && !geometry.discards {
        return Err(Sense::invalid_field_in_cdb(1, Some(3)).into());
    }
    let mut range = Range::of(extent, geometry)?;
    if extent.blocks == 0 {
        // SBC-4 5.52 (WSNZ is zero): up to the last block.
        range.length_bytes = geometry.length_bytes - range.offset_bytes;
    }
    if range.length_bytes == 0 {
        return Err(fault::LBA_OUT_OF_RANGE.into());
    }
    let block_bytes = geometry.block_bytes as usize;
    // Another length than that of one block means that both ends do not mean the same: nothing is written then.
    let block = task.data_out.as_ref().filter(|data| data.len() == block_bytes);
    let method = match (no_data, block) {
        (false, None) => return Err(length_error(task).into()),
        (false, Some(block)) if block.pieces().iter().any(|piece| piece.iter().any(|&byte| byte != 0)) => {
            let length = range.length_bytes.min(WRITE_BYTES.max(block_bytes as u64)) as usize;
            let mut pattern = frame(begun.memory, length)?;
            let block = take_data(task, block_bytes)?;
            let block = block.contiguous();
            pattern.chunks_mut(block_bytes).for_each(|place| place.copy_from_slice(&block[..place.len()]));
            FillMethod::Write(pattern.freeze())
        }
        _ if unmap => FillMethod::Discard,
        _ => FillMethod::Zero,
    };
    let flush = !begun.unit.settings().write_cache;
    let none = Range { length_bytes: 0, ..range };
    Ok(Box::new(Fill { method, current: none, rest: range, flush }).advance())
}

impl Ongoing for Fill {
    fn is_by_pieces(&self) -> bool {
        true
    }

    fn ahead(&self) -> Option<Range> {
        Some(Range { length_bytes: self.current.length_bytes + self.rest.length_bytes, ..self.current })
    }

    fn is_stable(&self) -> bool {
        self.flush
    }

    fn next(self: Box<Self>, disk: &UnitState, completion: Completion, memory: &Region) -> Result<Step, Sense> {
        match completion {
            Ok(_) => Ok(match self.advance() {
                // It may take long: others have their turn between, and may abort it.
                Step::Store(state @ CommandState::Ongoing(_), request) => Step::Later(state, request),
                step => step,
            }),
            Err(error) if error.kind == ErrorKind::Unsupported => {
                self.fall_back(memory).ok_or_else(|| disk.fault(&error))
            }
            Err(error) => Err(disk.fault(&error)),
        }
    }
}

impl Fill {
    fn advance(mut self: Box<Self>) -> Step {
        if self.rest.length_bytes == 0 {
            return finish(self.flush);
        }
        self.current = self.rest.split_front(self.method.step_bytes());
        self.start()
    }

    /// The store cannot do it this way: the same range again, in the next harder way.
    fn fall_back(mut self: Box<Self>, memory: &Region) -> Option<Step> {
        self.method = match self.method {
            FillMethod::Discard => FillMethod::Zero,
            FillMethod::Zero => FillMethod::Write(zeroes(memory)),
            FillMethod::Write(_) => return None,
        };
        let length_bytes = self.current.length_bytes + self.rest.length_bytes;
        self.rest = Range { offset_bytes: self.current.offset_bytes, length_bytes };
        Some(self.advance())
    }

    fn start(self: Box<Self>) -> Step {
        let Range { offset_bytes, length_bytes } = self.current;
        let request = match &self.method {
            FillMethod::Discard => Request::Discard { offset_bytes, length_bytes },
            FillMethod::Zero => Request::WriteZeroes { offset_bytes, length_bytes },
            FillMethod::Write(pattern) => {
                Request::Write { offset_bytes, data: pattern.slice(0..length_bytes as usize).into() }
            }
        };
        Step::Store(CommandState::Ongoing(self), request)
    }
}

impl FillMethod {
    fn step_bytes(&self) -> u64 {
        match self {
            FillMethod::Discard => DISCARD_BYTES,
            FillMethod::Zero => ZERO_BYTES,
            FillMethod::Write(pattern) => pattern.len() as u64,
        }
    }
}

/// Zeroes to write: in a frame when one is free, for it is aligned as the kernel likes; the command cannot wait any more.
fn zeroes(memory: &Region) -> Slice {
    match memory.frame(WRITE_BYTES as usize) {
        Some(mut frame) => {
            frame.fill(0);
            frame.freeze()
        }
        None => vec![0; WRITE_BYTES as usize].into(),
    }
}
