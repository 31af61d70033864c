//! Tracks and sessions: READ TOC/PMA/ATIP, READ DISC INFORMATION and READ TRACK INFORMATION (MMC-6 6.25, 6.21, 6.26).

use super::sector::time_of;
use super::{Disc, Profile};
use crate::bytes::put;
use crate::command::{TocFormat, TrackAddress};
use crate::sense::{AdditionalSense, Sense, SenseKey};

/// ADR 1 (position), CONTROL 4: an uninterrupted track of data.
const DATA_TRACK: u8 = 0x14;
const TRACK: u8 = 1;
const SESSION: u8 = 1;
const LEAD_OUT: u8 = 0xaa;

/// READ TOC/PMA/ATIP data; places are told as minutes, seconds and frames if `in_time`, else as blocks.
///
/// # Errors
/// INVALID FIELD IN CDB for a track or session that there is not, and for what only CDs have on another disc.
pub fn table_of_contents(format: TocFormat, in_time: bool, disc: Disc) -> Result<Vec<u8>, Sense> {
    let place = |lba: u32| if in_time { time_of(lba) } else { lba.to_be_bytes() };
    let mut bytes = vec![0, 0, TRACK, TRACK];
    let mut track = |number: u8, lba: u32| {
        bytes.extend([0, DATA_TRACK, number, 0]);
        bytes.extend(place(lba));
    };
    match format {
        TocFormat::Tracks { first } if first > TRACK && first != LEAD_OUT => {
            return Err(Sense::invalid_field_in_cdb(6, None));
        }
        TocFormat::Tracks { first } => {
            if first <= TRACK {
                track(TRACK, 0);
            }
            track(LEAD_OUT, disc.blocks);
        }
        TocFormat::Sessions => track(TRACK, 0),
        TocFormat::Full { first } if first > SESSION => return Err(Sense::invalid_field_in_cdb(6, None)),
        TocFormat::Full { .. } => {
            let [_, minutes, seconds, frames] = time_of(disc.blocks);
            let [_, from_minutes, from_seconds, from_frames] = time_of(0);
            // First track, last track, lead-out, and the track itself: POINT and its three bytes.
            for (point, p) in [
                (0xa0, [TRACK, 0, 0]),
                (0xa1, [TRACK, 0, 0]),
                (0xa2, [minutes, seconds, frames]),
                (TRACK, [from_minutes, from_seconds, from_frames]),
            ] {
                bytes.extend([SESSION, DATA_TRACK, 0, point, 0, 0, 0, 0]);
                bytes.extend(p);
            }
        }
        TocFormat::PreGrooveTime | TocFormat::Text if disc.profile() != Profile::Cd => {
            return Err(Sense::invalid_field_in_cdb(2, Some(3)));
        }
        // A CD that was pressed has no pre-groove, and this one no text: the header says so.
        TocFormat::PreGrooveTime | TocFormat::Text => bytes[2..].fill(0),
    }
    let length = (bytes.len() - 2) as u16;
    put(&mut bytes, 0, length.to_be_bytes());
    Ok(bytes)
}

/// READ DISC INFORMATION data (MMC-6 table 383): complete, not erasable.
#[must_use]
pub fn disc_information() -> Vec<u8> {
    let mut bytes = vec![0; 34];
    put(&mut bytes, 0, 32_u16.to_be_bytes());
    bytes[2] = 0x0e; // the last session is complete, and so is the disc
    put(&mut bytes, 3, [TRACK, SESSION, TRACK, TRACK]);
    bytes[7] = 0x20; // URU: for unrestricted use
    put(&mut bytes, 16, [0xff; 8]); // nothing more can be written, nowhere
    bytes
}

/// READ TRACK INFORMATION data (MMC-6 table 494).
///
/// # Errors
/// INVALID FIELD IN CDB for a track or session that there is not, LBA OUT OF RANGE for a block behind the last.
pub fn track_information(address: TrackAddress, disc: Disc) -> Result<Vec<u8>, Sense> {
    match address {
        TrackAddress::Lba(lba) if lba >= disc.blocks => {
            return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE));
        }
        TrackAddress::Lba(_) => {}
        TrackAddress::Track(number) | TrackAddress::Session(number) if number == u32::from(TRACK) => {}
        TrackAddress::Track(_) | TrackAddress::Session(_) => return Err(Sense::invalid_field_in_cdb(2, None)),
    }
    let mut bytes = vec![0; 36];
    put(&mut bytes, 0, 34_u16.to_be_bytes());
    put(&mut bytes, 2, [TRACK, SESSION]);
    bytes[5] = 0x04; // a track of data
    bytes[6] = 0x01; // mode 1
    bytes[7] = 0x02; // LRA_V
    put(&mut bytes, 24, disc.blocks.to_be_bytes());
    put(&mut bytes, 28, disc.blocks.saturating_sub(1).to_be_bytes());
    Ok(bytes)
}
