//! SCSI commands as what is to be done with the disk.

use sanwire_core::Lun;
use sanwire_scsi::{
    AdditionalSense, BlockCommand, ByteCheck, Cdb, CommandSet, CommandStandard, Extent, Features, Identity,
    PrimaryCommand, Sense, SenseKey, Status, UnmapList, report,
};

use super::{pages, sense};
use crate::command::code;
use crate::identify::IdentifyDevice;
use crate::task_file::{DEVICE_LBA, Registers, TaskFile};
use crate::trim;

/// All that a disk may be asked.
const COMMANDS: CommandSet = CommandSet::disk(Features { thin: true, atomic: false, tokens: false });

/// A disk, as it has said that it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    disk: IdentifyDevice,
    identity: Identity,
}

/// The answer to a SCSI command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// How it ended.
    pub status: Status,
    /// What is the matter.
    pub sense: Vec<u8>,
    /// Data for the initiator.
    pub data: Vec<u8>,
}

/// What is to be done for a SCSI command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// It is answered.
    Tell(Told),
    /// The disk has to do this.
    Do(Work),
}

/// What a disk has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Read these sectors.
    Read(Extent),
    /// Write these; `is_stable`: to stable storage.
    Write {
        /// Which.
        extent: Extent,
        /// It ends when the data is stable.
        is_stable: bool,
    },
    /// Look whether these can be read.
    Verify(Extent),
    /// Make stable what was written.
    Flush,
    /// Give sectors back: blocks of ranges.
    Trim {
        /// The data of the command.
        ranges: Vec<u8>,
        /// All that they name lies here.
        within: Extent,
    },
}

impl Told {
    fn good(data: Vec<u8>) -> Told {
        Told { status: Status::Good, sense: Vec::new(), data }
    }

    fn refused(sense: Sense) -> Told {
        Told { status: Status::CheckCondition, sense: sense.to_fixed(), data: Vec::new() }
    }
}

impl Host {
    /// A disk that is called so.
    #[must_use]
    pub fn new(name: &str, disk: IdentifyDevice) -> Option<Host> {
        // Over whichever wire one comes to a disk, its name is this.
        let identity = Identity::new(name, fingerprint(&disk)).ok()?.with_naa(disk.world_wide_name);
        Some(Host { disk, identity })
    }

    /// The command by which a disk says what it is.
    #[must_use]
    pub fn identify() -> TaskFile {
        TaskFile::short(code::IDENTIFY_DEVICE, 0, 1, [0; 3], 0xa0)
    }

    /// What the disk has said.
    #[must_use]
    pub fn disk(&self) -> &IdentifyDevice {
        &self.disk
    }

    /// What is to be done for a command.
    #[must_use]
    pub fn plan(&self, cdb: &Cdb, data_out: &[u8]) -> Plan {
        self.find(cdb, data_out).unwrap_or_else(|sense| Plan::Tell(Told::refused(sense)))
    }

    fn find(&self, cdb: &Cdb, data_out: &[u8]) -> Result<Plan, Sense> {
        let operation = COMMANDS.find(cdb)?;
        match operation.standard {
            CommandStandard::Primary => self.primary(PrimaryCommand::parse(operation, cdb)?),
            CommandStandard::Block => self.block(BlockCommand::parse(operation, cdb)?, data_out),
            _ => Err(unknown()),
        }
    }

    fn primary(&self, command: PrimaryCommand) -> Result<Plan, Sense> {
        let told = |data: Vec<u8>, allocation_bytes: u32| {
            let length = data.len().min(allocation_bytes as usize);
            Ok(Plan::Tell(Told::good(data[..length].to_vec())))
        };
        match command {
            PrimaryCommand::TestUnitReady => told(Vec::new(), 0),
            PrimaryCommand::RequestSense { allocation_bytes, .. } => {
                told(Sense::new(SenseKey::NoSense, AdditionalSense::NONE).to_fixed(), allocation_bytes)
            }
            PrimaryCommand::Inquiry { page: None, allocation_bytes, .. } => {
                told(pages::standard_inquiry(&self.disk), allocation_bytes)
            }
            PrimaryCommand::Inquiry { page: Some(page), allocation_bytes, .. } => {
                let page = pages::vital(&self.disk, &self.identity, page);
                told(page.ok_or(Sense::invalid_field_in_cdb(2, None))?, allocation_bytes)
            }
            PrimaryCommand::ReportLuns { allocation_bytes, .. } => {
                told(report::luns(&[Lun::default()]), allocation_bytes)
            }
            PrimaryCommand::ModeSense(asked) => {
                let data = pages::mode(&self.disk, &asked).ok_or(Sense::invalid_field_in_cdb(2, None))?;
                told(data, asked.allocation_bytes)
            }
            _ => Err(unknown()),
        }
    }

