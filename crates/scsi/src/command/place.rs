//! Where a command's blocks are, and the same command for others.

use super::{BlockCommand, Extent, Sanitize, SanitizeMethod};
use crate::operation::code;
use crate::task::Cdb;

impl BlockCommand {
    /// The first of the blocks that the command is about and how many they are, on a disk of so many; `None` if it is about none, or
    /// names them in its parameter list. Of a command that goes up to the end, all of these.
    #[must_use]
    pub fn range(&self, disk_blocks: u64) -> Option<(u64, u64)> {
        let to_end = |lba: u64| (lba, disk_blocks.saturating_sub(lba));
        match *self {
            BlockCommand::Read { extent }
            | BlockCommand::Write { extent, .. }
            | BlockCommand::WriteAtomic { extent, .. }
            | BlockCommand::CompareAndWrite { extent, .. }
            | BlockCommand::OrWrite { extent, .. }
            | BlockCommand::Verify { extent, .. }
            | BlockCommand::WriteAndVerify { extent, .. } => Some((extent.lba, extent.blocks.into())),
            BlockCommand::WriteSame { extent, .. }
            | BlockCommand::SynchronizeCache { extent, .. }
            | BlockCommand::PreFetch { extent, .. } => Some(match extent.blocks {
                0 => to_end(extent.lba),
                blocks => (extent.lba, blocks.into()),
            }),
            BlockCommand::GetLbaStatus { lba, .. } => Some(to_end(lba)),
            BlockCommand::Sanitize(Sanitize { method: SanitizeMethod::ExitFailureMode, .. }) => None,
            BlockCommand::Sanitize(_) => Some(to_end(0)),
            BlockCommand::StartStopUnit(_)
            | BlockCommand::PreventAllowMediumRemoval { .. }
            | BlockCommand::ReadDefectData(_)
            | BlockCommand::Unmap { .. }
            | BlockCommand::ExtendedCopy { .. }
            | BlockCommand::ReceiveCopyResults { .. }
            | BlockCommand::Rod(_)
            | BlockCommand::ReadCapacity10
            | BlockCommand::ReadCapacity16 { .. } => None,
        }
    }
}

impl Cdb {
    /// The same command for a disk, from another block on. `None` for a command that names no blocks, or whose field is too small for
    /// this number.
    #[must_use]
    pub fn with_lba(&self, lba: u64) -> Option<Cdb> {
        let cdb = *self;
        match (Fields::of(self)?, self.operation_code() >> 5) {
            (_, 0) => {
                let [0, high, middle, low] = u32::try_from(lba).ok()?.to_be_bytes() else { return None };
                // Bits 7 to 5 of the first byte are reserved.
                (high < 0x20).then(|| cdb.with(1, &[self[1] & 0xe0 | high, middle, low]))
            }
            (_, 4) => Some(cdb.with(2, &lba.to_be_bytes())),
            _ => Some(cdb.with(2, &u32::try_from(lba).ok()?.to_be_bytes())),
        }
    }

    /// The same for another number of blocks, which is not zero: that may mean something else. `None` also where it has no such field.
    #[must_use]
    pub fn with_extent(&self, extent: Extent) -> Option<Cdb> {
        let cdb = self.with_lba(extent.lba)?;
        let blocks = extent.blocks;
        match (Fields::of(self)?, self.operation_code() >> 5) {
            _ if blocks == 0 => None,
            (Fields::LbaOnly, _) => None,
            (Fields::Other { at: 13 }, _) => Some(cdb.with(13, &[u8::try_from(blocks).ok()?])),
            (Fields::Other { at }, _) => Some(cdb.with(at, &u16::try_from(blocks).ok()?.to_be_bytes())),
            // SBC-4 5.15: zero means 256.
            (Fields::Usual, 0) if blocks == 256 => Some(cdb.with(4, &[0])),
            (Fields::Usual, 0) => Some(cdb.with(4, &[u8::try_from(blocks).ok()?])),
            (Fields::Usual, 1 | 2) => Some(cdb.with(7, &u16::try_from(blocks).ok()?.to_be_bytes())),
            (Fields::Usual, 4) => Some(cdb.with(10, &blocks.to_be_bytes())),
            (Fields::Usual, _) => Some(cdb.with(6, &blocks.to_be_bytes())),
        }
    }

    /// Whether there are blocks that it names itself.
    #[must_use]
    pub fn has_lba(&self) -> bool {
        Fields::of(self).is_some()
    }

    fn with(mut self, at: usize, field: &[u8]) -> Cdb {
        if let Some(place) = self.bytes_mut().get_mut(at..at + field.len()) {
            place.copy_from_slice(field);
        }
        self
    }
}

/// Where a CDB has its number of blocks; that of the LBA follows from the group of the code.
#[derive(Clone, Copy)]
enum Fields {
    /// Where most commands of its length have it (SPC-5 4.2.2).
    Usual,
    Other {
        at: usize,
    },
    /// Nowhere.
    LbaOnly,
}

