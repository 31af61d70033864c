//! Commands and answers as the pieces that packets carry. Each says its own place.

use std::ops::Range;

use sanwire_ata::{Registers, TaskFile, status};
use sanwire_buffer::Slices;

use crate::channel::Piece;
use crate::wire::Register;
use crate::wire::pdu::{Fields, Flags, SECTOR_BYTES, Scsi};

/// Status of data before the last piece: the device is ready, and goes on.
const DATA: u8 = status::DRDY | status::DRQ;

/// The parts of so many bytes in which they are sent, one at least.
fn parts(bytes: usize, part_bytes: usize) -> impl ExactSizeIterator<Item = (Range<usize>, Flags)> {
    let count = bytes.div_ceil(part_bytes).max(1);
    (0..count).map(move |index| {
        let range = index * part_bytes..((index + 1) * part_bytes).min(bytes);
        (range, Flags { first: index == 0, last: index + 1 == count, ..Flags::default() })
    })
}

/// A command of an ATA disk, with what it writes.
pub(crate) fn ata_command(
    (number, task_file): (u16, &TaskFile),
    data: Option<&Slices>,
    (data_bytes, sync): (usize, bool),
) -> Vec<Piece> {
    let bytes = data.map_or(0, Slices::len);
    let register = Register {
        feature: task_file.features,
        count: task_file.count,
        code: task_file.command,
        lba: task_file.lba,
        is_long: task_file.is_long,
    };
    let piece = |(range, flags): (Range<usize>, Flags)| {
        let flags = Flags { write: data.is_some(), sync: sync && flags.last, ..flags };
        let mut register = register;
        if data.is_some() {
            register.count = (range.len() / SECTOR_BYTES) as u16;
            register.lba += (range.start / SECTOR_BYTES) as u64;
        }
        ata_piece(number, flags, register, data.map(|data| data.cut(range)))
    };
    parts(bytes, data_bytes).map(piece).collect()
}

fn ata_piece(command: u16, flags: Flags, register: Register, data: Option<sanwire_buffer::Slice>) -> Piece {
    let has_upper = register.is_long && data.is_none();
    let before = if has_upper { register.upper().to_vec() } else { Vec::new() };
    Piece { flags, fields: Fields::Ata(register), command, before, data }
}

/// The answer to a command of an ATA disk, with what it has read.
pub(crate) fn ata_answer(
    (number, task_file): (u16, &TaskFile),
    registers: &Registers,
    data: Option<&Slices>,
    data_bytes: usize,
) -> Vec<Piece> {
    let long = |lba: u64, count: u16| task_file.is_long || Register::needs_long(lba) || count > 0xff;
    let Some(data) = data.filter(|data| registers.is_success() && !data.is_empty()) else {
        let Registers { error, count, status: code, lba, .. } = *registers;
        let register = Register { feature: error.into(), count, code, lba, is_long: long(lba, count) };
        let flags = Flags { first: true, last: true, ..Flags::default() };
        return vec![ata_piece(number, flags, register, None)];
    };
    let piece = |(range, flags): (Range<usize>, Flags)| {
        let lba = task_file.lba + (range.start / SECTOR_BYTES) as u64;
        let code = if flags.last { registers.status | status::DRQ } else { DATA };
        let count = (range.len() / SECTOR_BYTES) as u16;
        let register = Register { feature: 0, count, code, lba, is_long: long(lba, count) };
        ata_piece(number, flags, register, Some(data.cut(range)))
    };
    parts(data.len(), data_bytes).map(piece).collect()
}

/// A command of a SCSI disk: what it writes, or how much it may read.
pub(crate) fn scsi_command(
    (number, cdb): (u16, &[u8]),
    data: Option<&Slices>,
    room_bytes: u32,
    data_bytes: usize,
) -> Vec<Piece> {
    let piece = |(range, flags): (Range<usize>, Flags)| {
        let before = if flags.first { cdb.to_vec() } else { Vec::new() };
        let offset_bytes = if data.is_some() { range.start as u32 } else { room_bytes };
        let flags = Flags { write: data.is_some(), ..flags };
        scsi_piece(number, flags, (before, 0), offset_bytes, data.map(|data| data.cut(range)))
    };
    parts(data.map_or(0, Slices::len), data_bytes).map(piece).collect()
}

/// The answer to a command of a SCSI disk.
pub(crate) fn scsi_answer(
    number: u16,
    (status, sense): (u8, &[u8]),
    data: Option<&Slices>,
    data_bytes: usize,
) -> Vec<Piece> {
    let data = data.filter(|data| !data.is_empty());
    let piece = |(range, flags): (Range<usize>, Flags)| {
        let before = if flags.last { (sense.to_vec(), status) } else { (Vec::new(), 0) };
        scsi_piece(number, flags, before, range.start as u32, data.map(|data| data.cut(range)))
    };
    parts(data.map_or(0, Slices::len), data_bytes).map(piece).collect()
}

