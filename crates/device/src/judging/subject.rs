//! A command as those see it who judge it.

use sanwire_buffer::Slices;
use sanwire_scsi::{
    AdditionalSense, BlockCommand, Cdb, CommandSet, CommandStandard, Extent, Operation, OperationClass,
    OperationClasses, Sense, SenseKey, UnmapList, classes_of, operation_code,
};
use sanwire_store::Geometry;

use crate::command_program::BlockRange;
use crate::data::SHORT_LIST;
use crate::derived::{Derived, Refused};
use crate::disk::unmap::DESCRIPTORS_MAX;
use crate::fault::{ACCESS_DENIED, LBA_OUT_OF_RANGE};

/// What a command is about that is allowed, for blocks that there are.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) classes: OperationClasses,
    ranges: Ranges,
}

#[derive(Debug)]
enum Ranges {
    None,
    One(BlockRange),
    Several(Vec<BlockRange>),
}

/// Why a command is refused, and as what that is counted if it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfit {
    pub(super) sense: Sense,
    pub(super) why: Option<Refused>,
}

impl From<Sense> for Unfit {
    fn from(sense: Sense) -> Self {
        Unfit { sense, why: None }
    }
}

/// A command that is allowed.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) subject: Subject,
    pub(super) operation: &'static Operation,
}

impl Found {
    /// A command with this data, for a derived unit.
    pub(super) fn read(
        cdb: &Cdb,
        derived: &Derived,
        (commands, geometry): (CommandSet, &Geometry),
        data: Option<&Slices>,
    ) -> Result<Found, Unfit> {
        let operation = commands.find(cdb)?;
        let classes = derived.operations().allowed_classes(cdb).ok_or_else(|| not_allowed(cdb, geometry))?;
        let blocks = geometry.length_bytes / u64::from(geometry.block_bytes);
        let is_within = |range: &BlockRange| range.lba.checked_add(range.blocks).is_some_and(|end| end <= blocks);
        let outside = || Unfit { sense: LBA_OUT_OF_RANGE, why: Some(Refused::Region) };
        let ranges = match operation.standard {
            CommandStandard::Block => match BlockCommand::parse(operation, cdb)? {
                BlockCommand::Unmap { parameter_bytes } => {
                    let ranges = unmapped(parameter_bytes, data)?;
                    if !ranges.iter().all(is_within) {
                        return Err(outside());
                    }
                    Ranges::Several(ranges)
                }
                command => match command.range(blocks).map(|(lba, blocks)| BlockRange { lba, blocks }) {
                    Some(range) if !is_within(&range) => return Err(outside()),
                    Some(range) => Ranges::One(range),
                    None => Ranges::None,
                },
            },
            _ => Ranges::None,
        };
        Ok(Found { subject: Subject { classes, ranges }, operation })
    }
}

impl Subject {
    /// What a copy does with these blocks, which there are.
    pub(super) fn of_copy(classes: OperationClasses, range: BlockRange) -> Subject {
        Subject { classes, ranges: Ranges::One(range) }
    }

    pub(super) fn ranges(&self) -> &[BlockRange] {
        match &self.ranges {
            Ranges::None => &[],
            Ranges::One(range) => std::slice::from_ref(range),
            Ranges::Several(ranges) => ranges,
        }
    }

    /// The same command for as many blocks from this one on; `None` where that has no sense.
    pub(super) fn moved(&self, cdb: &Cdb, lba: u64) -> Option<Cdb> {
        match self.ranges {
            Ranges::One(BlockRange { blocks: 0, .. }) => Some(*cdb),
            Ranges::One(BlockRange { blocks, .. }) => {
                cdb.with_extent(Extent { lba, blocks: u32::try_from(blocks).ok()? })
            }
            Ranges::None | Ranges::Several(_) => None,
        }
    }

    /// The same command for a part of it, by other numbers.
    pub(super) fn placed(cdb: &Cdb, part: BlockRange) -> Option<Cdb> {
        if !cdb.has_lba() {
            return Some(*cdb);
        }
        let blocks = u32::try_from(part.blocks).ok();
        let exact = blocks.and_then(|blocks| cdb.with_extent(Extent { lba: part.lba, blocks }));
        // Of a command up to the end, which has no room for as many.
        exact.or_else(|| cdb.with_lba(part.lba))
    }
}

/// Whether the data of a command is what its blocks are to hold, one after the other.
pub(super) fn is_written_as_sent(cdb: &Cdb) -> bool {
    use operation_code as code;
    matches!(
        cdb.operation_code(),
        code::WRITE_6
            | code::WRITE_10
            | code::WRITE_12
            | code::WRITE_16
            | code::WRITE_ATOMIC_16
            | code::WRITE_AND_VERIFY_10
            | code::WRITE_AND_VERIFY_12
            | code::WRITE_AND_VERIFY_16
            | code::ORWRITE_16
    )
}

/// The blocks that a command names itself, if it says how many.
pub(super) fn named(cdb: &Cdb, commands: CommandSet) -> Option<BlockRange> {
    let operation = commands.find(cdb).ok().filter(|operation| operation.standard == CommandStandard::Block)?;
    let (lba, blocks) = BlockCommand::parse(operation, cdb).ok()?.range(0)?;
    Some(BlockRange { lba, blocks })
}

/// Of a unit that nobody may write to, a write is refused as by each that is write protected (SBC-4 4.13).
fn not_allowed(cdb: &Cdb, geometry: &Geometry) -> Unfit {
    let is_write = classes_of(cdb)
        .is_some_and(|classes| classes.contains(OperationClass::Write) || classes.contains(OperationClass::Discard));
    let write_protected = Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED);
    let sense = if is_write && geometry.read_only { write_protected } else { ACCESS_DENIED };
    Unfit { sense, why: Some(Refused::Operation) }
}

fn unmapped(parameter_bytes: u16, data: Option<&Slices>) -> Result<Vec<BlockRange>, Sense> {
    let length = usize::from(parameter_bytes);
    if length == 0 {
        return Ok(Vec::new());
    }
    let list = data.filter(|data| data.len() >= length).ok_or(SHORT_LIST)?.bytes(0..length);
    let list = UnmapList::parse(&list)?;
    if list.len() > DESCRIPTORS_MAX {
        return Err(Sense::invalid_field_in_parameters(2, None));
    }
    Ok(list.extents().map(|extent| BlockRange { lba: extent.lba, blocks: extent.blocks.into() }).collect())
}