    fn block(&self, command: BlockCommand, data_out: &[u8]) -> Result<Plan, Sense> {
        let capacity = pages::capacity(&self.disk);
        let told = |data: &[u8], allocation_bytes: u32| {
            Ok(Plan::Tell(Told::good(data[..data.len().min(allocation_bytes as usize)].to_vec())))
        };
        match command {
            BlockCommand::ReadCapacity10 => told(&capacity.to_ten(), u32::MAX),
            BlockCommand::ReadCapacity16 { allocation_bytes } => told(&capacity.to_sixteen(), allocation_bytes),
            BlockCommand::Read { extent } => self.work(extent, Work::Read(extent)),
            BlockCommand::Verify { extent, check: ByteCheck::Medium } => self.work(extent, Work::Verify(extent)),
            BlockCommand::Write { force_unit_access: true, .. } if !self.disk.abilities.has_forced_writes => {
                // It says so in its mode pages: who asks for it all the same must not think that it was done.
                Err(Sense::invalid_field_in_cdb(1, Some(3)))
            }
            BlockCommand::Write { extent, force_unit_access: is_stable } => {
                if data_out.len() as u64 != u64::from(extent.blocks) * u64::from(self.disk.sector_bytes) {
                    return Err(Sense::invalid_field_in_cdb(10, None));
                }
                self.work(extent, Work::Write { extent, is_stable })
            }
            // It could lose what was written, and has no command against that.
            BlockCommand::SynchronizeCache { .. }
                if !self.can_flush() && self.disk.abilities.write_cache == Some(true) =>
            {
                Err(unknown())
            }
            // A disk with neither the command nor a cache that it tells of has nothing to lose: so Linux takes it, too.
            BlockCommand::SynchronizeCache { .. } if !self.can_flush() => told(&[], 0),
            BlockCommand::SynchronizeCache { .. } => Ok(Plan::Do(Work::Flush)),
            BlockCommand::Unmap { .. } if self.disk.trim.is_some() => self.unmap(data_out),
            _ => Err(unknown()),
        }
    }

