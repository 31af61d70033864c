//! EXTENDED COPY (LID1) as an initiator gives it: one run of blocks from one unit to another.

use super::{BLOCK_TO_BLOCK, IDENTIFICATION};

/// A run of blocks to be copied within one copy manager, between units of one block length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockCopy {
    /// The NAA name of the unit to copy from.
    pub source_naa: u64,
    /// From which block on.
    pub source_lba: u64,
    /// The NAA name of the unit to copy to.
    pub destination_naa: u64,
    /// To which block on.
    pub destination_lba: u64,
    /// How many blocks.
    pub blocks: u16,
    /// Their length.
    pub block_bytes: u32,
}

impl BlockCopy {
    /// The parameter list (SPC-4 6.4): no results are kept of it (LIST ID USAGE 11b), so that it may be given again.
    #[must_use]
    pub fn to_parameters(&self) -> Vec<u8> {
        const TARGETS_BYTES: u16 = 2 * 32;
        const SEGMENT_BYTES: u32 = 28;
        let mut list = vec![0, 0b11 << 3];
        list.extend(TARGETS_BYTES.to_be_bytes());
        list.extend([0; 4]);
        list.extend(SEGMENT_BYTES.to_be_bytes());
        list.extend([0; 4]);
        list.extend(self.target(self.source_naa));
        list.extend(self.target(self.destination_naa));
        // DC 0: so many blocks of the source. The targets by their places in the list.
        list.extend([BLOCK_TO_BLOCK, 0, 0, 0x18, 0, 0, 0, 1, 0, 0]);
        list.extend(self.blocks.to_be_bytes());
        list.extend(self.source_lba.to_be_bytes());
        list.extend(self.destination_lba.to_be_bytes());
        list
    }

    /// An identification descriptor: a designator of the unit, binary, NAA, of 8 bytes.
    fn target(&self, naa: u64) -> [u8; 32] {
        let mut target = [0; 32];
        target[..8].copy_from_slice(&[IDENTIFICATION, 0, 0, 0, 1, 3, 0, 8]);
        target[8..16].copy_from_slice(&naa.to_be_bytes());
        target[29..].copy_from_slice(&self.block_bytes.to_be_bytes()[1..]);
        target
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::{CopyAmount, CopyList, CopySegment};
    use crate::vpd::Designation;

    #[test]
    fn a_copy_manager_reads_what_was_written() {
        let copy = BlockCopy {
            source_naa: 0x3000_0000_0000_0001,
            source_lba: 7,
            destination_naa: 0x3000_0000_0000_0002,
            destination_lba: 1 << 40,
            blocks: 0xffff,
            block_bytes: 4096,
        };
        let read = CopyList::parse(&copy.to_parameters()).unwrap();
        assert_eq!(read.list_id, None);
        let names: Vec<_> = read.targets.iter().map(|target| Designation::of(&target.designator)).collect();
        assert_eq!(names, [copy.source_naa, copy.destination_naa].map(|naa| Some(Designation::Naa(naa))));
        assert!(read.targets.iter().all(|target| (target.device_type, target.block_bytes) == (0, 4096)));
        let amount = CopyAmount::SourceBlocks(0xffff);
        let segment = CopySegment { source: 0, destination: 1, source_lba: 7, destination_lba: 1 << 40, amount };
        assert_eq!(read.segments, [segment]);
    }
}
