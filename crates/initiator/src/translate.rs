//! Operations of a volume as SCSI commands, and answers as results.

use std::sync::Arc;

use sanwire_buffer::{Frame, Slice};
use sanwire_core::Lun;
use sanwire_scsi::report::{LbaRun, parse_lba_status};
use sanwire_scsi::{AdditionalSense, Cdb, Extent, Sense, SenseKey, Status, build, unmap_parameters};

use crate::driver::VolumeId;
use crate::queue::{AllocatedRun, OpKind, OpOutput};
use crate::session::{Answer, Order};
use crate::volume::VolumeError;

/// Room for the answer to GET LBA STATUS: a header and 63 runs.
const LBA_STATUS_BYTES: u32 = 8 + 63 * 16;

/// What a command needs to be given again after a unit attention.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) volume: VolumeId,
    pub(crate) cdb: Cdb,
    pub(crate) data_out: Option<Slice>,
    pub(crate) offset_bytes: u64,
    pub(crate) is_read: bool,
    /// It asks which blocks have space: so many, of this size.
    pub(crate) asks: Option<(u64, u64)>,
    /// It is about blocks without their data: devices may not know it, or not in this form.
    pub(crate) is_range: bool,
    /// What it does to what is stable.
    pub(crate) effect: Effect,
    /// How often the device had a unit attention to tell instead.
    pub(crate) attentions: u32,
    /// How often it was busy.
    pub(crate) refusals: u32,
}

/// What a command does to what is stable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    Nothing,
    /// It changes blocks; their new content `is_stable` at once or not before a flush.
    Write {
        is_stable: bool,
    },
    /// It makes stable what was acknowledged before this number of the volume's keeper.
    Flush {
        below: u64,
    },
}

impl Again {
    /// The command for the unit that the volume is now, with the frame for its answer's data.
    pub(crate) fn order(&self, lun: Lun, data_in: Option<Frame>) -> Order {
        Order { lun, cdb: self.cdb, data_out: self.data_out.clone(), data_in }
    }
}

/// Which commands a unit knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Those of ten bytes.
    Ten,
    /// Those of sixteen.
    Sixteen,
}

impl Form {
    /// The most blocks that one command can say.
    pub(crate) fn blocks_max(self) -> u64 {
        match self {
            Form::Ten => u16::MAX.into(),
            Form::Sixteen => u32::MAX.into(),
        }
    }

    fn read(self, extent: Extent) -> Option<Cdb> {
        match self {
            Form::Ten => build::read_10(extent),
            Form::Sixteen => Some(build::read_16(extent)),
        }
    }

    fn write(self, extent: Extent, stable: bool) -> Option<Cdb> {
        match self {
            Form::Ten => build::write_10(extent, stable),
            Form::Sixteen => Some(build::write_16(extent, stable)),
        }
    }

    pub(crate) fn flush(self) -> Cdb {
        match self {
            Form::Ten => build::synchronize_cache_10(),
            Form::Sixteen => build::synchronize_cache_16(Extent { lba: 0, blocks: 0 }),
        }
    }
}

