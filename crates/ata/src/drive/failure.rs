//! What the unit's refusals and failures are in the registers of an ATA disk.

use sanwire_scsi::{AdditionalSense, Information, Sense, SenseKey};

use crate::task_file::{Registers, TaskFile, error, status};

/// What a command does, as far as its failures differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// It reads the medium.
    Read,
    /// It changes it.
    Write,
    /// Anything else.
    Other,
}

/// The registers of a command whose SCSI command has ended with this sense data.
pub(super) fn registers(task_file: &TaskFile, sense: &Sense, way: Way) -> Registers {
    let place = match sense.information {
        Some(Information::Place(lba)) => Some(lba),
        _ => None,
    };
    let error = match (sense.key, sense.additional) {
        (SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE) => error::IDNF,
        (SenseKey::MediumError, _) if way == Way::Read => error::UNC,
        (SenseKey::DataProtect, additional) if way == Way::Write && !is_full(additional) => error::WP | error::ABRT,
        (SenseKey::NotReady, additional) if is_empty(additional) => error::NM | error::ABRT,
        _ => error::ABRT,
    };
    let failure = Registers::failure(task_file, error);
    let is_fault = match sense.key {
        SenseKey::HardwareError => true,
        SenseKey::MediumError => way != Way::Read,
        _ => false,
    };
    Registers {
        lba: place.unwrap_or(failure.lba),
        status: failure.status | if is_fault { status::DF } else { 0 },
        ..failure
    }
}

/// There is no space, though writing is allowed.
fn is_full(additional: AdditionalSense) -> bool {
    additional == AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT
}

fn is_empty(additional: AdditionalSense) -> bool {
    matches!(
        additional,
        AdditionalSense::MEDIUM_NOT_PRESENT
            | AdditionalSense::MEDIUM_NOT_PRESENT_TRAY_CLOSED
            | AdditionalSense::MEDIUM_NOT_PRESENT_TRAY_OPEN
    )
}
