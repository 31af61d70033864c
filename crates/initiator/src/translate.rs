//! Operations of a volume as SCSI commands, and answers as results.

mod request;

use std::sync::Arc;

use sanwire_buffer::Frame;
use sanwire_scsi::report::{LbaRun, parse_lba_status};
use sanwire_scsi::{AdditionalSense, Information, Sense, SenseKey, Status};

pub(crate) use self::request::{CdbSize, Limits, Progress, Request, Task};
use crate::driver::VolumeId;
use crate::queue::{AllocatedRun, OpKind, OpOutput};
use crate::session::Answer;
use crate::volume::VolumeError;

/// What an operation needs to be given again after a unit attention, and in parts.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) volume: VolumeId,
    pub(crate) request: Request,
    progress: Progress,
    /// The frame of a read that is given in parts, with those that are done.
    gathered: Option<Frame>,
    /// A flush makes stable what was acknowledged before this number of the volume's keeper.
    pub(crate) flushes_below: u64,
    /// Another write of the same blocks was acknowledged while this one was under way: which of them came last nobody knows.
    pub(crate) is_unordered: bool,
    /// How often the device had a unit attention to tell instead.
    pub(crate) attentions: u32,
    /// How often it was busy.
    pub(crate) refusals: u32,
}

impl Again {
    /// A new operation, and the frame for the data of its answer.
    pub(crate) fn new(volume: VolumeId, form: CdbSize, block_bytes: u32, kind: OpKind) -> (Self, Option<Frame>) {
        let (request, data_in) = Request::new(form, block_bytes, kind);
        let progress = Progress::default();
        let again = Again {
            volume,
            request,
            progress,
            gathered: None,
            flushes_below: 0,
            is_unordered: false,
            attentions: 0,
            refusals: 0,
        };
        (again, data_in)
    }

    /// Makes the next command of what is left to do; gives the frame for its data.
    pub(crate) fn cut(&mut self, limits: Limits, data_in: Option<Frame>) -> Option<Frame> {
        self.progress.give(&self.request, limits);
        if self.request.task != Task::Read {
            return data_in;
        }
        if self.progress.is_all_of(&self.request) {
            return self.gathered.take().or(data_in);
        }
        if self.gathered.is_none() {
            self.gathered = data_in;
        }
        Frame::zeroed(self.progress.given_bytes(&self.request))
    }

    /// What was given last: all of the operation, or a part.
    pub(crate) fn part(&self) -> Request {
        self.progress.part(&self.request)
    }

    /// Whether what was given last is more than goes at once.
    pub(crate) fn exceeds(&self, limits: Limits) -> bool {
        self.progress.exceeds(&self.request, limits)
    }

    /// What was given last has this result; gives that of the whole operation when it is done.
    pub(crate) fn done(&mut self, output: OpOutput) -> Option<OpOutput> {
        (self.attentions, self.refusals) = (0, 0);
        if let (OpOutput::Frame(part), Some(whole)) = (&output, &mut self.gathered) {
            let from = self.progress.done_bytes(&self.request);
            whole[from..from + part.len()].copy_from_slice(part);
        }
        let is_over = self.progress.done(&self.request);
        is_over.then(|| self.gathered.take().map_or(output, OpOutput::Frame))
    }
}

/// What to do about an answer.
pub(crate) enum Verdict {
    /// Tell the caller.
    Tell(Result<OpOutput, VolumeError>),
    /// Give the command again: the device told something else first, or had no room.
    Again(Option<Frame>),
    /// The device did not execute it, and may be another one by now: look whether it still is the volume, or where that is,
    /// and give the command again there.
    Unsure(Option<Frame>),
}

