//! The data of DATA SET MANAGEMENT with TRIM (ACS-3): ranges of eight bytes, in blocks of 512.

use sanwire_scsi::Extent;

/// A block of ranges, in bytes, whatever the sectors of the disk have.
pub const BLOCK_BYTES: usize = 512;

const ENTRY_BYTES: usize = 8;

/// The ranges, in their order; an entry without sectors is none.
pub fn ranges(data: &[u8]) -> impl Iterator<Item = Extent> {
    let entries = data.as_chunks::<ENTRY_BYTES>().0.iter();
    let extent = |entry: &[u8; ENTRY_BYTES]| {
        let entry = u64::from_le_bytes(*entry);
        Extent { lba: entry & 0xffff_ffff_ffff, blocks: (entry >> 48) as u32 }
    };
    entries.map(extent).filter(|range| range.blocks > 0)
}

/// The data that has these ranges trimmed, in whole blocks. A range of more than 65,535 sectors takes several entries.
#[must_use]
pub fn parameters(ranges: &[Extent]) -> Vec<u8> {
    let mut data = Vec::new();
    for range in ranges {
        let (mut lba, mut left) = (range.lba, range.blocks);
        while left > 0 {
            let sectors = left.min(0xffff);
            data.extend((lba & 0xffff_ffff_ffff | u64::from(sectors) << 48).to_le_bytes());
            (lba, left) = (lba + u64::from(sectors), left - sectors);
        }
    }
    data.resize(data.len().next_multiple_of(BLOCK_BYTES), 0);
    data
}

/// The ranges of a disk of so many sectors, those that touch put together; `Err` has the first sector that the disk does not have.
///
/// # Errors
/// A range reaches past the end: then none of them is to be trimmed.
pub fn checked(data: &[u8], disk_sectors: u64) -> Result<Vec<Extent>, u64> {
    let mut list: Vec<Extent> = Vec::new();
    for range in ranges(data) {
        let end = range.lba + u64::from(range.blocks);
        if end > disk_sectors {
            return Err(range.lba.max(disk_sectors));
        }
        match list.last_mut() {
            // Linux trims a long run by entries of 65,535 sectors, one behind the other.
            Some(last) if last.lba + u64::from(last.blocks) == range.lba => {
                match last.blocks.checked_add(range.blocks) {
                    Some(blocks) => last.blocks = blocks,
                    None => list.push(range),
                }
            }
            _ => list.push(range),
        }
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_48_bits_of_lba_and_16_of_count() {
        let data = [6, 5, 4, 3, 2, 1, 8, 7];
        assert_eq!(ranges(&data).collect::<Vec<_>>(), [Extent { lba: 0x0102_0304_0506, blocks: 0x0708 }]);
        assert_eq!(ranges(&[1, 0, 0, 0, 0, 0, 0, 0]).count(), 0, "no sectors");
        assert_eq!(ranges(&data[..7]).count(), 0, "no whole entry");
    }

    #[test]
    fn ranges_that_are_built_are_read_again() {
        let list = [Extent { lba: 7, blocks: 1 }, Extent { lba: (1 << 48) - 70_000, blocks: 70_000 }];
        let data = parameters(&list);
        assert_eq!(data.len(), BLOCK_BYTES);
        assert_eq!(ranges(&data).count(), 3);
        assert_eq!(checked(&data, 1 << 48), Ok(list.to_vec()), "those that touch are one");
        assert_eq!(parameters(&[Extent { lba: 0, blocks: 1 }; 65]).len(), 2 * BLOCK_BYTES);
        assert_eq!(parameters(&[]), []);
    }

    #[test]
    fn a_range_past_the_end_is_none_of_the_disk() {
        let data = parameters(&[Extent { lba: 0, blocks: 1 }, Extent { lba: 90, blocks: 11 }]);
        assert_eq!(checked(&data, 100), Err(100), "the first sector that is not there");
        assert_eq!(checked(&data, 101).map(|list| list.len()), Ok(2));
        let outside = parameters(&[Extent { lba: 500, blocks: 1 }]);
        assert_eq!(checked(&outside, 100), Err(500));
    }
}
