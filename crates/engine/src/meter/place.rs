//! Where in its volume a command works, as far as its block says.

use std::ops::Range;

use sanwire_scsi::Cdb;
use sanwire_scsi::operation_code as code;

use super::Operation;

/// The blocks of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The first of them.
    pub lba_blocks: u64,
    /// How many.
    pub blocks: u32,
}

impl Place {
    /// That of a command that reads, writes or compares; of others the data says it.
    pub(super) fn of(operation: Operation, cdb: &Cdb) -> Option<Place> {
        if !matches!(operation, Operation::Read | Operation::Write | Operation::Compare) {
            return None;
        }
        // SPC-5 4.2: the upper bits of the code say how long the block is, and SBC-4 has its fields there.
        let (lba, blocks) = match (cdb.operation_code(), cdb.operation_code() >> 5) {
            (code::COMPARE_AND_WRITE, _) => (2..10, 13..14),
            (code::WRITE_ATOMIC_16, _) => (2..10, 12..14),
            (code::READ_CD | code::READ_CD_MSF, _) => return None,
            (_, 0) => return Place::of_six(cdb),
            (_, 1 | 2) => (2..6, 7..9),
            (_, 4) => (2..10, 10..14),
            (_, 5) => (2..6, 6..10),
            _ => return None,
        };
        let number =
            |at: Range<usize>| Some(cdb.get(at)?.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte)));
        Some(Place { lba_blocks: number(lba)?, blocks: number(blocks)? as u32 })
    }

    /// SBC-4 5.9: 21 bits, and 0 means 256 blocks.
    fn of_six(cdb: &Cdb) -> Option<Place> {
        let [_, high, middle, low, blocks, _] = *cdb.get(..6)?.first_chunk::<6>()?;
        let lba = [0, high & 0x1f, middle, low];
        let blocks = if blocks == 0 { 256 } else { u32::from(blocks) };
        Some(Place { lba_blocks: u64::from(u32::from_be_bytes(lba)), blocks })
    }
}

#[cfg(test)]
mod tests {
    use sanwire_scsi::build;

    use super::*;

    #[test]
    fn the_blocks_of_a_command_are_where_the_standard_has_them() {
        let place = |cdb: &[u8]| {
            let cdb = Cdb::new(cdb).unwrap();
            Place::of(Operation::of(&cdb), &cdb).map(|place| (place.lba_blocks, place.blocks))
        };
        assert_eq!(place(&[0x08, 0xff, 2, 3, 0, 0]), Some((0x1f_0203, 256)), "READ (6)");
        assert_eq!(place(&[0x0a, 0, 0, 9, 7, 0]), Some((9, 7)), "WRITE (6)");
        assert_eq!(place(&[0x28, 0, 0, 1, 0, 2, 0, 1, 4, 0]), Some((0x1_0002, 0x104)), "READ (10)");
        assert_eq!(place(&[0xaa, 0, 0, 0, 0, 5, 0, 1, 0, 0, 0, 0]), Some((5, 0x1_0000)), "WRITE (12)");
        let read = [0x88, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0];
        assert_eq!(place(&read), Some((1 << 32, 3)), "READ (16)");
        assert_eq!(place(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0]), Some((8, 2)), "COMPARE AND WRITE");
        assert_eq!(place(&[0x9c, 0, 0, 0, 0, 0, 0, 0, 0, 8, 9, 9, 0, 4, 0, 0]), Some((8, 4)), "WRITE ATOMIC (16)");
        for other in [build::test_unit_ready().to_vec(), vec![0x42; 10], vec![0x35; 10], vec![0x28, 0, 0]] {
            assert_eq!(place(&other), None, "{other:02x?}");
        }
    }
}
