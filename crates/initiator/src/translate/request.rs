//! Operations as commands: each in one, or in parts where a unit or its server takes less at once.

use sanwire_buffer::{Frame, Slice};
use sanwire_core::Lun;
use sanwire_scsi::copy::BlockCopy;
use sanwire_scsi::{Cdb, Extent, build, unmap_parameters};

use crate::queue::OpKind;
use crate::session::Order;

/// Room for the answer to GET LBA STATUS: a header and 63 runs.
const LBA_STATUS_BYTES: u32 = 8 + 63 * 16;

/// Which commands a unit knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CdbSize {
    /// Those of ten bytes.
    Ten,
    /// Those of sixteen.
    Sixteen,
}

impl CdbSize {
    /// The most blocks that one command can say.
    pub(crate) fn blocks_max(self) -> u64 {
        match self {
            CdbSize::Ten => u16::MAX.into(),
            CdbSize::Sixteen => u32::MAX.into(),
        }
    }

    /// What the shorter form cannot say is said in the longer one: the unit refuses it.
    fn read(self, extent: Extent) -> Cdb {
        let short = if self == CdbSize::Ten { build::read_10(extent) } else { None };
        short.unwrap_or_else(|| build::read_16(extent))
    }

    fn write(self, extent: Extent, is_stable: bool) -> Cdb {
        let short = if self == CdbSize::Ten { build::write_10(extent, is_stable) } else { None };
        short.unwrap_or_else(|| build::write_16(extent, is_stable))
    }

    pub(crate) fn flush(self) -> Cdb {
        match self {
            CdbSize::Ten => build::synchronize_cache_10(),
            CdbSize::Sixteen => build::synchronize_cache_16(Extent { lba: 0, blocks: 0 }),
        }
    }
}

/// How much one command may be about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// With its data, in bytes.
    pub(crate) transfer_max_bytes: u32,
    /// Without it: a discard, or a zeroing; in bytes.
    pub(crate) range_max_bytes: u64,
}

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    Read,
    /// What it writes `is_stable` at once, or not before a flush.
    Write {
        is_stable: bool,
    },
    Flush,
    Discard,
    WriteZeroes,
    /// The server copies them from another of its volumes.
    Copy(CopySource),
    /// Tells which blocks have space.
    Allocation,
    /// Has the device tell what is new.
    Check,
}

/// Where the blocks of a copy come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CopySource {
    /// The NAA names of the unit there, and of that to which they go.
    naa: [u64; 2],
    lba: u64,
}

/// Blocks of one copy at the most: the device does it piece by piece, but nobody sees how far it is before it is over.
const COPY_MAX_BYTES: u64 = 4 << 20;

/// An operation, or a part of one: what a command is made of, however often it is given.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) task: Task,
    form: CdbSize,
    pub(crate) block_bytes: u32,
    pub(crate) lba: u64,
    pub(crate) blocks: u64,
    /// Of a write.
    data: Option<Slice>,
}

impl Request {
    /// The request of an operation, and the frame for the data of its answer. Offsets and lengths were checked by the volume.
    pub(crate) fn new(form: CdbSize, block_bytes: u32, kind: OpKind) -> (Self, Option<Frame>) {
        let of = |task, offset_bytes: u64, length_bytes: u64, data| {
            let block = u64::from(block_bytes.max(1));
            Request { task, form, block_bytes, lba: offset_bytes / block, blocks: length_bytes / block, data }
        };
        match kind {
            OpKind::Read { offset_bytes, buffer } => {
                (of(Task::Read, offset_bytes, buffer.len() as u64, None), Some(buffer))
            }
            OpKind::Write { offset_bytes, data, stable } => {
                let length_bytes = data.len() as u64;
                (of(Task::Write { is_stable: stable }, offset_bytes, length_bytes, Some(data)), None)
            }
            OpKind::Flush => (of(Task::Flush, 0, 0, None), None),
            OpKind::Check => (of(Task::Check, 0, 0, None), None),
            OpKind::Discard { offset_bytes, length_bytes } => {
                (of(Task::Discard, offset_bytes, length_bytes, None), None)
            }
            OpKind::WriteZeroes { offset_bytes, length_bytes } => {
                (of(Task::WriteZeroes, offset_bytes, length_bytes, None), None)
            }
            OpKind::Copy { naa, source_offset_bytes, offset_bytes, length_bytes } => {
                let lba = source_offset_bytes / u64::from(block_bytes.max(1));
                (of(Task::Copy(CopySource { naa, lba }), offset_bytes, length_bytes, None), None)
            }
            OpKind::Allocation { offset_bytes, length_bytes } => {
                let room = Frame::from(vec![0; LBA_STATUS_BYTES as usize]);
                (of(Task::Allocation, offset_bytes, length_bytes, None), Some(room))
            }
        }
    }

