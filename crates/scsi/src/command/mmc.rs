//! The commands of optical drives that only read (MMC-6).

use super::fields::Fields;
use super::{Extent, StartStop};
use crate::mmc::sector::SectorFields;
use crate::operation::{Operation, code};
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task::Cdb;

/// Which table of contents is asked for (MMC-6 6.25.2, FORMAT).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TocFormat {
    /// 0: the tracks, from this one on.
    Tracks {
        /// 0 for all, AAh for the lead-out only.
        first: u8,
    },
    /// 1: the sessions.
    Sessions,
    /// 2: the entries of the lead-in, from this session on.
    Full {
        /// The first session.
        first: u8,
    },
    /// 4: what the pre-groove of a disc says that can be written (ATIP).
    PreGrooveTime,
    /// 5: the CD-TEXT of the lead-in.
    Text,
}

/// Which features GET CONFIGURATION asks for (MMC-6 6.6.2, RT).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConfigurationRequest {
    /// 00b: all that the drive has.
    All,
    /// 01b: those that are current.
    Current,
    /// 10b: the one that is asked for.
    One,
}

/// How READ TRACK INFORMATION names a track (MMC-6 6.27.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TrackAddress {
    /// By a block in it.
    Lba(u32),
    /// By its number.
    Track(u32),
    /// By the session that it begins.
    Session(u32),
}

/// What READ DISC STRUCTURE asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DiscStructure {
    /// Of a BD, not of a DVD.
    pub is_blu_ray: bool,
    /// FORMAT CODE.
    pub format: u8,
    /// The layer of the disc.
    pub layer: u8,
}

/// A command of an optical drive, with its fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the fields are those of the command, explained at their types")]
pub enum MultimediaCommand {
    StartStopUnit(StartStop),
    PreventAllowMediumRemoval { prevent: bool, persistent: bool },
    ReadFormatCapacities { allocation_bytes: u32 },
    ReadCapacity,
    Read { extent: Extent },
    ReadSectors { extent: Extent, fields: SectorFields },
    Seek { lba: u32 },
    ReadToc { format: TocFormat, in_time: bool, allocation_bytes: u32 },
    GetConfiguration { request: ConfigurationRequest, first: u16, allocation_bytes: u32 },
    GetEventStatus { classes: u8, allocation_bytes: u32 },
    ReadDiscInformation { allocation_bytes: u32 },
    ReadTrackInformation { address: TrackAddress, allocation_bytes: u32 },
    ReadDiscStructure { structure: DiscStructure, allocation_bytes: u32 },
    SetSpeed,
    MechanismStatus { allocation_bytes: u32 },
}

impl MultimediaCommand {
    /// Reads the CDB of this operation, one of [`crate::CommandStandard::Multimedia`].
    ///
    /// # Errors
    /// The sense data to answer when a field has a value that is not supported.
    pub fn parse(operation: &Operation, cdb: &Cdb) -> Result<MultimediaCommand, Sense> {
        Fields(cdb).multimedia(operation.code)
    }
}

