//! What an optical drive answers (MMC-6): about the disc in it, and about itself.

mod configuration;
mod drive;
mod pages;
pub(crate) mod sector;
mod toc;

pub use configuration::{ConfiguredDrive, configuration};
pub use drive::{
    MEDIA_CLASS, MediaEvent, POWER_CLASS, event_status, format_capacities, mechanism_status, media_event_status,
    power_event_status,
};
pub use pages::{ErrorRecovery, capabilities_page, power_page, recovery_page, timeout_page};
pub use sector::SectorFields;
pub use toc::{disc_information, table_of_contents, track_information};

use crate::bytes::put;
use crate::command::DiscStructure;
use crate::sense::{AdditionalSense, Sense, SenseKey};

/// Bytes of a block of data.
pub const BLOCK_BYTES: u32 = sector::USER_DATA_BYTES as u32;

/// A disc with one session, which has one track of data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Disc {
    /// How many blocks it has; at least one.
    pub blocks: u32,
}

/// Which kind of disc it passes for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum Profile {
    /// CD-ROM.
    Cd = 0x0008,
    /// DVD-ROM.
    Dvd = 0x0010,
    /// BD-ROM.
    BluRay = 0x0040,
}

/// The most that a CD of 80 minutes has, ...
const CD_BLOCKS_MAX: u32 = 360_000;
/// ... and a DVD of two layers.
const DVD_BLOCKS_MAX: u32 = 4_173_824;

impl Disc {
    /// The smallest kind that has room for as much.
    #[must_use]
    pub fn profile(self) -> Profile {
        if self.blocks <= CD_BLOCKS_MAX {
            Profile::Cd
        } else if self.blocks <= DVD_BLOCKS_MAX {
            Profile::Dvd
        } else {
            Profile::BluRay
        }
    }
}

/// READ DISC STRUCTURE data of a DVD (MMC-6 6.22): how it is laid out, and that nothing on it is protected.
///
/// # Errors
/// CANNOT READ MEDIUM, INCOMPATIBLE FORMAT for another kind of disc; INVALID FIELD IN CDB for a structure that it does not have.
pub fn disc_structure(asked: DiscStructure, disc: Disc) -> Result<Vec<u8>, Sense> {
    const PHYSICAL: u8 = 0x00;
    const COPYRIGHT: u8 = 0x01;
    /// Where the data of a DVD begins.
    const FIRST_SECTOR: u32 = 0x03_0000;
    if asked.is_blu_ray || disc.profile() != Profile::Dvd {
        return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::INCOMPATIBLE_FORMAT));
    }
    let body = match asked.format {
        PHYSICAL if asked.layer == 0 => {
            let mut body = vec![0; 2048];
            body[0] = 0x01; // DVD-ROM, version 1
            body[1] = 0x0f; // 120 mm; no maximum rate is specified
            body[2] = 0x01; // one layer, embossed
            put(&mut body, 4, FIRST_SECTOR.to_be_bytes());
            put(&mut body, 8, (FIRST_SECTOR + disc.blocks.saturating_sub(1)).to_be_bytes());
            body
        }
        COPYRIGHT if asked.layer == 0 => vec![0; 4],
        PHYSICAL | COPYRIGHT => return Err(Sense::invalid_field_in_cdb(6, None)),
        _ => return Err(Sense::invalid_field_in_cdb(7, None)),
    };
    let mut bytes = ((body.len() + 2) as u16).to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(body);
    Ok(bytes)
}

#[cfg(test)]
mod tests;