/// The command of an operation, and the frame of a read. Offsets and lengths were checked by the volume.
pub(crate) fn command(volume: VolumeId, form: Form, block_bytes: u32, kind: OpKind) -> Option<(Again, Option<Frame>)> {
    let block = u64::from(block_bytes.max(1));
    let extent = |offset_bytes: u64, length_bytes: u64| {
        Some(Extent { lba: offset_bytes / block, blocks: u32::try_from(length_bytes / block).ok()? })
    };
    let plain = |cdb, offset_bytes, effect| Again {
        volume,
        cdb,
        data_out: None,
        offset_bytes,
        is_read: false,
        asks: None,
        is_range: false,
        effect,
        attentions: 0,
        refusals: 0,
    };
    let volatile = Effect::Write { is_stable: false };
    Some(match kind {
        OpKind::Read { offset_bytes, buffer } => {
            let cdb = form.read(extent(offset_bytes, buffer.len() as u64)?)?;
            (Again { is_read: true, ..plain(cdb, offset_bytes, Effect::Nothing) }, Some(buffer))
        }
        OpKind::Write { offset_bytes, data, stable } => {
            let cdb = form.write(extent(offset_bytes, data.len() as u64)?, stable)?;
            (Again { data_out: Some(data), ..plain(cdb, offset_bytes, Effect::Write { is_stable: stable }) }, None)
        }
        OpKind::Flush => (plain(form.flush(), 0, Effect::Flush { below: 0 }), None),
        OpKind::Discard { offset_bytes, length_bytes } => {
            let list = unmap_parameters(&[extent(offset_bytes, length_bytes)?])?;
            let cdb = build::unmap(u16::try_from(list.len()).ok()?);
            (Again { data_out: Some(Slice::from(list)), is_range: true, ..plain(cdb, offset_bytes, volatile) }, None)
        }
        OpKind::WriteZeroes { offset_bytes, length_bytes } => {
            // The block of zeroes is sent: devices older than SBC-4 do not know that none means zeroes, and not all of
            // them say so.
            let cdb = build::write_same_16(extent(offset_bytes, length_bytes)?, false, false);
            let zeroes = Slice::from(vec![0; block_bytes as usize]);
            (Again { data_out: Some(zeroes), is_range: true, ..plain(cdb, offset_bytes, volatile) }, None)
        }
        OpKind::Allocation { offset_bytes, length_bytes } => {
            let cdb = build::get_lba_status(offset_bytes / block, LBA_STATUS_BYTES);
            let asks = Some((length_bytes / block, block));
            let room = Frame::from(vec![0; LBA_STATUS_BYTES as usize]);
            (Again { asks, is_range: true, ..plain(cdb, offset_bytes, Effect::Nothing) }, Some(room))
        }
    })
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
        Status::Good | Status::ConditionMet if again.is_read => match data_in {
            Some(frame) if frame.len() == data_in_bytes => Verdict::Tell(Ok(OpOutput::Frame(frame))),
            _ => Verdict::Tell(Err(unexpected("a read came back with too little data"))),
        },
        Status::Good | Status::ConditionMet => Verdict::Tell(match (again.asks, data_in) {
            (Some(asks), Some(frame)) => allocation(again, asks, &frame[..data_in_bytes.min(frame.len())]),
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
fn allocation(again: &Again, (blocks, block_bytes): (u64, u64), answer: &[u8]) -> Result<OpOutput, VolumeError> {
    let told = parse_lba_status(answer).map_err(|error| unexpected(&error.to_string()))?;
    let (mut next, mut left) = (again.offset_bytes / block_bytes, blocks);
    let mut runs: Vec<AllocatedRun> = Vec::new();
    for LbaRun { lba, blocks, is_mapped } in told {
        // The first may begin before what was asked for; what does not join ends what is known.
        let Some(end) = lba.checked_add(blocks.into()).filter(|end| lba <= next && *end > next) else { break };
        let count = left.min(end - next);
        let length_bytes = count * block_bytes;
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
        (SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT) => VolumeError::NoSpace,
        (SenseKey::DataProtect, _) => VolumeError::ReadOnly,
        (SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE) => VolumeError::Unsupported,
        (
            SenseKey::IllegalRequest,
            AdditionalSense::INVALID_FIELD_IN_CDB | AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST,
        ) if again.is_range => VolumeError::Unsupported,
        (SenseKey::MediumError | SenseKey::HardwareError | SenseKey::NotReady, _) => {
            VolumeError::Medium { offset_bytes: again.offset_bytes, sense: sense.to_string().into() }
        }
        _ => VolumeError::Protocol { what: sense.to_string().into() },
    }
}

fn unexpected(what: &str) -> VolumeError {
    VolumeError::Protocol { what: Arc::from(what) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a device's refusal for this reason means to who gave the operation.
    fn refused(kind: OpKind, reason: AdditionalSense) -> VolumeError {
        let (again, _) = command(VolumeId::default(), Form::Sixteen, 512, kind).expect("a command");
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
        let flush = refused(OpKind::Flush, AdditionalSense::INVALID_FIELD_IN_CDB);
        assert!(matches!(flush, VolumeError::Protocol { .. }), "{flush}");
    }

    #[test]
    fn runs_are_taken_from_the_block_asked_for_to_the_end_of_the_range() {
        let ask = |runs: &[(u64, u32, u8)]| {
            let kind = OpKind::Allocation { offset_bytes: 10 * 512, length_bytes: 90 * 512 };
            let (again, data_in) = command(VolumeId::default(), Form::Sixteen, 512, kind).expect("a command");
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

    #[test]
    fn zeroes_are_sent_as_one_block_that_every_device_understands() {
        let (again, _) = command(
            VolumeId::default(),
            Form::Sixteen,
            512,
            OpKind::WriteZeroes { offset_bytes: 512, length_bytes: 4096 },
        )
        .expect("a command");
        assert_eq!(again.cdb, build::write_same_16(Extent { lba: 1, blocks: 8 }, false, false));
        assert_eq!(again.data_out.as_deref(), Some(&[0; 512][..]));
    }
}