/// Reads an answer.
pub(crate) fn verdict(again: &Again, answer: &Answer, data_in: Option<Frame>, data_in_bytes: usize) -> Verdict {
    match answer.status {
        Status::Good | Status::ConditionMet if again.request.task == Task::Read => match data_in {
            Some(frame) if frame.len() == data_in_bytes => Verdict::Tell(Ok(OpOutput::Frame(frame))),
            _ => Verdict::Tell(Err(unexpected("a read came back with too little data"))),
        },
        Status::Good | Status::ConditionMet => Verdict::Tell(match (again.request.task, data_in) {
            (Task::Allocation, Some(frame)) => allocation(&again.request, &frame[..data_in_bytes.min(frame.len())]),
            _ => Ok(OpOutput::Done),
        }),
        // Another client's reset has ended it: whom that was meant to keep out a reservation keeps out.
        Status::Busy | Status::TaskSetFull | Status::TaskAborted => Verdict::Again(data_in),
        Status::ReservationConflict => Verdict::Tell(Err(VolumeError::Reserved)),
        Status::CheckCondition => match Sense::parse(&answer.sense) {
            Some(sense) if sense.key == SenseKey::UnitAttention && !puts_in_doubt(sense.additional) => {
                Verdict::Again(data_in)
            }
            Some(sense) if sense.key == SenseKey::UnitAttention || is_gone(&sense) => Verdict::Unsure(data_in),
            Some(sense) => Verdict::Tell(Err(failure(again, &sense))),
            None => Verdict::Tell(Err(unexpected("a failure without sense data"))),
        },
    }
}

/// Whether behind this unit attention the number may be another unit's, the unit another one, or other than it was: all that
/// does not tell of other things.
fn puts_in_doubt(told: AdditionalSense) -> bool {
    !matches!(
        told,
        AdditionalSense::RESERVATIONS_PREEMPTED
            | AdditionalSense::RESERVATIONS_RELEASED
            | AdditionalSense::REGISTRATIONS_PREEMPTED
            | AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED
            | AdditionalSense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED
    )
}

/// Whether the number is no unit's any more.
pub(crate) fn is_gone(sense: &Sense) -> bool {
    sense.key == SenseKey::IllegalRequest && sense.additional == AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED
}

/// The runs of a GET LBA STATUS answer, from the block that was asked for on, without those behind the range.
fn allocation(request: &Request, answer: &[u8]) -> Result<OpOutput, VolumeError> {
    let told = parse_lba_status(answer).map_err(|error| unexpected(&error.to_string()))?;
    let (mut next, mut left) = (request.lba, request.blocks);
    let mut runs: Vec<AllocatedRun> = Vec::new();
    for LbaRun { lba, blocks, is_mapped } in told {
        // The first may begin before what was asked for; what does not join ends what is known.
        let Some(end) = lba.checked_add(blocks.into()).filter(|end| lba <= next && *end > next) else { break };
        let count = left.min(end - next);
        let length_bytes = count * u64::from(request.block_bytes);
        match runs.last_mut() {
            Some(last) if last.is_mapped == is_mapped => last.length_bytes += length_bytes,
            _ => runs.push(AllocatedRun { length_bytes, is_mapped }),
        }
        (next, left) = (next + count, left - count);
        if left == 0 {
            break;
        }
    }
    Ok(OpOutput::Allocation(runs))
}

fn failure(again: &Again, sense: &Sense) -> VolumeError {
    match (sense.key, sense.additional) {
        // What keeps the server from it is told by who reads there and writes here.
        (SenseKey::CopyAborted | SenseKey::IllegalRequest, _) if matches!(again.request.task, Task::Copy(_)) => {
            VolumeError::Unsupported
        }
        (SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT) => VolumeError::NoSpace,
        // Its content was replaced while this was under way.
        (SenseKey::DataProtect, AdditionalSense::NOT_READY_TO_READY_CHANGE) => {
            VolumeError::Medium { offset_bytes: failed_at(&again.part(), sense), sense: sense.to_string().into() }
        }
        (SenseKey::DataProtect, _) => VolumeError::ReadOnly,
        (SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE) => VolumeError::Unsupported,
        (
            SenseKey::IllegalRequest,
            AdditionalSense::INVALID_FIELD_IN_CDB | AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST,
        ) if again.request.is_range() => VolumeError::Unsupported,
        (SenseKey::MediumError | SenseKey::HardwareError | SenseKey::NotReady, _) => {
            VolumeError::Medium { offset_bytes: failed_at(&again.part(), sense), sense: sense.to_string().into() }
        }
        _ => VolumeError::Protocol { what: sense.to_string().into() },
    }
}

/// The block that the device points at, or else the first that it was asked for, in bytes.
fn failed_at(part: &Request, sense: &Sense) -> u64 {
    let told = match sense.information {
        Some(Information::Place(lba)) => lba.checked_sub(part.lba).filter(|ahead| *ahead < part.blocks),
        _ => None,
    };
    part.offset_bytes() + told.unwrap_or(0) * u64::from(part.block_bytes)
}

