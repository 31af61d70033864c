//! What a drive says of itself and of its tray.

use super::{BLOCK_BYTES, Disc};

/// The class of events of the power, as a bit of the classes that are asked for.
pub const POWER_CLASS: u8 = 1 << 2;
/// The class of events of media.
pub const MEDIA_CLASS: u8 = 1 << 4;

/// All classes that a drive has.
const CLASSES: u8 = POWER_CLASS | MEDIA_CLASS;

/// What has happened to the medium (MMC-6 6.7.2.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MediaEvent {
    /// The user wants to take it out; an initiator that has locked it may unlock it.
    EjectRequest = 1,
    /// A medium was put in.
    NewMedia = 2,
    /// It was taken out.
    Removal = 3,
}

/// GET EVENT STATUS NOTIFICATION data about media; `None`: nothing has happened.
#[must_use]
pub fn media_event_status(event: Option<MediaEvent>, is_open: bool, has_disc: bool) -> Vec<u8> {
    let event = event.map_or(0, |event| event as u8);
    vec![0, 6, 0x04, CLASSES, event, u8::from(has_disc) << 1 | u8::from(is_open), 0, 0]
}

/// GET EVENT STATUS NOTIFICATION data about the power: it has not changed, and is on.
#[must_use]
pub fn power_event_status() -> Vec<u8> {
    const ACTIVE: u8 = 1;
    vec![0, 6, 0x02, CLASSES, 0, ACTIVE, 0, 0]
}

/// GET EVENT STATUS NOTIFICATION data when none of the classes that are asked for is there (NEA).
#[must_use]
pub fn event_status() -> Vec<u8> {
    vec![0, 2, 0x80, CLASSES]
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
