//! Mode pages (SPC-5 7.5, SBC-4 6.5): what MODE SENSE tells and what MODE SELECT may change.

mod answer;
mod select;

pub use answer::{ModeData, ModePage};
pub use select::{caching_parameters, select};

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

/// The state that MODE SENSE tells of.
#[derive(Clone, Copy, Debug)]
pub struct ModeState {
    /// The values in effect.
    pub current: Settings,
    /// The values after a reset.
    pub default: Settings,
    /// Writes are refused, for whatever reason (WP).
    pub write_protected: bool,
    /// How many logical blocks.
    pub blocks: u64,
    /// Bytes of one.
    pub block_bytes: u32,
}

/// The pages, ascending.
const PAGES: [u8; 4] = [page::READ_WRITE_ERROR_RECOVERY, page::CACHING, page::CONTROL, page::INFORMATIONAL_EXCEPTIONS];

/// The settings of which every bit may be changed.
const CHANGEABLE: Settings = Settings { write_cache: true, descriptor_sense: true, software_write_protect: true };

/// MODE SENSE data, whole; the caller cuts it to the allocation length.
///
/// # Errors
/// SAVING PARAMETERS NOT SUPPORTED for saved values, INVALID FIELD IN CDB for a page that is not there.
pub fn sense(asked: &ModeSense, state: &ModeState) -> Result<Vec<u8>, Sense> {
    if asked.control == PageControl::Saved {
        return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED));
    }
    if asked.page != page::ALL && !PAGES.contains(&asked.page) {
        return Err(Sense::invalid_field_in_cdb(2, Some(5)));
    }
    // No page has subpages; FFh asks for the page and all its subpages.
    if asked.subpage != 0 && asked.subpage != 0xff {
        return Err(Sense::invalid_field_in_cdb(3, None));
    }
    let mut bytes = header(asked, state);
    for code in PAGES.into_iter().filter(|&code| asked.page == page::ALL || asked.page == code) {
        bytes.extend(page_bytes(code, asked.control, state));
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

fn page_bytes(code: u8, control: PageControl, state: &ModeState) -> Vec<u8> {
    match control {
        PageControl::Changeable => changeable_page(code),
        PageControl::Default => page_of(code, state.default),
        PageControl::Current | PageControl::Saved => page_of(code, state.current),
    }
}

/// A page with these settings.
fn page_of(code: u8, settings: Settings) -> Vec<u8> {
    let mut bytes = vec![0; page_length(code)];
    bytes[0] = code;
    bytes[1] = (bytes.len() - 2) as u8;
    match code {
        page::READ_WRITE_ERROR_RECOVERY => bytes[2] = 0xc0, // AWRE, ARRE: the medium looks after itself
        page::CACHING => bytes[2] = u8::from(settings.write_cache) << 2,
        page::CONTROL => {
            bytes[2] = u8::from(settings.descriptor_sense) << 2;
            bytes[3] = 0x10; // unrestricted reordering: initiators order by waiting
            bytes[4] = u8::from(settings.software_write_protect) << 3;
            bytes[5] = 0x40; // TAS: who loses a command to another initiator is told so
            put(&mut bytes, 8, 0xffff_u16.to_be_bytes()); // busy for as long as it takes
        }
        _ => {}
    }
    bytes
}

/// The bits of a page that MODE SELECT may change.
fn changeable_page(code: u8) -> Vec<u8> {
    let (all, none) = (page_of(code, CHANGEABLE), page_of(code, Settings::default()));
    let mut bytes: Vec<u8> = all.iter().zip(&none).map(|(all, none)| all ^ none).collect();
    bytes[..2].copy_from_slice(&all[..2]);
    bytes
}

fn page_length(code: u8) -> usize {
    if code == page::CACHING { 20 } else { 12 }
}

#[cfg(test)]
mod tests;
