//! What a host has set of its drive, and what is known of the unit behind it.

use super::facts::Facts;
use super::knowledge::Knowledge;
use crate::command::{Feature, TransferMode};
use crate::identify::{Abilities, IdentifyDevice, MULTIPLE_MAX, Trim};

/// The drive as one host sees it. What it sets holds for itself: another host's writes do not become slower, or less safe, by it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drive {
    /// Sectors of a block of READ and WRITE MULTIPLE; zero: these commands are off.
    pub(super) multiple: u8,
    /// Without it every write ends on stable storage.
    pub(super) write_cache: bool,
    pub(super) smart: bool,
    pub(super) dma_mode: Option<u8>,
    /// Which run of its target this is, for hosts that would know.
    pub(super) run: Option<u64>,
    /// What the unit has said of itself.
    pub(super) known: Knowledge,
}

impl Default for Drive {
    /// As after power on.
    fn default() -> Self {
        Drive {
            multiple: MULTIPLE_MAX,
            write_cache: true,
            smart: true,
            dma_mode: None,
            run: None,
            known: Knowledge::default(),
        }
    }
}

impl Drive {
    /// As after power on, of this run of its target.
    #[must_use]
    pub fn of_run(run: u64) -> Drive {
        Drive { run: Some(run), ..Drive::default() }
    }

    /// The same, but without the write cache: the safe one where nobody knows any more what the host has set.
    #[must_use]
    pub fn without_write_cache(self) -> Drive {
        Drive { write_cache: false, ..self }
    }

    /// What the host has set, for whatever unit is there next.
    #[must_use]
    pub fn settings(&self) -> Drive {
        Drive { known: Knowledge::default(), ..self.clone() }
    }

    /// Takes a setting over.
    pub(super) fn set(&mut self, feature: Feature) {
        match feature {
            Feature::WriteCache(is_on) => self.write_cache = is_on,
            Feature::TransferMode(TransferMode::Pio) => self.dma_mode = None,
            Feature::TransferMode(TransferMode::MultiwordDma(mode)) => self.dma_mode = Some(mode),
        }
    }

    /// Whether SET MULTIPLE MODE takes so many sectors, and does: zero, or a power of two that word 47 allows.
    pub(super) fn set_multiple(&mut self, sectors: u8) -> bool {
        let is_fine = sectors == 0 || sectors.is_power_of_two() && sectors <= MULTIPLE_MAX;
        if is_fine {
            self.multiple = sectors;
        }
        is_fine
    }

    /// What IDENTIFY DEVICE tells. Nothing is claimed that the unit does not do.
    pub(super) fn identify(&self, facts: &Facts) -> IdentifyDevice {
        IdentifyDevice {
            serial: facts.serial.clone(),
            firmware: facts.firmware.clone(),
            model: facts.model.clone(),
            sectors: facts.sectors,
            sector_bytes: facts.sector_bytes,
            physical_sector_exponent: facts.physical_sector_exponent,
            rotation_rate: facts.rotation_rate,
            world_wide_name: facts.world_wide_name,
            multiple: self.multiple,
            dma_mode: self.dma_mode,
            abilities: Abilities {
                has_48_bit_addresses: true,
                has_flush: true,
                has_flush_ext: true,
                has_forced_writes: true,
                has_dma: true,
                smart: Some(self.smart),
                write_cache: Some(self.write_cache),
            },
            trim: facts.trims.then_some(Trim { blocks_max: 1, reads_zeroes: facts.reads_zeroes }),
            run: self.run,
        }
    }
}