impl Fields<'_> {
    fn multimedia(&self, code: u8) -> Result<MultimediaCommand, Sense> {
        use MultimediaCommand as Command;
        // The allocation length of nearly all of them.
        let allocation_bytes = u32::from(self.u16(7));
        Ok(match code {
            code::READ_10 | code::READ_12 => Command::Read { extent: self.extent(code) },
            code::READ_CD => self.read_cd()?,
            code::READ_CD_MSF => self.read_cd_msf()?,
            code::SEEK_10 => Command::Seek { lba: self.u32(2) },
            code::START_STOP_UNIT => Command::StartStopUnit(self.start_stop()),
            code::PREVENT_ALLOW_MEDIUM_REMOVAL => {
                Command::PreventAllowMediumRemoval { prevent: self.bit(4, 0), persistent: self.bit(4, 1) }
            }
            code::READ_FORMAT_CAPACITIES => Command::ReadFormatCapacities { allocation_bytes },
            code::READ_CAPACITY_10 => Command::ReadCapacity,
            code::READ_TOC_PMA_ATIP => {
                Command::ReadToc { format: self.toc_format()?, in_time: self.bit(1, 1), allocation_bytes }
            }
            code::GET_CONFIGURATION => {
                Command::GetConfiguration { request: self.configuration()?, first: self.u16(2), allocation_bytes }
            }
            code::GET_EVENT_STATUS_NOTIFICATION => {
                // MMC-6 6.7.2: events are told when they are asked for, not when they come.
                let is_polled = self.bit(1, 0);
                let polled = is_polled.then_some(self.byte(4)).ok_or(Sense::invalid_field_in_cdb(1, Some(0)))?;
                Command::GetEventStatus { classes: polled, allocation_bytes }
            }
            code::READ_DISC_INFORMATION if self.byte(1) != 0 => return Err(Sense::invalid_field_in_cdb(1, Some(2))),
            code::READ_DISC_INFORMATION => Command::ReadDiscInformation { allocation_bytes },
            code::READ_TRACK_INFORMATION => {
                Command::ReadTrackInformation { address: self.track_address()?, allocation_bytes }
            }
            code::READ_DISC_STRUCTURE => self.disc_structure()?,
            code::SET_CD_SPEED => Command::SetSpeed,
            code::MECHANISM_STATUS => Command::MechanismStatus { allocation_bytes: self.u16(8).into() },
            _ => return Err(Sense::invalid_field_in_cdb(0, None)),
        })
    }

    /// READ CD (MMC-6 6.16).
    fn read_cd(&self) -> Result<MultimediaCommand, Sense> {
        let blocks = u32::from(self.byte(6)) << 16 | u32::from(self.u16(7));
        self.read_sectors(Extent { lba: self.u32(2).into(), blocks })
    }

    /// READ CD MSF (MMC-6 6.17): from one time up to another.
    fn read_cd_msf(&self) -> Result<MultimediaCommand, Sense> {
        /// The time of block 0, in frames.
        const FIRST: u32 = 150;
        let (from, to) = (self.frames(3)?, self.frames(6)?);
        let blocks = to.checked_sub(from).ok_or(Sense::invalid_field_in_cdb(6, None))?;
        let lba = from.checked_sub(FIRST);
        let lba = lba.ok_or(Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE))?;
        self.read_sectors(Extent { lba: lba.into(), blocks })
    }

    /// Minutes, seconds and frames as frames.
    fn frames(&self, at: usize) -> Result<u32, Sense> {
        let [minutes, seconds, frames] = [0, 1, 2].map(|place| u32::from(self.byte(at + place)));
        let beyond = |place: usize| Err(Sense::invalid_field_in_cdb((at + place) as u16, None));
        match (seconds, frames) {
            (60.., _) => beyond(1),
            (_, 75..) => beyond(2),
            _ => Ok((minutes * 60 + seconds) * 75 + frames),
        }
    }

    /// What READ CD and READ CD MSF have in common.
    fn read_sectors(&self, extent: Extent) -> Result<MultimediaCommand, Sense> {
        // Any type, or mode 1: all sectors have that. Of other types, which there are, none is on the disc.
        match self.byte(1) >> 2 & 0x07 {
            0 | 2 => {}
            1 | 3..=5 => {
                return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::ILLEGAL_MODE_FOR_THIS_TRACK));
            }
            _ => return Err(Sense::invalid_field_in_cdb(1, Some(4))),
        }
        // DAP: for audio.
        if self.bit(1, 1) {
            return Err(Sense::invalid_field_in_cdb(1, Some(1)));
        }
        let fields = SectorFields::of_selection(self.byte(9)).ok_or(Sense::invalid_field_in_cdb(9, None))?;
        if self.byte(10) != 0 {
            return Err(Sense::invalid_field_in_cdb(10, Some(2)));
        }
        Ok(match fields {
            SectorFields::USER_DATA => MultimediaCommand::Read { extent },
            nothing if nothing.bytes() == 0 => MultimediaCommand::Read { extent: Extent { blocks: 0, ..extent } },
            fields => MultimediaCommand::ReadSectors { extent, fields },
        })
    }

    fn toc_format(&self) -> Result<TocFormat, Sense> {
        // Old drives (INF-8020) have the format in CONTROL, and some initiators still send it there.
        let format = if self.byte(2) == 0 { self.byte(9) >> 6 } else { self.byte(2) };
        let first = self.byte(6);
        match format {
            0 => Ok(TocFormat::Tracks { first }),
            1 => Ok(TocFormat::Sessions),
            2 => Ok(TocFormat::Full { first }),
            4 => Ok(TocFormat::PreGrooveTime),
            5 => Ok(TocFormat::Text),
            // Also 3: only discs that can be written have a program memory area.
            _ => Err(Sense::invalid_field_in_cdb(2, Some(3))),
        }
    }

    fn configuration(&self) -> Result<ConfigurationRequest, Sense> {
        match self.byte(1) {
            0 => Ok(ConfigurationRequest::All),
            1 => Ok(ConfigurationRequest::Current),
            2 => Ok(ConfigurationRequest::One),
            _ => Err(Sense::invalid_field_in_cdb(1, Some(1))),
        }
    }

    fn track_address(&self) -> Result<TrackAddress, Sense> {
        let number = self.u32(2);
        match self.byte(1) {
            0 => Ok(TrackAddress::Lba(number)),
            1 => Ok(TrackAddress::Track(number)),
            2 => Ok(TrackAddress::Session(number)),
            _ => Err(Sense::invalid_field_in_cdb(1, Some(1))),
        }
    }

    fn disc_structure(&self) -> Result<MultimediaCommand, Sense> {
        let is_blu_ray = match self.byte(1) {
            0 => false,
            1 => true,
            _ => return Err(Sense::invalid_field_in_cdb(1, Some(3))),
        };
        let structure = DiscStructure { is_blu_ray, format: self.byte(7), layer: self.byte(6) };
        Ok(MultimediaCommand::ReadDiscStructure { structure, allocation_bytes: self.u16(8).into() })
    }
}
