//! A job as an initiator: its commands, and what their ends mean to it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Slices;
use sanwire_core::Lun;
use sanwire_device::{AddError, LogicalUnit, LogicalUnits};
use sanwire_scsi::copy::BlockCopy;
use sanwire_scsi::{AdditionalSense, Cdb, Extent, Reply, Sense, SenseKey, Status, Task, build};

use super::Stop;
use crate::front::copies::{CopySession, Dropped};

/// How often a job looks whether it is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Runs of blocks that are asked for at once.
const RUNS: u32 = 64;

/// The two units of a copy, by the numbers that they have for it.
pub(super) struct Pair {
    pub(super) units: Arc<LogicalUnits>,
    pub(super) block_bytes: u32,
    source_naa: u64,
    far_naa: u64,
    /// Whether there is a third one, of which the source is a snapshot.
    is_watching: bool,
}

/// Why a copy ends whose volume somebody has reserved.
pub(super) const RESERVED: &str = "somebody else has reserved it";

/// Their numbers.
fn source_lun() -> Lun {
    Lun::default()
}

fn far_lun() -> Lun {
    Lun::new(1).unwrap_or_default()
}

fn watched_lun() -> Lun {
    Lun::new(2).unwrap_or_default()
}

impl Pair {
    pub(super) fn new(source: &Arc<LogicalUnit>, far: &Arc<LogicalUnit>) -> Result<Pair, AddError> {
        let units = Arc::new(LogicalUnits::new());
        units.add_shared(source_lun(), Arc::clone(source))?;
        units.add_shared(far_lun(), Arc::clone(far))?;
        let block_bytes = source.store().geometry().block_bytes;
        let [source_naa, far_naa] = [source, far].map(|unit| unit.identity().naa());
        Ok(Pair { units, block_bytes, source_naa, far_naa, is_watching: false })
    }

    /// The same where the source is a snapshot of this unit, which is seen, too.
    pub(super) fn watching(mut self, unit: &Arc<LogicalUnit>) -> Result<Pair, AddError> {
        self.units.add_shared(watched_lun(), Arc::clone(unit))?;
        self.is_watching = true;
        Ok(self)
    }

    /// READ of nothing of the unit of which the source is a snapshot, if it is one: whoever may not read that may not read this.
    pub(super) fn probe(&self) -> Option<Task> {
        let nothing = build::read_16(Extent { lba: 0, blocks: 0 });
        self.is_watching.then(|| task(watched_lun(), nothing, None, 0))
    }

    fn extent(&self, offset_bytes: u64, length_bytes: u64) -> Extent {
        let block_bytes = u64::from(self.block_bytes);
        Extent { lba: offset_bytes / block_bytes, blocks: (length_bytes / block_bytes) as u32 }
    }

    /// EXTENDED COPY of a range to the same place, of at most 65,535 blocks.
    pub(super) fn copy(&self, offset_bytes: u64, length_bytes: u64) -> Task {
        let Extent { lba, blocks } = self.extent(offset_bytes, length_bytes);
        let copy = BlockCopy {
            source_naa: self.source_naa,
            source_lba: lba,
            destination_naa: self.far_naa,
            destination_lba: lba,
            blocks: blocks as u16,
            block_bytes: self.block_bytes,
        };
        let parameters = copy.to_parameters();
        let cdb = build::extended_copy(parameters.len() as u32);
        task(source_lun(), cdb, Some(parameters.into()), 0)
    }

    /// READ of a range of the source.
    pub(super) fn read(&self, offset_bytes: u64, length_bytes: u64) -> Task {
        let cdb = build::read_16(self.extent(offset_bytes, length_bytes));
        task(source_lun(), cdb, None, length_bytes as u32)
    }

    /// VERIFY of the far end by this data (BYTCHK 01b).
    pub(super) fn compare(&self, offset_bytes: u64, data: Slices) -> Task {
        let mut cdb = [0; 16];
        cdb.copy_from_slice(&build::verify_16(self.extent(offset_bytes, data.len() as u64)));
        cdb[1] |= 1 << 1;
        task(far_lun(), Cdb::from(cdb), Some(data), 0)
    }

    /// SYNCHRONIZE CACHE of the far end.
    pub(super) fn flush(&self) -> Task {
        task(far_lun(), build::synchronize_cache_10(), None, 0)
    }

    /// GET LBA STATUS of the source from a place on.
    pub(super) fn runs(&self, offset_bytes: u64) -> Task {
        let bytes = 8 + 16 * RUNS;
        task(source_lun(), build::get_lba_status(self.extent(offset_bytes, 0).lba, bytes), None, bytes)
    }

    /// The runs of an answer to that: where each ends, in bytes, and whether it has space.
    pub(super) fn runs_of(&self, data: &[u8]) -> VecDeque<(u64, bool)> {
        let length = data.get(..4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes) as usize;
        let descriptors = data.get(8..data.len().min(length.saturating_add(4))).unwrap_or_default();
        let run = |descriptor: &[u8; 16]| {
            let [lba @ .., _, _, _, _, _, _, _, _] = *descriptor;
            let blocks = u32::from_be_bytes([descriptor[8], descriptor[9], descriptor[10], descriptor[11]]);
            let end = u64::from_be_bytes(lba).saturating_add(blocks.into());
            (end.saturating_mul(self.block_bytes.into()), descriptor[12] & 0x0f == 0)
        };
        descriptors.as_chunks::<16>().0.iter().map(run).collect()
    }
}