impl Fields {
    /// Those of a whole command of SBC that names blocks.
    fn of(cdb: &Cdb) -> Option<Fields> {
        let code = cdb.operation_code();
        let fields = match code {
            code::COMPARE_AND_WRITE => Fields::Other { at: 13 },
            code::WRITE_ATOMIC_16 => Fields::Other { at: 12 },
            code::SERVICE_ACTION_IN_16 if cdb.get(1)? & 0x1f == code::GET_LBA_STATUS_ACTION => Fields::LbaOnly,
            code::READ_6 | code::READ_10 | code::READ_12 | code::READ_16 => Fields::Usual,
            code::WRITE_6 | code::WRITE_10 | code::WRITE_12 | code::WRITE_16 => Fields::Usual,
            code::WRITE_AND_VERIFY_10 | code::WRITE_AND_VERIFY_12 | code::WRITE_AND_VERIFY_16 => Fields::Usual,
            code::VERIFY_10 | code::VERIFY_12 | code::VERIFY_16 | code::ORWRITE_16 => Fields::Usual,
            code::PRE_FETCH_10 | code::PRE_FETCH_16 => Fields::Usual,
            code::SYNCHRONIZE_CACHE_10 | code::SYNCHRONIZE_CACHE_16 => Fields::Usual,
            code::WRITE_SAME_10 | code::WRITE_SAME_16 => Fields::Usual,
            _ => return None,
        };
        let whole_bytes = match code >> 5 {
            0 => 6,
            1 | 2 => 10,
            4 => 16,
            _ => 12,
        };
        (cdb.len() >= whole_bytes).then_some(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommandSet, Features, Operation};

    fn parse(cdb: &Cdb) -> Option<BlockCommand> {
        let set = CommandSet::disk(Features::ALL);
        BlockCommand::parse(set.find(cdb).ok()?, cdb).ok()
    }

    /// The CDBs of all operations of a disk, with zeroes in all fields.
    fn cdbs() -> impl Iterator<Item = (&'static Operation, Cdb)> {
        let operations = CommandSet::disk(Features::ALL).operations();
        operations.map(|operation| {
            let mut bytes = vec![0; operation.cdb_bytes()];
            (bytes[0], bytes[1]) = (operation.code, operation.service_action.unwrap_or(0));
            (operation, Cdb::new(&bytes).unwrap())
        })
    }

    #[test]
    fn a_command_that_is_put_elsewhere_is_read_back_as_that() {
        let (lba, blocks) = (0x1_2345, 0x67);
        let mut placed = 0;
        for (operation, cdb) in cdbs() {
            assert_eq!(cdb.has_lba(), cdb.with_lba(lba).is_some(), "{cdb:?}");
            let Some(moved) = cdb.with_extent(Extent { lba, blocks }) else {
                let is_to_end = operation.service_action == Some(code::GET_LBA_STATUS_ACTION);
                assert!(!cdb.has_lba() || is_to_end, "{cdb:?}");
                continue;
            };
            placed += 1;
            assert_eq!(parse(&moved).unwrap().range(u64::MAX), Some((lba, blocks.into())), "{moved:?}");
            assert_eq!(moved.with_extent(Extent { lba: 0, blocks: 1 }), cdb.with_extent(Extent { lba: 0, blocks: 1 }));
        }
        assert_eq!(placed, 23, "all that name blocks");
        let status = Cdb::from([0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0]);
        let moved = status.with_lba(5).unwrap();
        assert_eq!(parse(&moved), Some(BlockCommand::GetLbaStatus { lba: 5, allocation_bytes: 9 }));
    }

    #[test]
    fn numbers_that_have_no_room_are_refused_and_256_is_written_as_zero() {
        let read_6 = Cdb::from([0x08, 0, 0, 0, 1, 0]);
        assert_eq!(read_6.with_lba(0x1f_ffff).map(|cdb| cdb[1]), Some(0x1f));
        assert_eq!(read_6.with_lba(0x20_0000), None);
        let of_256 = read_6.with_extent(Extent { lba: 0, blocks: 256 });
        assert_eq!(of_256.and_then(|cdb| parse(&cdb)).and_then(|command| command.range(512)), Some((0, 256)));
        assert_eq!(read_6.with_extent(Extent { lba: 0, blocks: 257 }), None);
        let read_10 = Cdb::from([0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!((read_10.with_lba(1 << 32), read_10.with_extent(Extent { lba: 0, blocks: 0x1_0000 })), (None, None));
        assert_eq!(read_10.with_extent(Extent { lba: 0, blocks: 0 }), None);
        assert_eq!(Cdb::from([0x28, 0, 0]).with_lba(0), None, "cut short");
    }

    #[test]
    fn what_goes_up_to_the_end_is_told_so() {
        let range = |bytes: &[u8]| parse(&Cdb::new(bytes).unwrap()).unwrap().range(100);
        assert_eq!(range(&[0x41, 0, 0, 0, 0, 10, 0, 0, 0, 0]), Some((10, 90)), "WRITE SAME");
        assert_eq!(range(&[0x41, 0, 0, 0, 0, 10, 0, 0, 5, 0]), Some((10, 5)));
        assert_eq!(range(&[0x35, 0, 0, 0, 0, 10, 0, 0, 0, 0]), Some((10, 90)), "SYNCHRONIZE CACHE");
        assert_eq!(range(&[0x34, 0, 0, 0, 0, 200, 0, 0, 0, 0]), Some((200, 0)), "PRE-FETCH past the end");
        assert_eq!(range(&[0x28, 0, 0, 0, 0, 10, 0, 0, 0, 0]), Some((10, 0)), "READ of nothing");
        assert_eq!(range(&[0x48, 0x01, 0, 0, 0, 0, 0, 0, 5, 0]), Some((0, 100)), "SANITIZE");
        assert_eq!(range(&[0x48, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0]), None, "it only ends a failure");
    }
}