    fn work(&self, extent: Extent, work: Work) -> Result<Plan, Sense> {
        let end = extent.lba.checked_add(extent.blocks.into());
        if end.is_none_or(|end| end > self.disk.sectors) {
            return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE));
        }
        Ok(if extent.blocks == 0 { Plan::Tell(Told::good(Vec::new())) } else { Plan::Do(work) })
    }

    fn unmap(&self, data_out: &[u8]) -> Result<Plan, Sense> {
        let ranges: Vec<Extent> = UnmapList::parse(data_out)?.extents().filter(|range| range.blocks > 0).collect();
        let end = |range: &Extent| range.lba.saturating_add(range.blocks.into());
        let (first, last) = (ranges.iter().map(|range| range.lba).min(), ranges.iter().map(end).max());
        let Some((lba, end)) = first.zip(last) else { return Ok(Plan::Tell(Told::good(Vec::new()))) };
        let blocks = u32::try_from(end - lba).unwrap_or(u32::MAX);
        let work = Work::Trim { ranges: trim::parameters(&ranges), within: Extent { lba, blocks } };
        if end > self.disk.sectors {
            return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE));
        }
        Ok(Plan::Do(work))
    }

    fn can_flush(&self) -> bool {
        self.disk.abilities.has_flush || self.disk.abilities.has_flush_ext
    }

    /// The ATA command that does a part of some work: these sectors, or these blocks of ranges, from its beginning on.
    #[must_use]
    pub fn command(&self, work: &Work, from: u32, count: u16) -> TaskFile {
        let is_long = self.disk.abilities.has_48_bit_addresses;
        let form = |short, long| if is_long { long } else { short };
        match work {
            Work::Read(extent) => self.of(form(code::READ_SECTORS, code::READ_SECTORS_EXT), *extent, from, count),
            Work::Write { extent, is_stable: true } => self.of(code::WRITE_DMA_FUA_EXT, *extent, from, count),
            Work::Write { extent, .. } => {
                self.of(form(code::WRITE_SECTORS, code::WRITE_SECTORS_EXT), *extent, from, count)
            }
            Work::Verify(extent) => {
                self.of(form(code::READ_VERIFY_SECTORS, code::READ_VERIFY_SECTORS_EXT), *extent, from, count)
            }
            Work::Flush if self.disk.abilities.has_flush_ext => {
                TaskFile::long(code::FLUSH_CACHE_EXT, 0, 0, [0; 6], DEVICE_LBA)
            }
            Work::Flush => TaskFile::short(code::FLUSH_CACHE, 0, 0, [0; 3], 0xe0),
            Work::Trim { .. } => TaskFile::long(code::DATA_SET_MANAGEMENT, 1, count, [0; 6], DEVICE_LBA),
        }
    }

    fn of(&self, command: u8, extent: Extent, from: u32, count: u16) -> TaskFile {
        let lba = extent.lba + u64::from(from);
        let [b0, b1, b2, b3, b4, b5, ..] = lba.to_le_bytes();
        match self.disk.abilities.has_48_bit_addresses {
            true => TaskFile::long(command, 0, count, [b0, b1, b2, b3, b4, b5], DEVICE_LBA),
            false => TaskFile::short(command, 0, count as u8, [b0, b1, b2], 0xe0 | b3 & 0x0f),
        }
    }

    /// How many sectors, or blocks of ranges, one command for this work takes at the most, whatever the wire takes.
    #[must_use]
    pub fn parts_max(&self, work: &Work) -> u32 {
        match work {
            // A disk that says no number takes one block.
            Work::Trim { .. } => self.disk.trim.map_or(1, |trim| u32::from(trim.blocks_max).max(1)),
            _ => u32::MAX,
        }
    }

    /// What is told when the disk has done its work, or a part of it has failed with these registers.
    #[must_use]
    pub fn told(&self, work: &Work, failed: Option<&Registers>) -> Told {
        let is_write = matches!(work, Work::Write { .. } | Work::Trim { .. });
        failed.map_or_else(|| Told::good(Vec::new()), |registers| Told::refused(sense::of(registers, is_write)))
    }
}

impl Work {
    /// Into how many sectors, or blocks of ranges, it can be cut; none: it goes at once.
    #[must_use]
    pub fn parts(&self) -> u32 {
        match self {
            Work::Read(extent) | Work::Write { extent, .. } | Work::Verify(extent) => extent.blocks,
            Work::Flush => 0,
            Work::Trim { ranges, .. } => (ranges.len() / trim::BLOCK_BYTES) as u32,
        }
    }

    /// The sectors that a part of it changes.
    #[must_use]
    pub fn changes(&self, from: u32, count: u32) -> Option<Extent> {
        match self {
            Work::Write { extent, .. } => Some(Extent { lba: extent.lba + u64::from(from), blocks: count }),
            Work::Trim { within, .. } => Some(*within),
            Work::Read(_) | Work::Verify(_) | Work::Flush => None,
        }
    }
}

fn unknown() -> Sense {
    Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE)
}

/// What tells a disk from all others, as far as it says: a hash (FNV-1a, 128 bits) of its model, serial number and name.
fn fingerprint(disk: &IdentifyDevice) -> [u8; 16] {
    let name = disk.world_wide_name.unwrap_or(0).to_be_bytes();
    let parts = [disk.model.as_bytes(), &[0], disk.serial.as_bytes(), &[0], &name];
    let mix =
        |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    parts.into_iter().flatten().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, mix).to_be_bytes()
}

#[cfg(test)]
mod tests;
