//! Which sectors a command is for.

use sanwire_scsi::Extent;

use crate::task_file::{DEVICE_LBA, SECTORS_OF_28_BITS, TaskFile};

/// The geometry that ATA-5 disks tell, and that addresses by cylinder, head and sector are read with: 16,383 cylinders at the most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chs {
    /// Cylinders.
    pub cylinders: u16,
    /// Heads; each cylinder has so many tracks.
    pub heads: u8,
    /// Sectors of a track.
    pub sectors: u8,
}

impl Chs {
    const HEADS: u8 = 16;
    const SECTORS: u8 = 63;
    const CYLINDERS_MAX: u64 = 16_383;

    /// That of a disk with so many sectors.
    #[must_use]
    pub fn of(sectors: u64) -> Chs {
        let cylinders = sectors / (u64::from(Self::HEADS) * u64::from(Self::SECTORS));
        let cylinders = cylinders.clamp(1, Self::CYLINDERS_MAX) as u16;
        Chs { cylinders, heads: Self::HEADS, sectors: Self::SECTORS }
    }

    /// How many sectors have an address in it.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        u32::from(self.cylinders) * u32::from(self.heads) * u32::from(self.sectors)
    }

    /// The LBA of an address (ATA-5 6.2.1); `None` where there is no such sector.
    fn lba(&self, cylinder: u16, head: u8, sector: u8) -> Option<u64> {
        let is_there = cylinder < self.cylinders && head < self.heads && (1..=self.sectors).contains(&sector);
        let track = u64::from(cylinder) * u64::from(self.heads) + u64::from(head);
        is_there.then(|| track * u64::from(self.sectors) + u64::from(sector) - 1)
    }
}

/// The sectors that a command names, not yet checked against a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    address: Address,
    sectors: u32,
    /// The command reaches no sector from this one on.
    limit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Address {
    Lba(u64),
    Chs { cylinder: u16, head: u8, sector: u8 },
}

impl Place {
    /// Of a 28-bit command; a count of zero means 256.
    pub(crate) fn of_28_bits(task_file: &TaskFile) -> Place {
        let address = if task_file.device & DEVICE_LBA != 0 {
            Address::Lba(task_file.lba_of_28_bits())
        } else {
            let [sector, low, high, ..] = task_file.lba.to_le_bytes();
            Address::Chs { cylinder: u16::from_le_bytes([low, high]), head: task_file.device & 0x0f, sector }
        };
        let sectors = if task_file.count == 0 { 256 } else { task_file.count.into() };
        Place { address, sectors, limit: SECTORS_OF_28_BITS }
    }

    /// Of a 48-bit command; a count of zero means 65,536.
    pub(crate) fn of_48_bits(task_file: &TaskFile) -> Place {
        let sectors = if task_file.count == 0 { 0x1_0000 } else { task_file.count.into() };
        Place { address: Address::Lba(task_file.lba), sectors, limit: 1 << 48 }
    }

    /// How many sectors it names.
    #[must_use]
    pub fn sectors(&self) -> u32 {
        self.sectors
    }

    /// Where that is on a disk of so many sectors; `None` when it has not all of them, or the command does not reach them.
    #[must_use]
    pub fn on(&self, disk_sectors: u64) -> Option<Extent> {
        let lba = match self.address {
            Address::Lba(lba) => lba,
            Address::Chs { cylinder, head, sector } => Chs::of(disk_sectors).lba(cylinder, head, sector)?,
        };
        let end = lba.checked_add(self.sectors.into())?;
        (end <= disk_sectors.min(self.limit)).then_some(Extent { lba, blocks: self.sectors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(lba: u32, count: u8) -> Place {
        let [low, middle, high, top] = lba.to_le_bytes();
        Place::of_28_bits(&TaskFile::short(0x20, 0, count, [low, middle, high], 0xe0 | top))
    }

    fn long(lba: u64, count: u16) -> Place {
        let [b0, b1, b2, b3, b4, b5, ..] = lba.to_le_bytes();
        Place::of_48_bits(&TaskFile::long(0x24, 0, count, [b0, b1, b2, b3, b4, b5], 0x40))
    }

    #[test]
    fn a_count_of_zero_is_the_largest() {
        assert_eq!(short(1, 0).on(257), Some(Extent { lba: 1, blocks: 256 }));
        assert_eq!(short(1, 0).on(256), None);
        assert_eq!(long(1, 0).on(65_537), Some(Extent { lba: 1, blocks: 65_536 }));
        assert_eq!(long(1, 0).on(65_536), None);
    }

    #[test]
    fn each_form_ends_where_its_addresses_end() {
        let huge = u64::MAX;
        assert_eq!(short(0x0fff_fffe, 1).on(huge), Some(Extent { lba: 0x0fff_fffe, blocks: 1 }));
        assert_eq!(short(0x0fff_fffe, 2).on(huge), None);
        assert_eq!(short(0x0fff_ffff, 1).on(huge), None, "words 61:60 say that there is no such sector");
        assert_eq!(long(0x0fff_ffff, 2).on(huge), Some(Extent { lba: 0x0fff_ffff, blocks: 2 }));
        let last = (1 << 48) - 1;
        assert_eq!(long(last, 1).on(huge), Some(Extent { lba: last, blocks: 1 }));
        assert_eq!(long(last, 2).on(huge), None);
        assert_eq!(long(99, 1).on(100), Some(Extent { lba: 99, blocks: 1 }));
        assert_eq!(long(99, 2).on(100), None);
    }

    #[test]
    fn addresses_by_cylinder_head_and_sector_are_those_of_ata_5() {
        let place = |cylinder: u16, head: u8, sector: u8| {
            let [low, high] = cylinder.to_le_bytes();
            Place::of_28_bits(&TaskFile::short(0x20, 0, 1, [sector, low, high], 0xa0 | head)).on(10_000)
        };
        assert_eq!(Chs::of(10_000), Chs { cylinders: 9, heads: 16, sectors: 63 });
        assert_eq!(place(0, 0, 1), Some(Extent { lba: 0, blocks: 1 }));
        assert_eq!(place(8, 15, 63), Some(Extent { lba: 9 * 16 * 63 - 1, blocks: 1 }));
        assert_eq!(place(0, 0, 0), None, "sectors are counted from 1");
        assert_eq!((place(0, 0, 64), place(9, 0, 1)), (None, None));
        assert_eq!((Chs::of(1).cylinders, Chs::of(u64::MAX).cylinders), (1, 16_383));
        let beyond = Place::of_28_bits(&TaskFile::short(0x20, 0, 1, [63, 0, 0], 0xa0));
        assert_eq!(beyond.on(10), None, "the disk is smaller than one cylinder");
    }
}
