//! Mode pages (SPC-5 7.5, SBC-4 6.5): what MODE SENSE tells and what MODE SELECT may change.

mod answer;
mod pages;
mod select;

pub use answer::{ModeData, ModePage};
pub use pages::threshold_at;
pub use select::{caching_parameters, select};

use pages::PageId;

use crate::bytes::put;
use crate::command::{ModeForm, ModeSense, PageControl};
use crate::sense::{AdditionalSense, Sense, SenseKey};

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

/// MODE SENSE data, whole; the caller cuts it to the allocation length.
///
/// # Errors
/// SAVING PARAMETERS NOT SUPPORTED for saved values, INVALID FIELD IN CDB for a page or a subpage that is not there.
pub fn sense(asked: &ModeSense, state: &ModeState) -> Result<Vec<u8>, Sense> {
    if asked.control == PageControl::Saved {
        return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED));
    }
    let pages = asked_pages(asked, state)?;
    let mut bytes = header(asked, state);
    for id in pages {
        bytes.extend(match asked.control {
            PageControl::Changeable => pages::changeable(id, state.counted),
            PageControl::Default => pages::page(id, &state.default, state.counted),
            PageControl::Current | PageControl::Saved => pages::page(id, &state.current, state.counted),
        });
    }
    match asked.form {
        ModeForm::Six => bytes[0] = (bytes.len() - 1) as u8,
        ModeForm::Ten => {
            let length = (bytes.len() - 2) as u16;
            put(&mut bytes, 0, length.to_be_bytes());
        }
    }
    Ok(bytes)
}

/// SPC-5 table 175: one page, or all pages, with one subpage, or with all of them.
fn asked_pages(asked: &ModeSense, state: &ModeState) -> Result<Vec<PageId>, Sense> {
    const ALL_SUBPAGES: u8 = 0xff;
    let of_page: Vec<PageId> =
        PageId::of(state.counted).filter(|id| asked.page == page::ALL || asked.page == id.code).collect();
    if of_page.is_empty() {
        return Err(Sense::invalid_field_in_cdb(2, Some(5)));
    }
    let is_asked = |id: &PageId| asked.subpage == ALL_SUBPAGES || asked.subpage == id.subpage;
    let found: Vec<PageId> = of_page.into_iter().filter(is_asked).collect();
    // All pages are asked for with all subpages or with none.
    let is_legal = asked.page != page::ALL || matches!(asked.subpage, 0 | ALL_SUBPAGES);
    if found.is_empty() || !is_legal { Err(Sense::invalid_field_in_cdb(3, None)) } else { Ok(found) }
}

/// The mode parameter header with its block descriptor (SPC-5 7.5.5 and 7.5.6); the length comes later.
fn header(asked: &ModeSense, state: &ModeState) -> Vec<u8> {
    // SBC-4 6.5.1: WP and DPOFUA.
    let device_specific = u8::from(state.write_protected) << 7 | 0x10;
    let long = asked.long_lba && asked.form == ModeForm::Ten;
    let descriptor = match (asked.no_descriptors, long) {
        (true, _) => Vec::new(),
        (false, false) => short_descriptor(state).to_vec(),
        (false, true) => long_descriptor(state).to_vec(),
    };
    let length = descriptor.len() as u8;
    let mut bytes = match asked.form {
        ModeForm::Six => vec![0, 0, device_specific, length],
        ModeForm::Ten => vec![0, 0, 0, device_specific, u8::from(long && length != 0), 0, 0, length],
    };
    bytes.extend(descriptor);
    bytes
}

fn short_descriptor(state: &ModeState) -> [u8; 8] {
    let mut bytes = [0; 8];
    put(&mut bytes, 0, u32::try_from(state.blocks).unwrap_or(u32::MAX).to_be_bytes());
    put(&mut bytes, 4, state.block_bytes.to_be_bytes());
    bytes
}

fn long_descriptor(state: &ModeState) -> [u8; 16] {
    let mut bytes = [0; 16];
    put(&mut bytes, 0, state.blocks.to_be_bytes());
    put(&mut bytes, 12, state.block_bytes.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests;