fn scsi_piece(
    command: u16,
    flags: Flags,
    (before, status): (Vec<u8>, u8),
    offset_bytes: u32,
    data: Option<sanwire_buffer::Slice>,
) -> Piece {
    let length_bytes = data.as_ref().map_or(0, |data| data.len()) as u16;
    let scsi = Scsi { before_bytes: before.len() as u8, status, length_bytes, offset_bytes };
    Piece { flags, fields: Fields::Scsi(scsi), command, before, data }
}

#[cfg(test)]
mod tests {
    use sanwire_ata::DEVICE_LBA;
    use sanwire_buffer::Slice;

    use super::*;

    fn slices(bytes: usize) -> Slices {
        Slices::from(Slice::from((0..bytes).map(|byte| byte as u8).collect::<Vec<u8>>()))
    }

    fn places(pieces: &[Piece]) -> Vec<(u64, u16, bool, bool)> {
        let place = |piece: &Piece| match piece.fields {
            Fields::Ata(register) => (register.lba, register.count, piece.flags.first, piece.flags.last),
            Fields::Scsi(scsi) => (scsi.offset_bytes.into(), scsi.length_bytes, piece.flags.first, piece.flags.last),
        };
        pieces.iter().map(place).collect()
    }

    #[test]
    fn every_packet_of_a_write_says_which_sectors_it_has() {
        let task_file = TaskFile::long(0x35, 0, 5, [10, 0, 0, 0, 0, 0], DEVICE_LBA);
        let pieces = ata_command((1, &task_file), Some(&slices(5 * 512)), (1024, true));
        assert_eq!(places(&pieces), [(10, 2, true, false), (12, 2, false, false), (14, 1, false, true)]);
        assert_eq!(pieces.iter().map(|piece| piece.flags.sync).collect::<Vec<_>>(), [false, false, true]);
        assert!(pieces.iter().all(|piece| piece.flags.write && piece.before.is_empty()));
    }

    #[test]
    fn a_long_command_without_data_has_the_upper_bytes_of_its_registers() {
        let task_file = TaskFile::long(0x25, 0, 0x0800, [10, 0, 0, 0, 0, 0], DEVICE_LBA);
        let pieces = ata_command((1, &task_file), None, (1024, true));
        assert_eq!((places(&pieces), &pieces[0].before[..]), (vec![(10, 0x0800, true, true)], &[0, 8][..]));
    }

    #[test]
    fn the_last_packet_of_a_read_is_its_status_and_a_failure_has_no_data() {
        let task_file = TaskFile::short(0x20, 0, 3, [0xfe, 0xff, 0xff], DEVICE_LBA);
        let (success, failure) = (Registers::success(&task_file), Registers::failure(&task_file, 0x10));
        let pieces = ata_answer((1, &task_file), &success, Some(&slices(3 * 512)), 1024);
        assert_eq!(places(&pieces), [(0xff_fffe, 2, true, false), (0x100_0000, 1, false, true)], "past 24 bits");
        let codes = pieces.iter().map(|piece| match piece.fields {
            Fields::Ata(register) => (register.code, register.is_long),
            Fields::Scsi(_) => (0, false),
        });
        assert_eq!(codes.collect::<Vec<_>>(), [(0x48, false), (0x58, true)]);
        let pieces = ata_answer((1, &task_file), &failure, Some(&slices(3 * 512)), 1024);
        assert!(pieces.len() == 1 && pieces[0].data.is_none() && pieces[0].flags.last);
    }

    #[test]
    fn a_cdb_is_before_the_first_data_and_sense_data_before_the_last() {
        let pieces = scsi_command((1, &[0x2a; 10]), Some(&slices(1500)), 0, 1024);
        assert_eq!(places(&pieces), [(0, 1024, true, false), (1024, 476, false, true)]);
        assert_eq!(pieces.iter().map(|piece| piece.before.len()).collect::<Vec<_>>(), [10, 0]);
        let pieces = scsi_command((1, &[0x28; 10]), None, 4096, 1024);
        assert_eq!(places(&pieces), [(4096, 0, true, true)], "the room");
        let pieces = scsi_answer(1, (2, &[0x70; 18]), Some(&slices(1500)), 1024);
        assert_eq!(pieces.iter().map(|piece| piece.before.len()).collect::<Vec<_>>(), [0, 18]);
    }
}
