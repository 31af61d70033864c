//! Mode pages (SPC-5 7.5, SBC-4 6.5): what MODE SENSE tells and what MODE SELECT may change.

mod answer;
mod frame;
mod pages;
mod select;

pub use answer::{ModeData, ModePage};
pub use frame::{ModeHeader, PageValues, select_pages, sense_pages};
pub use pages::threshold_at;
pub use select::{caching_parameters, select};

use pages::PageId;

use crate::command::ModeSense;
use crate::sense::Sense;

/// Page codes.
#[allow(missing_docs, reason = "each is named by its page")]
pub mod page {
    pub const READ_WRITE_ERROR_RECOVERY: u8 = 0x01;
    pub const CACHING: u8 = 0x08;
    pub const CONTROL: u8 = 0x0a;
    pub const INFORMATIONAL_EXCEPTIONS: u8 = 0x1c;
    pub const ALL: u8 = 0x3f;
}

/// The bits of the mode pages that can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Settings {
    /// Caching page, WCE: a write is answered before it is on stable storage.
    pub write_cache: bool,
    /// Control page, D_SENSE: sense data has the descriptor format.
    pub descriptor_sense: bool,
    /// Control page, SWP: writes are refused.
    pub software_write_protect: bool,
}

impl Settings {
    /// One bit each, for keeping them in an atomic.
    #[must_use]
    pub fn to_bits(self) -> u8 {
        u8::from(self.write_cache) | u8::from(self.descriptor_sense) << 1 | u8::from(self.software_write_protect) << 2
    }

    /// The reverse of [`Settings::to_bits`].
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        Settings { write_cache: bits & 1 != 0, descriptor_sense: bits & 2 != 0, software_write_protect: bits & 4 != 0 }
    }
}

/// One threshold of a thin unit (SBC-4 4.7.3.8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Threshold {
    /// Whether reaching it is told.
    pub is_enabled: bool,
    /// Where it stands, in threshold sets.
    pub count: u32,
}

/// What the mode pages say of thresholds, all of which can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Thresholds {
    /// Read-write error recovery page, LBPERE: without it no threshold is told.
    pub is_reporting: bool,
    /// Of the available LBA mapping resources, as they decrease.
    pub available: Threshold,
    /// Of the used LBA mapping resources, as they increase.
    pub used: Threshold,
}

/// Which LBA mapping resources a unit counts: those without a count have no threshold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CountedResources {
    /// What is still to be had.
    pub available: bool,
    /// What the unit has taken.
    pub used: bool,
}

impl CountedResources {
    /// Whether there is anything that a threshold could be for.
    #[must_use]
    pub fn any(self) -> bool {
        self.available || self.used
    }
}

/// All that MODE SELECT can change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ModeValues {
    /// Bits.
    pub settings: Settings,
    /// Thresholds.
    pub thresholds: Thresholds,
}

/// The state that MODE SENSE tells of.
#[derive(Clone, Copy, Debug)]
pub struct ModeState {
    /// The values in effect.
    pub current: ModeValues,
    /// The values after a reset.
    pub default: ModeValues,
    /// What thresholds there can be.
    pub counted: CountedResources,
    /// Writes are refused, for whatever reason (WP).
    pub write_protected: bool,
    /// How many logical blocks.
    pub blocks: u64,
    /// Bytes of one.
    pub block_bytes: u32,
}

/// The control page of a unit that takes no writes: only the format of sense data can be changed.
#[must_use]
pub fn control_page(current: Settings, default: Settings) -> PageValues {
    let page = |settings| {
        let values = ModeValues { settings, ..ModeValues::default() };
        pages::page(PageId::CONTROL, &values, CountedResources::default())
    };
    let all = Settings { descriptor_sense: true, ..Settings::default() };
    let (none, all) = (page(Settings::default()), page(all));
    let mut changeable: Vec<u8> = all.iter().zip(&none).map(|(all, none)| all ^ none).collect();
    changeable[..2].copy_from_slice(&none[..2]);
    PageValues { current: page(current), default: page(default), changeable }
}

/// Whether a control page asks for descriptor format sense data.
#[must_use]
pub fn has_descriptor_sense(page: &[u8]) -> bool {
    page.get(2).is_some_and(|byte| byte & 0x04 != 0)
}

impl ModeState {
    fn header(&self) -> ModeHeader {
        // SBC-4 6.5.1: WP and DPOFUA.
        let device_specific = u8::from(self.write_protected) << 7 | 0x10;
        ModeHeader { device_specific, blocks: Some((self.blocks, self.block_bytes)) }
    }

    fn pages(&self) -> Vec<PageValues> {
        let values = |id| PageValues {
            current: pages::page(id, &self.current, self.counted),
            default: pages::page(id, &self.default, self.counted),
            changeable: pages::changeable(id, self.counted),
        };
        PageId::of(self.counted).map(values).collect()
    }
}

/// MODE SENSE data of a disk, whole; the caller cuts it to the allocation length.
///
/// # Errors
/// Those of [`sense_pages`].
pub fn sense(asked: &ModeSense, state: &ModeState) -> Result<Vec<u8>, Sense> {
    sense_pages(asked, state.header(), &state.pages())
}

#[cfg(test)]
mod tests;