fn unexpected(what: &str) -> VolumeError {
    VolumeError::Protocol { what: Arc::from(what) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a device's refusal for this reason means to who gave the operation.
    fn refused(kind: OpKind, reason: AdditionalSense) -> VolumeError {
        let (again, _) = Again::new(VolumeId::default(), CdbSize::Sixteen, 512, kind);
        let sense = Sense::new(SenseKey::IllegalRequest, reason).to_fixed().to_vec();
        match verdict(&again, &Answer { status: Status::CheckCondition, sense }, None, 0) {
            Verdict::Tell(Err(error)) => error,
            _ => panic!("not refused"),
        }
    }

    #[test]
    fn devices_may_decline_what_can_be_done_by_writing() {
        let zeroes = || OpKind::WriteZeroes { offset_bytes: 512, length_bytes: 4096 };
        for reason in [AdditionalSense::INVALID_COMMAND_OPERATION_CODE, AdditionalSense::INVALID_FIELD_IN_CDB] {
            assert_eq!(refused(zeroes(), reason), VolumeError::Unsupported);
        }
        let list = AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST;
        assert_eq!(refused(OpKind::Discard { offset_bytes: 512, length_bytes: 4096 }, list), VolumeError::Unsupported);
        let copy = OpKind::Copy { naa: [1, 2], source_offset_bytes: 0, offset_bytes: 0, length_bytes: 512 };
        assert_eq!(refused(copy, AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE), VolumeError::Unsupported);
        let flush = refused(OpKind::Flush, AdditionalSense::INVALID_FIELD_IN_CDB);
        assert!(matches!(flush, VolumeError::Protocol { .. }), "{flush}");
    }

    #[test]
    fn an_error_of_the_medium_has_the_place_that_the_device_points_at() {
        let failed_at = |sense: Sense| {
            let kind = OpKind::Read { offset_bytes: 8 * 512, buffer: Frame::zeroed(16 * 512).unwrap() };
            let (mut again, data_in) = Again::new(VolumeId::default(), CdbSize::Sixteen, 512, kind);
            again.cut(Limits { transfer_max_bytes: 1 << 20, range_max_bytes: 1 << 20 }, data_in);
            let answer = Answer { status: Status::CheckCondition, sense: sense.to_fixed() };
            match verdict(&again, &answer, None, 0) {
                Verdict::Tell(Err(VolumeError::Medium { offset_bytes, .. })) => offset_bytes / 512,
                _ => panic!("not an error of the medium"),
            }
        };
        let unreadable = Sense::new(SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR);
        assert_eq!(failed_at(unreadable.with_information(11)), 11);
        assert_eq!(
            [unreadable, unreadable.with_information(7), unreadable.with_information(24)].map(failed_at),
            [8; 3]
        );
    }

    #[test]
    fn runs_are_taken_from_the_block_asked_for_to_the_end_of_the_range() {
        let ask = |runs: &[(u64, u32, u8)]| {
            let kind = OpKind::Allocation { offset_bytes: 10 * 512, length_bytes: 90 * 512 };
            let (again, data_in) = Again::new(VolumeId::default(), CdbSize::Sixteen, 512, kind);
            let mut frame = data_in.expect("room for the answer");
            let mut answer = vec![0; 8];
            answer[..4].copy_from_slice(&(4 + 16 * runs.len() as u32).to_be_bytes());
            for (lba, blocks, status) in runs {
                answer.extend([&lba.to_be_bytes()[..], &blocks.to_be_bytes(), &[*status, 0, 0, 0]].concat());
            }
            frame[..answer.len()].copy_from_slice(&answer);
            let good = Answer { status: Status::Good, sense: Vec::new() };
            match verdict(&again, &good, Some(frame), answer.len()) {
                Verdict::Tell(Ok(OpOutput::Allocation(runs))) => {
                    runs.iter().map(|run| (run.length_bytes / 512, run.is_mapped)).collect::<Vec<_>>()
                }
                _ => panic!("no runs"),
            }
        };
        // Anchored blocks (2) have space.
        assert_eq!(ask(&[(8, 12, 1), (20, 30, 0), (50, 20, 2), (70, 500, 1)]), [(10, false), (50, true), (30, false)]);
        assert_eq!(ask(&[(10, 5, 1), (16, 5, 1)]), [(5, false)], "a gap");
        assert_eq!(ask(&[(11, 5, 1)]), [], "not what was asked for");
        assert_eq!(ask(&[(10, 0, 1), (u64::MAX, u32::MAX, 1)]), []);
        assert_eq!(ask(&[]), []);
    }
}
