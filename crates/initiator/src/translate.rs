//! Operations of a volume as SCSI commands, and answers as results.

use std::sync::Arc;

use sanwire_buffer::{Frame, Slice};
use sanwire_core::Lun;
use sanwire_scsi::{AdditionalSense, Cdb, Extent, Sense, SenseKey, Status, build, unmap_parameters};

use crate::queue::{OpKind, OpOutput};
use crate::session::{Answer, Order};
use crate::volume::VolumeError;

/// What a command needs to be given again after a unit attention.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) lun: Lun,
    pub(crate) cdb: Cdb,
    pub(crate) data_out: Option<Slice>,
    pub(crate) offset_bytes: u64,
    pub(crate) is_read: bool,
    /// How often the device had a unit attention to tell instead.
    pub(crate) attentions: u32,
    /// How often it was busy.
    pub(crate) refusals: u32,
}

impl Again {
    /// The command, with the frame for its answer's data.
    pub(crate) fn order(&self, data_in: Option<Frame>) -> Order {
        Order { lun: self.lun, cdb: self.cdb, data_out: self.data_out.clone(), data_in }
    }
}

/// The command of an operation, and the frame of a read. Offsets and lengths were checked by the volume.
pub(crate) fn command(lun: Lun, block_bytes: u32, kind: OpKind) -> Option<(Again, Option<Frame>)> {
    let block = u64::from(block_bytes.max(1));
    let extent = |offset_bytes: u64, length_bytes: u64| {
        Some(Extent { lba: offset_bytes / block, blocks: u32::try_from(length_bytes / block).ok()? })
    };
    let plain = |cdb, offset_bytes| Again {
        lun,
        cdb,
        data_out: None,
        offset_bytes,
        is_read: false,
        attentions: 0,
        refusals: 0,
    };
    Some(match kind {
        OpKind::Read { offset_bytes, buffer } => {
            let cdb = build::read_16(extent(offset_bytes, buffer.len() as u64)?);
            (Again { is_read: true, ..plain(cdb, offset_bytes) }, Some(buffer))
        }
        OpKind::Write { offset_bytes, data, stable } => {
            let cdb = build::write_16(extent(offset_bytes, data.len() as u64)?, stable);
            (Again { data_out: Some(data), ..plain(cdb, offset_bytes) }, None)
        }
        OpKind::Flush => (plain(build::synchronize_cache_16(extent(0, 0)?), 0), None),
        OpKind::Discard { offset_bytes, length_bytes } => {
            let list = unmap_parameters(&[extent(offset_bytes, length_bytes)?])?;
            let cdb = build::unmap(u16::try_from(list.len()).ok()?);
            (Again { data_out: Some(Slice::from(list)), ..plain(cdb, offset_bytes) }, None)
        }
        OpKind::WriteZeroes { offset_bytes, length_bytes } => {
            (plain(build::write_same_16(extent(offset_bytes, length_bytes)?, false, true), offset_bytes), None)
        }
    })
}

/// What to do about an answer.
pub(crate) enum Verdict {
    /// Tell the caller.
    Tell(Result<OpOutput, VolumeError>),
    /// Give the command again: the device told something else first, or had no room.
    Again(Option<Frame>),
}

/// Reads an answer.
pub(crate) fn verdict(again: &Again, answer: &Answer, data_in: Option<Frame>, data_in_bytes: usize) -> Verdict {
    match answer.status {
        Status::Good | Status::ConditionMet if again.is_read => match data_in {
            Some(frame) if frame.len() == data_in_bytes => Verdict::Tell(Ok(OpOutput::Frame(frame))),
            _ => Verdict::Tell(Err(unexpected("a read came back with too little data"))),
        },
        Status::Good | Status::ConditionMet => Verdict::Tell(Ok(OpOutput::Done)),
        Status::Busy | Status::TaskSetFull => Verdict::Again(data_in),
        Status::ReservationConflict => Verdict::Tell(Err(VolumeError::Reserved)),
        Status::TaskAborted => Verdict::Tell(Err(unexpected("another client has aborted the command"))),
        Status::CheckCondition => match Sense::parse(&answer.sense) {
            Some(sense) if sense.key == SenseKey::UnitAttention => Verdict::Again(data_in),
            Some(sense) => Verdict::Tell(Err(failure(again, &sense))),
            None => Verdict::Tell(Err(unexpected("a failure without sense data"))),
        },
    }
}

fn failure(again: &Again, sense: &Sense) -> VolumeError {
    match (sense.key, sense.additional) {
        (SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT) => VolumeError::NoSpace,
        (SenseKey::DataProtect, _) => VolumeError::ReadOnly,
        (SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE) => VolumeError::Unsupported,
        (SenseKey::MediumError | SenseKey::HardwareError | SenseKey::NotReady, _) => {
            VolumeError::Medium { offset_bytes: again.offset_bytes, sense: sense.to_string().into() }
        }
        _ => VolumeError::Protocol { what: sense.to_string().into() },
    }
}

fn unexpected(what: &str) -> VolumeError {
    VolumeError::Protocol { what: Arc::from(what) }
}