    /// The command, with the frame for its answer's data.
    pub(crate) fn order(self, lun: Lun, data_in: Option<Frame>) -> Order {
        let extent = Extent { lba: self.lba, blocks: u32::try_from(self.blocks).unwrap_or(u32::MAX) };
        let (cdb, data_out) = match self.task {
            Task::Read => (self.form.read(extent), None),
            Task::Write { is_stable } => (self.form.write(extent, is_stable), self.data),
            Task::Flush => (self.form.flush(), None),
            Task::Check => (build::test_unit_ready(), None),
            Task::Discard => {
                let list = unmap_parameters(&[extent]).unwrap_or_default();
                (build::unmap(list.len() as u16), Some(Slice::from(list)))
            }
            // The block of zeroes is sent: devices older than SBC-4 do not know that none means zeroes, and not all of them
            // say so.
            Task::WriteZeroes => {
                (build::write_same_16(extent, false, false), Some(Slice::from(vec![0; self.block_bytes as usize])))
            }
            Task::Copy(source) => {
                let list = self.block_copy(source).to_parameters();
                (build::extended_copy(list.len() as u32), Some(Slice::from(list)))
            }
            Task::Allocation => (build::get_lba_status(self.lba, LBA_STATUS_BYTES), None),
        };
        Order { data_out, data_in, ..Order::of_disk(lun, cdb) }
    }

    fn block_copy(&self, source: CopySource) -> BlockCopy {
        let [source_naa, destination_naa] = source.naa;
        BlockCopy {
            source_naa,
            source_lba: source.lba,
            destination_naa,
            destination_lba: self.lba,
            blocks: u16::try_from(self.blocks).unwrap_or(u16::MAX),
            block_bytes: self.block_bytes,
        }
    }

    /// Bytes that are written with it, not counting what is made anew each time.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data.as_ref().map_or(0, |data| data.len() as u64)
    }

    pub(crate) fn offset_bytes(&self) -> u64 {
        self.lba * u64::from(self.block_bytes)
    }

    /// It is about blocks without their data: devices may not know it, or not in this form.
    pub(crate) fn is_range(&self) -> bool {
        matches!(self.task, Task::Discard | Task::WriteZeroes | Task::Copy(_) | Task::Allocation)
    }

    /// Its blocks have a content of its own when it is done.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.task, Task::Write { .. } | Task::WriteZeroes | Task::Copy(_))
    }

    fn bytes(&self, blocks: u64) -> usize {
        (blocks * u64::from(self.block_bytes)) as usize
    }

    fn blocks_max(&self, limits: Limits) -> u64 {
        let max_bytes = match self.task {
            Task::Read | Task::Write { .. } => limits.transfer_max_bytes.into(),
            Task::Discard | Task::WriteZeroes => limits.range_max_bytes,
            Task::Copy(_) => COPY_MAX_BYTES.min(u64::from(u16::MAX) * u64::from(self.block_bytes)),
            Task::Flush | Task::Allocation | Task::Check => return u64::MAX,
        };
        (max_bytes / u64::from(self.block_bytes.max(1))).clamp(1, u32::MAX.into())
    }

    fn part(&self, from: u64, blocks: u64) -> Request {
        let data = self.data.as_ref().map(|data| data.slice(self.bytes(from)..self.bytes(from + blocks)));
        let task = match self.task {
            Task::Copy(source) => Task::Copy(CopySource { lba: source.lba + from, ..source }),
            task => task,
        };
        Request { task, lba: self.lba + from, blocks, data, ..*self }
    }

    /// Whether another one is about some of its blocks.
    pub(crate) fn overlaps(&self, other: &Request) -> bool {
        self.lba < other.lba + other.blocks && other.lba < self.lba + self.blocks
    }

    /// What of it is outside of another one, in parts; `None` if that is all of it.
    pub(crate) fn outside(&self, other: &Request) -> Option<Vec<Request>> {
        let from = other.lba.saturating_sub(self.lba).min(self.blocks);
        let to = (other.lba + other.blocks).saturating_sub(self.lba).min(self.blocks);
        let parts = [(0, from), (to, self.blocks - to)].into_iter().filter(|(_, blocks)| *blocks > 0);
        (from < to).then(|| parts.map(|(from, blocks)| self.part(from, blocks)).collect())
    }
}

