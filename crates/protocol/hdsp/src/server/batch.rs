//! Writes that are held to go to the disk together (the S bit, and M).
//!
//! The paper answers a write as soon as it is in memory, and may lose it. Here a write is answered when the run that it belongs to is in
//! the store; so holding it back costs its client time, and nothing else.

use std::time::Duration;

use sanwire_ata::{Command, DEVICE_LBA, TaskFile, command_code};
use sanwire_buffer::Slice;
use sanwire_core::Instant;

use super::types::Request;

/// What is held is written after so long, whatever comes.
const HOLD: Duration = Duration::from_millis(5);

/// Sectors of one write, at the most.
const SECTORS_MAX: u64 = 65_536;

/// A write of a client.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) number: u16,
    pub(super) task_file: TaskFile,
    pub(super) sectors: u64,
    pub(super) data: Vec<Slice>,
    pub(super) packets: u32,
}

/// Writes of neighbouring sectors, as one.
#[derive(Debug)]
pub(super) struct Run {
    /// Those that are in it: number, command, sectors.
    pub(super) members: Vec<(u16, TaskFile, u64)>,
    lba: u64,
    sectors: u64,
    data: Vec<Slice>,
}

/// What is held.
#[derive(Debug, Default)]
pub(super) struct Batch {
    held: Vec<Write>,
    packets: u32,
    since: Option<Instant>,
}

/// The sectors of a command that only reads or writes them, where the command says no more than that.
pub(crate) fn sectors(task_file: &TaskFile) -> u64 {
    match (task_file.count, task_file.is_long) {
        (0, true) => SECTORS_MAX,
        (0, false) => 256,
        (count, _) => count.into(),
    }
}

/// Whether a write may be one with others: it says nothing but where and what.
pub(super) fn is_plain_write(task_file: &TaskFile) -> bool {
    matches!(Command::parse(task_file), Some(Command::Write { is_multiple: false, is_stable: false, .. }))
}

impl Batch {
    /// Whether a command has to do with these sectors.
    pub(super) fn touches(&self, lba: u64, sectors: u64) -> bool {
        self.held.iter().any(|write| write.task_file.lba < lba + sectors && lba < write.task_file.lba + write.sectors)
    }

    /// Holds a write. True: what is held is to be written now.
    pub(super) fn hold(&mut self, write: Write, sync: bool, packets_max: u32, now: Instant) -> bool {
        self.packets += write.packets;
        self.since.get_or_insert(now);
        self.held.push(write);
        sync || self.packets >= packets_max
    }

    /// When what is held is to be written, whatever comes.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.since.map(|since| since + HOLD)
    }

    /// What was held: neighbours as one.
    pub(super) fn release(&mut self, transfer_max_bytes: u32) -> Vec<Run> {
        let Batch { mut held, .. } = std::mem::take(self);
        held.sort_by_key(|write| write.task_file.lba);
        let sectors_max = (u64::from(transfer_max_bytes) / 512).min(SECTORS_MAX);
        let mut runs: Vec<Run> = Vec::new();
        for write in held {
            match runs.last_mut() {
                Some(run) if run.goes_on_with(&write, sectors_max) => run.join(write),
                _ => runs.push(Run::of(write)),
            }
        }
        runs
    }
}

impl Run {
    fn of(write: Write) -> Self {
        let Write { number, task_file, sectors, data, .. } = write;
        Run { members: vec![(number, task_file, sectors)], lba: task_file.lba, sectors, data }
    }

    fn goes_on_with(&self, write: &Write, sectors_max: u64) -> bool {
        write.task_file.lba == self.lba + self.sectors && self.sectors + write.sectors <= sectors_max
    }

    fn join(&mut self, write: Write) {
        self.members.push((write.number, write.task_file, write.sectors));
        self.sectors += write.sectors;
        self.data.extend(write.data);
    }

    /// What is to be executed: the command as it came where it is alone.
    pub(super) fn request(&mut self) -> Request {
        let data = std::mem::take(&mut self.data);
        let task_file = match self.members[..] {
            [(_, only, _)] => only,
            _ => {
                let [b0, b1, b2, b3, b4, b5, ..] = self.lba.to_le_bytes();
                let lba = [b0, b1, b2, b3, b4, b5];
                // A count of 0 stands for the most that there can be.
                TaskFile::long(command_code::WRITE_DMA_EXT, 0, self.sectors as u16, lba, DEVICE_LBA)
            }
        };
        Request::Ata { task_file, data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn write(number: u16, lba: u8, sectors: u64) -> Write {
        let task_file = TaskFile::short(0xca, 0, sectors as u8, [lba, 0, 0], DEVICE_LBA);
        Write { number, task_file, sectors, data: vec![vec![0u8; sectors as usize * 512].into()], packets: 1 }
    }

    fn numbers(run: &Run) -> Vec<u16> {
        run.members.iter().map(|(number, ..)| *number).collect()
    }

    #[test]
    fn neighbours_become_one_write_whatever_order_they_came_in() {
        let mut batch = Batch::default();
        for (number, lba) in [(0, 20), (1, 12), (2, 10), (3, 14)] {
            assert!(!batch.hold(write(number, lba, 2), false, 256, NOW));
        }
        assert_eq!(batch.due_at(), Some(NOW + HOLD));
        assert!(batch.touches(11, 1) && !batch.touches(16, 4));
        let mut runs = batch.release(1 << 20);
        assert_eq!(runs.iter().map(numbers).collect::<Vec<_>>(), [vec![2, 1, 3], vec![0]]);
        let Request::Ata { task_file, data } = runs[0].request() else { panic!("a write") };
        assert_eq!((task_file.command, task_file.lba, task_file.count, data.len()), (0x35, 10, 6, 3));
        let Request::Ata { task_file, .. } = runs[1].request() else { panic!("a write") };
        assert_eq!(task_file, write(0, 20, 2).task_file, "as it came");
        assert_eq!(batch.due_at(), None);
    }

    #[test]
    fn s_and_m_end_a_run_and_no_run_is_longer_than_a_transfer() {
        let mut batch = Batch::default();
        assert!(!batch.hold(write(0, 0, 2), false, 2, NOW));
        assert!(batch.hold(write(1, 2, 2), false, 2, NOW), "M");
        assert_eq!(batch.release(1024).len(), 2);
        assert!(batch.hold(write(2, 4, 2), true, 256, NOW), "S");
    }

    #[test]
    fn only_writes_that_say_no_more_are_held() {
        let long = |command| TaskFile::long(command, 0, 8, [0; 6], DEVICE_LBA);
        assert!(is_plain_write(&long(0x35)) && is_plain_write(&write(0, 0, 1).task_file));
        for other in [long(0x3d), long(0x39), long(0x25), long(0xea)] {
            assert!(!is_plain_write(&other), "{other:?}");
        }
    }
}
