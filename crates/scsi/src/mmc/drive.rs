//! What a drive says of itself and of its tray.

use super::{BLOCK_BYTES, Disc};
use crate::bytes::put;
use crate::mode::PageValues;

/// The class of events of media, as a bit of the classes that are asked for.
pub const MEDIA_CLASS: u8 = 1 << 4;

/// What has happened to the medium (MMC-6 6.7.2.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MediaEvent {
    /// The user wants it out; an initiator that has locked it may release it.
    EjectRequest = 1,
    /// It has come.
    NewMedia = 2,
    /// It is gone.
    Removal = 3,
}

/// GET EVENT STATUS NOTIFICATION data about media; `None`: nothing has happened.
#[must_use]
pub fn media_event_status(event: Option<MediaEvent>, is_open: bool, has_disc: bool) -> Vec<u8> {
    let event = event.map_or(0, |event| event as u8);
    vec![0, 6, 0x04, MEDIA_CLASS, event, u8::from(has_disc) << 1 | u8::from(is_open), 0, 0]
}

/// GET EVENT STATUS NOTIFICATION data when none of the classes that are asked for is there (NEA).
#[must_use]
pub fn event_status() -> Vec<u8> {
    vec![0, 2, 0x80, MEDIA_CLASS]
}

/// MECHANISM STATUS data: no changer, one tray.
#[must_use]
pub fn mechanism_status(is_open: bool) -> Vec<u8> {
    vec![0, u8::from(is_open) << 4, 0, 0, 0, 0, 0, 0]
}

/// READ FORMAT CAPACITIES data: of the disc, or the largest that there could be.
#[must_use]
pub fn format_capacities(disc: Option<Disc>) -> Vec<u8> {
    const FORMATTED: u8 = 2;
    const NO_MEDIUM: u8 = 3;
    let mut bytes = vec![0, 0, 0, 8];
    bytes.extend(disc.map_or(u32::MAX, |disc| disc.blocks).to_be_bytes());
    let [_, length @ ..] = BLOCK_BYTES.to_be_bytes();
    bytes.push(if disc.is_some() { FORMATTED } else { NO_MEDIUM });
    bytes.extend(length);
    bytes
}

/// The mode page of capabilities and mechanical status (MMC-3 5.5.10): what drivers ask for that know no features.
#[must_use]
pub fn capabilities_page(is_locked: bool) -> PageValues {
    /// 48 times the speed of an audio CD, in kB/s.
    const SPEED: u16 = 8468;
    let mut page = vec![0; 26];
    put(&mut page, 0, [0x2a, 24]);
    page[2] = 0x08 | 0x02 | 0x01; // reads DVD-ROM, CD-RW, CD-R
    page[6] = 0x20 | 0x08 | 0x01 | u8::from(is_locked) << 1; // a tray, which ejects and locks
    put(&mut page, 8, SPEED.to_be_bytes());
    put(&mut page, 12, 512_u16.to_be_bytes()); // KiB of buffer
    put(&mut page, 14, SPEED.to_be_bytes());
    let mut changeable = vec![0; page.len()];
    changeable[..2].copy_from_slice(&page[..2]);
    PageValues { default: page.clone(), current: page, changeable }
}
