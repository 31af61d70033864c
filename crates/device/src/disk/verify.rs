//! VERIFY and WRITE AND VERIFY (SBC-4 5.36 to 5.38, 5.43 to 5.45).

use sanwire_buffer::{Frame, Region, Slices};
use sanwire_scsi::{AdditionalSense, ByteCheck, Sense, SenseKey, Task};
use sanwire_store::{Completion, Outcome, Request};

use crate::beginning::Beginning;
use crate::data::{frame, take_data, written_bytes};
use crate::fault;
use crate::piece::{Part, memory_max_bytes};
use crate::range::Range;
use crate::refusal::Refusal;
use crate::step::{CommandState, Ongoing, Step};
use crate::unit_state::UnitState;

/// A verification under way.
#[derive(Debug)]
pub(crate) struct Verification {
    /// What the medium must hold: all of it, or one block that repeats; `None` when it only has to be readable.
    expected: Option<Slices>,
    /// Where it begins in the extent.
    from_bytes: u32,
    stage: VerifyStage,
}

#[derive(Debug)]
enum VerifyStage {
    /// The data is being written; the frame waits for reading it back.
    Writing { offset_bytes: u64, buffer: Frame },
    /// What was written is being made stable.
    Flushing { offset_bytes: u64, buffer: Frame },
    /// The medium is being read.
    Reading,
}

pub(crate) fn verify(
    Part { extent, from_bytes, .. }: Part,
    check: ByteCheck,
    begun: &Beginning<'_>,
    task: &mut Task,
) -> Result<Step, Refusal> {
    let geometry = &begun.geometry;
    let range = Range::of(extent, geometry)?;
    let length = range.length_within(memory_max_bytes(task), task)?;
    if length == 0 {
        return Ok(Step::Good);
    }
    let sent_bytes = match check {
        ByteCheck::Medium => 0,
        ByteCheck::Data => length,
        ByteCheck::OneBlock => geometry.block_bytes as usize,
    };
    let buffer = frame(begun.memory, length)?;
    let expected = if sent_bytes == 0 { None } else { Some(take_data(task, sent_bytes)?) };
    Ok(Verification { expected, from_bytes, stage: VerifyStage::Reading }.read(range.offset_bytes, buffer))
}

pub(crate) fn write_and_verify(
    Part { extent, from_bytes, .. }: Part,
    check: ByteCheck,
    begun: &Beginning<'_>,
    task: &mut Task,
) -> Result<Step, Refusal> {
    let geometry = &begun.geometry;
    begun.unit.check_writable(geometry)?;
    if check == ByteCheck::OneBlock {
        // SBC-4 5.43: 11b is reserved here.
        return Err(Sense::invalid_field_in_cdb(1, Some(2)).into());
    }
    let range = Range::of(extent, geometry)?;
    let length = written_bytes(task, range.length_within(memory_max_bytes(task), task)?, geometry)?;
    if length == 0 {
        return Ok(Step::Good);
    }
    let buffer = frame(begun.memory, length)?;
    let data = take_data(task, length)?;
    let expected = (check == ByteCheck::Data).then(|| data.clone());
    let offset_bytes = range.offset_bytes;
    let verification = Verification { expected, from_bytes, stage: VerifyStage::Writing { offset_bytes, buffer } };
    Ok(Step::Store(CommandState::Ongoing(Box::new(verification)), Request::Write { offset_bytes, data }))
}

impl Ongoing for Verification {
    fn is_stable(&self) -> bool {
        matches!(self.stage, VerifyStage::Writing { .. })
    }

    fn next(self: Box<Self>, disk: &UnitState, completion: Completion, _: &Region) -> Result<Step, Sense> {
        let Verification { expected, from_bytes, stage } = *self;
        match (stage, completion) {
            (VerifyStage::Writing { offset_bytes, buffer }, Ok(_)) => {
                let stage = VerifyStage::Flushing { offset_bytes, buffer };
                Ok(Step::Store(
                    CommandState::Ongoing(Box::new(Verification { expected, from_bytes, stage })),
                    Request::Flush,
                ))
            }
            (VerifyStage::Flushing { offset_bytes, buffer }, Ok(_)) => {
                Ok(Verification { expected, from_bytes, stage: VerifyStage::Reading }.read(offset_bytes, buffer))
            }
            (VerifyStage::Reading, Ok(Outcome::Read(found))) => {
                compare(expected.as_ref(), &found, from_bytes).map(|()| Step::Good)
            }
            (VerifyStage::Reading, Ok(_)) => Err(fault::INTERNAL),
            (VerifyStage::Flushing { .. }, Err(error)) => Err(fault::sense(&error, None)),
            (VerifyStage::Writing { .. } | VerifyStage::Reading, Err(error)) => Err(disk.fault(&error)),
        }
    }
}

impl Verification {
    fn read(self, offset_bytes: u64, buffer: Frame) -> Step {
        Step::Store(CommandState::Ongoing(Box::new(self)), Request::Read { offset_bytes, buffer })
    }
}

/// Compares what begins at `from_bytes` of an extent; the INFORMATION field tells the first byte that differs, counted from the start
/// of the extent.
pub(crate) fn compare(expected: Option<&Slices>, found: &[u8], from_bytes: u32) -> Result<(), Sense> {
    let Some(expected) = expected.filter(|bytes| !bytes.is_empty()) else { return Ok(()) };
    let mut rest = found;
    // What is expected repeats, where less of it is given than was read.
    for run in expected.pieces().iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (part, behind) = rest.split_at(run.len().min(rest.len()));
        let run = &run[..part.len()];
        if part != run {
            let within = part.iter().zip(run).position(|(a, b)| a != b).unwrap_or(0);
            let differs_at = found.len() - rest.len() + within;
            let miscompare = Sense::new(SenseKey::Miscompare, AdditionalSense::MISCOMPARE_DURING_VERIFY_OPERATION);
            return Err(miscompare.with_information(u64::from(from_bytes) + differs_at as u64));
        }
        rest = behind;
    }
    Ok(())
}
