//! What a request says of itself before it is executed.

use sanwire_ata::{Command, Registers, TaskFile, error};

use super::batch::sectors;
use super::types::{Answer, Request};
use crate::wire::pdu::SECTOR_BYTES;

impl Request {
    /// Its registers, if it is a command of an ATA disk.
    pub(super) fn task_file(&self) -> Option<TaskFile> {
        match self {
            Request::Ata { task_file, .. } => Some(*task_file),
            Request::Scsi { .. } => None,
        }
    }

    /// How much it writes.
    pub(super) fn data_bytes(&self) -> u64 {
        let (Request::Ata { data, .. } | Request::Scsi { data, .. }) = self;
        data.iter().map(|piece| piece.len() as u64).sum()
    }

    /// How much its answer may have.
    pub(super) fn answer_bytes(&self) -> u64 {
        match self {
            Request::Scsi { room_bytes, .. } => (*room_bytes).into(),
            Request::Ata { task_file, data } if data.is_empty() => match Command::parse(task_file) {
                Some(Command::Read { .. }) => sectors_bytes(task_file),
                Some(Command::Flush) => 0,
                // Whatever it is, it tells something about the disk.
                _ => SECTOR_BYTES as u64,
            },
            Request::Ata { .. } => 0,
        }
    }

    /// The answer to a command that is not executed: it reads more than a transfer may have, or writes not as much as it says.
    pub(super) fn refusal(&self, transfer_max_bytes: u32) -> Option<Answer> {
        let Request::Ata { task_file, .. } = self else { return None };
        let is_good = match Command::parse(task_file) {
            Some(Command::Read { .. }) => {
                self.data_bytes() == 0 && sectors_bytes(task_file) <= transfer_max_bytes.into()
            }
            Some(Command::Write { .. }) => self.data_bytes() == sectors_bytes(task_file),
            _ => true,
        };
        let registers = (!is_good).then(|| Registers::failure(task_file, error::ABRT))?;
        Some(Answer::Ata { registers, data: None })
    }
}

fn sectors_bytes(task_file: &TaskFile) -> u64 {
    sectors(task_file) * SECTOR_BYTES as u64
}

#[cfg(test)]
mod tests {
    use sanwire_ata::{DEVICE_LBA, command_code};

    use super::*;

    fn request(code: u8, count: u16, sectors: usize) -> Request {
        let task_file = TaskFile::long(code, 0, count, [0; 6], DEVICE_LBA);
        let data = if sectors == 0 { Vec::new() } else { vec![vec![0; sectors * 512].into()] };
        Request::Ata { task_file, data }
    }

    #[test]
    fn commands_whose_data_is_not_as_long_as_they_say_and_long_reads_are_not_executed() {
        let (read, write) = (command_code::READ_DMA_EXT, command_code::WRITE_DMA_EXT);
        let refused = |request: Request| request.refusal(8 * 512).is_some();
        assert!(!refused(request(read, 8, 0)) && refused(request(read, 9, 0)) && refused(request(read, 0, 0)));
        assert!(refused(request(read, 1, 1)));
        assert!(!refused(request(write, 2, 2)));
        assert!(refused(request(write, 2, 0)) && refused(request(write, 2, 1)) && refused(request(write, 1, 2)));
        assert!(!refused(request(command_code::FLUSH_CACHE_EXT, 0, 0)));
    }

    #[test]
    fn answers_are_as_long_as_commands_say() {
        let scsi = Request::Scsi { cdb: vec![0x12; 6], data: Vec::new(), room_bytes: 96 };
        let ata = [
            request(command_code::READ_DMA_EXT, 3, 0),
            request(command_code::WRITE_DMA_EXT, 3, 3),
            request(command_code::FLUSH_CACHE_EXT, 0, 0),
            request(command_code::IDENTIFY_DEVICE, 0, 0),
        ];
        assert_eq!(scsi.answer_bytes(), 96);
        assert_eq!(ata.map(|request| request.answer_bytes()), [3 * 512, 0, 0, 512]);
    }
}
