//! GET LBA STATUS (SBC-4 5.6): which blocks have space behind them, run after run.

use sanwire_buffer::Region;
use sanwire_scsi::{Sense, Task};
use sanwire_store::{Allocation, Completion, Geometry, Outcome, Request};

use crate::fault;
use crate::range::Range;
use crate::step::{CommandState, Ongoing, Step};
use crate::unit_state::UnitState;

const HEADER_BYTES: usize = 8;
const DESCRIPTOR_BYTES: usize = 16;
/// The most descriptors of one answer.
const DESCRIPTORS_MAX: usize = 256;
/// The most questions for one answer: what comes after them the initiator asks itself.
const QUESTIONS_MAX: u32 = 1024;

/// PROVISIONING STATUS: space stands behind it, or that is not known.
const MAPPED: u8 = 0;
const DEALLOCATED: u8 = 1;

/// A GET LBA STATUS under way.
#[derive(Debug)]
pub(crate) struct Mapping {
    block_bytes: u64,
    /// What was not asked about yet.
    rest: Range,
    runs: Vec<MappedRun>,
    runs_max: usize,
    questions: u32,
    room_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct MappedRun {
    lba: u64,
    blocks: u64,
    is_mapped: bool,
}

pub(crate) fn get_lba_status(lba: u64, allocation_bytes: u32, geometry: &Geometry, task: &Task) -> Result<Step, Sense> {
    let block_bytes = u64::from(geometry.block_bytes);
    let blocks = geometry.length_bytes / block_bytes.max(1);
    if lba >= blocks {
        return Err(fault::LBA_OUT_OF_RANGE);
    }
    let room_bytes = allocation_bytes.min(task.data_in_max_bytes) as usize;
    let fitting = room_bytes.saturating_sub(HEADER_BYTES) / DESCRIPTOR_BYTES;
    let rest = Range { offset_bytes: lba * block_bytes, length_bytes: (blocks - lba) * block_bytes };
    let runs_max = fitting.clamp(1, DESCRIPTORS_MAX);
    let mut mapping = Mapping { block_bytes, rest, runs: Vec::new(), runs_max, questions: 0, room_bytes };
    if !geometry.discards {
        mapping.take(Allocation { is_mapped: true, length_bytes: rest.length_bytes });
    }
    Ok(Box::new(mapping).advance())
}

impl Ongoing for Mapping {
    fn next(mut self: Box<Self>, disk: &UnitState, completion: Completion, _: &Region) -> Result<Step, Sense> {
        match completion.map_err(|error| disk.fault(&error))? {
            Outcome::Allocated(allocation) => self.take(allocation),
            _ => return Err(fault::INTERNAL),
        }
        Ok(self.advance())
    }
}

impl Mapping {
    /// A part of a block that has space makes it a block that has.
    fn take(&mut self, allocation: Allocation) {
        let blocks = match allocation.is_mapped {
            true => allocation.length_bytes.div_ceil(self.block_bytes),
            false => allocation.length_bytes / self.block_bytes,
        };
        let is_mapped = allocation.is_mapped || blocks == 0;
        let front = self.rest.split_front(blocks.max(1).saturating_mul(self.block_bytes));
        let (lba, blocks) = (front.offset_bytes / self.block_bytes, front.length_bytes / self.block_bytes);
        match self.runs.last_mut() {
            Some(last) if last.is_mapped == is_mapped => last.blocks += blocks,
            _ => self.runs.push(MappedRun { lba, blocks, is_mapped }),
        }
    }

    fn advance(mut self: Box<Self>) -> Step {
        // One run more than fits has to be seen, to know where the last one ends.
        if self.rest.length_bytes == 0 || self.runs.len() > self.runs_max || self.questions == QUESTIONS_MAX {
            let mut bytes = self.answer();
            bytes.truncate(self.room_bytes);
            return Step::Answer(bytes);
        }
        self.questions += 1;
        let Range { offset_bytes, length_bytes } = self.rest;
        Step::Store(CommandState::Ongoing(self), Request::Allocation { offset_bytes, length_bytes })
    }

    fn answer(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        for run in &self.runs {
            let (mut lba, mut blocks) = (run.lba, run.blocks);
            while blocks > 0 && bytes.len() < HEADER_BYTES + self.runs_max * DESCRIPTOR_BYTES {
                // The field has 32 bits: a longer run needs several descriptors.
                let count = u32::try_from(blocks).unwrap_or(u32::MAX);
                bytes.extend(lba.to_be_bytes());
                bytes.extend(count.to_be_bytes());
                bytes.extend([if run.is_mapped { MAPPED } else { DEALLOCATED }, 0, 0, 0]);
                (lba, blocks) = (lba + u64::from(count), blocks - u64::from(count));
            }
        }
        let length = (bytes.len() - 4) as u32;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes
    }
}