/// How far a request is: it is given in parts, if it must be, one after the other.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Progress {
    done_blocks: u64,
    given_blocks: u64,
}

impl Progress {
    /// Gives what comes next, as much of it as goes at once.
    pub(crate) fn give(&mut self, request: &Request, limits: Limits) {
        self.given_blocks = (request.blocks - self.done_blocks).min(request.blocks_max(limits));
    }

    /// What was given last.
    pub(crate) fn part(&self, request: &Request) -> Request {
        if self.is_all_of(request) { request.clone() } else { request.part(self.done_blocks, self.given_blocks) }
    }

    /// How much of the request is done, in bytes.
    pub(crate) fn done_bytes(&self, request: &Request) -> usize {
        request.bytes(self.done_blocks)
    }

    /// How much was given last, in bytes.
    pub(crate) fn given_bytes(&self, request: &Request) -> usize {
        request.bytes(self.given_blocks)
    }

    /// Whether what was given last is the whole request.
    pub(crate) fn is_all_of(&self, request: &Request) -> bool {
        self.given_blocks == request.blocks
    }

    /// Whether what was given last is more than goes at once.
    pub(crate) fn exceeds(&self, request: &Request, limits: Limits) -> bool {
        self.given_blocks > request.blocks_max(limits)
    }

    /// What was given last is done: whether that was the end of the request.
    pub(crate) fn done(&mut self, request: &Request) -> bool {
        self.done_blocks += std::mem::take(&mut self.given_blocks);
        self.done_blocks >= request.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_are_sent_as_one_block_that_every_device_understands() {
        let zeroes = OpKind::WriteZeroes { offset_bytes: 512, length_bytes: 4096 };
        let order = Request::new(CdbSize::Sixteen, 512, zeroes).0.order(Lun::default(), None);
        assert_eq!(order.cdb, build::write_same_16(Extent { lba: 1, blocks: 8 }, false, false));
        assert_eq!(order.data_out.as_deref(), Some(&[0; 512][..]));
    }

    #[test]
    fn what_is_outside_of_another_request_has_its_own_blocks() {
        let write = |lba: u64, blocks: u64| {
            let data: Vec<u8> = (lba..lba + blocks).flat_map(|lba| [lba as u8; 512]).collect();
            let kind = OpKind::Write { offset_bytes: lba * 512, data: Slice::from(data), stable: false };
            Request::new(CdbSize::Sixteen, 512, kind).0
        };
        let left = |lba, blocks| {
            let parts = write(10, 5).outside(&write(lba, blocks))?;
            assert!(parts.iter().all(|part| part.data.as_deref() == write(part.lba, part.blocks).data.as_deref()));
            Some(parts.into_iter().map(|part| (part.lba, part.blocks)).collect::<Vec<_>>())
        };
        assert_eq!((left(0, 10), left(15, 3), left(20, 1)), (None, None, None));
        assert_eq!((left(10, 5), left(0, 50)), (Some(vec![]), Some(vec![])));
        assert_eq!((left(8, 4), left(13, 9)), (Some(vec![(12, 3)]), Some(vec![(10, 3)])));
        assert_eq!(left(11, 2), Some(vec![(10, 1), (13, 2)]));
    }

    #[test]
    fn a_copy_is_given_in_parts_of_both_volumes() {
        let (source_offset_bytes, offset_bytes, length_bytes) = (8 * 512, 3 * 512, COPY_MAX_BYTES + 512);
        let parts = commands(OpKind::Copy { naa: [1, 2], source_offset_bytes, offset_bytes, length_bytes }, 1, 1);
        let blocks = COPY_MAX_BYTES / 512;
        let copy = |done: u64, blocks: u64| {
            let (source_lba, destination_lba, blocks) = (8 + done, 3 + done, blocks as u16);
            BlockCopy { source_naa: 1, source_lba, destination_naa: 2, destination_lba, blocks, block_bytes: 512 }
        };
        for (part, copy) in parts.iter().zip([copy(0, blocks), copy(blocks, 1)]) {
            assert_eq!(part.data_out.as_deref(), Some(&copy.to_parameters()[..]));
            assert_eq!(part.cdb, build::extended_copy(copy.to_parameters().len() as u32));
        }
        assert_eq!(parts.len(), 2);
    }

    /// The commands of a request of which so many blocks go at once.
    fn commands(kind: OpKind, transfer_blocks: u32, range_blocks: u64) -> Vec<Order> {
        let limits = Limits { transfer_max_bytes: transfer_blocks * 512, range_max_bytes: range_blocks * 512 };
        let ((request, _), mut progress) = (Request::new(CdbSize::Sixteen, 512, kind), Progress::default());
        let mut commands = Vec::new();
        loop {
            progress.give(&request, limits);
            assert!(!progress.exceeds(&request, limits));
            commands.push(progress.part(&request).order(Lun::default(), None));
            if progress.done(&request) {
                return commands;
            }
        }
    }

    #[test]
    fn parts_are_what_the_whole_is_and_no_larger_than_goes_at_once() {
        let data = || Slice::from((0..5 * 512).map(|at| (at / 512) as u8).collect::<Vec<u8>>());
        let write = |stable| OpKind::Write { offset_bytes: 7 * 512, data: data(), stable };
        for stable in [false, true] {
            let parts = commands(write(stable), 2, 1);
            let extents = [(7, 2), (9, 2), (11, 1)].map(|(lba, blocks)| Extent { lba, blocks });
            assert!(parts.iter().map(|part| part.cdb).eq(extents.map(|extent| build::write_16(extent, stable))));
            let sent: Vec<u8> = parts.iter().flat_map(|part| part.data_out.as_deref().unwrap().to_vec()).collect();
            assert_eq!(sent, *data());
        }
        assert_eq!(commands(write(false), 5, 1).len(), 1);
        assert_eq!(commands(write(false), 0, 1).len(), 5, "a block goes in any case");
        let range = (0, 3 * 512);
        let zeroes = OpKind::WriteZeroes { offset_bytes: range.0, length_bytes: range.1 };
        assert_eq!(commands(zeroes, 1, 2).len(), 2);
        assert_eq!(commands(OpKind::Discard { offset_bytes: range.0, length_bytes: range.1 }, 1, 3).len(), 1);
        assert_eq!(commands(OpKind::Allocation { offset_bytes: range.0, length_bytes: range.1 }, 1, 1).len(), 1);
        assert_eq!(commands(OpKind::Flush, 1, 1).len(), 1);
        assert_eq!(commands(OpKind::Check, 1, 1).len(), 1);
    }
}