impl Drop for Pair {
    /// What was copied belongs to others, too: it does not know them any more.
    fn drop(&mut self) {
        let numbers: Vec<Lun> = self.units.iter().into_iter().map(|(lun, _)| lun).collect();
        let _ = self.units.change(&numbers, Vec::new());
    }
}

fn task(lun: Lun, cdb: Cdb, data_out: Option<Slices>, data_in_max_bytes: u32) -> Task {
    Task {
        lun: Some(lun),
        cdb,
        data_out,
        tells_residual: false,
        data_in_max_bytes,
        may_share: true,
        piece: None,
        receipts: 0,
    }
}

/// How a command has ended.
#[derive(Debug)]
pub(super) enum End {
    Good(Option<Slices>),
    /// It is to be given again: nothing was done, or something is to be known first.
    Again,
    /// The same, after a while.
    Later,
    /// What is there is not what it was compared with.
    Differs,
    /// The unit does not know the command.
    Unknown,
    Failed(String),
}

impl End {
    pub(super) fn of(reply: Option<Reply>) -> End {
        let Some(reply) = reply else { return End::Failed("it was aborted by somebody else".to_owned()) };
        match reply.status {
            Status::Good | Status::ConditionMet => End::Good(reply.data_in),
            Status::Busy | Status::TaskSetFull => End::Later,
            Status::ReservationConflict => End::Failed(RESERVED.to_owned()),
            Status::TaskAborted => End::Failed("it was aborted by somebody else".to_owned()),
            Status::CheckCondition => match Sense::parse(&reply.sense) {
                Some(sense) => End::of_sense(&sense),
                None => End::Failed("it gives sense data that cannot be read".to_owned()),
            },
        }
    }

    fn of_sense(sense: &Sense) -> End {
        match sense.key {
            SenseKey::Miscompare => End::Differs,
            SenseKey::UnitAttention if sense.additional == AdditionalSense::NOT_READY_TO_READY_CHANGE => {
                End::Failed("its content was replaced".to_owned())
            }
            SenseKey::UnitAttention => End::Again,
            SenseKey::IllegalRequest if sense.additional == AdditionalSense::INVALID_COMMAND_OPERATION_CODE => {
                End::Unknown
            }
            _ => End::Failed(sense.to_string()),
        }
    }
}

/// Waits for the next end, and looks meanwhile whether the job is to end.
pub(super) fn next_end(
    session: &CopySession,
    look: impl Fn() -> Result<(), Stop>,
) -> Result<(u64, Option<Reply>), Stop> {
    loop {
        look()?;
        match session.wait(LOOK_INTERVAL) {
            Ok(Some(ended)) => return Ok(ended),
            Ok(None) => {}
            Err(Dropped) => return Err(Stop::Failed("its session was dropped, or the server ends".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sanwire_device::UnitOptions;
    use sanwire_scsi::Identity;
    use sanwire_store::RamStore;

    use super::*;

    fn pair() -> Pair {
        let unit = |name: &str, number: u8| {
            let store = Arc::new(RamStore::new(1 << 20, 512));
            let identity = Identity::new(name, [number; 16]).unwrap();
            Arc::new(LogicalUnit::new(identity, store, UnitOptions::default()).unwrap())
        };
        Pair::new(&unit("source", 1), &unit("far", 2)).unwrap()
    }

    #[test]
    fn runs_are_read_as_far_as_they_are_there() {
        let pair = pair();
        let run = |lba: u64, blocks: u32, state: u8| {
            [&lba.to_be_bytes()[..], &blocks.to_be_bytes(), &[state, 0, 0, 0]].concat()
        };
        let answer = [&(4 + 32_u32).to_be_bytes()[..], &[0; 4], &run(0, 8, 0), &run(8, 16, 1)].concat();
        assert_eq!(pair.runs_of(&answer), [(4096, true), (12288, false)]);
        assert_eq!(pair.runs_of(&answer[..30]), [(4096, true)]);
        assert!(pair.runs_of(&[]).is_empty() && pair.runs_of(&[0xff; 8]).is_empty());
    }

    #[test]
    fn an_attention_is_no_failure_but_other_content_is() {
        let sense = |key, additional| {
            let sense = Sense::new(key, additional).to_fixed();
            End::of(Some(Reply { sense, ..Reply::bare(Status::CheckCondition) }))
        };
        let attention = SenseKey::UnitAttention;
        let changed = AdditionalSense::NOT_READY_TO_READY_CHANGE;
        assert!(matches!(sense(attention, AdditionalSense::INVALID_COMMAND_OPERATION_CODE), End::Again));
        assert!(matches!(sense(attention, changed), End::Failed(_)));
        let unknown = sense(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
        assert!(matches!(unknown, End::Unknown));
        assert!(matches!(End::of(None), End::Failed(_)));
        assert!(matches!(End::of(Some(Reply::bare(Status::Busy))), End::Later));
    }
}
