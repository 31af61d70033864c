//! The registers of a command that has failed, as sense data.

use sanwire_scsi::{AdditionalSense, Sense, SenseKey};

use crate::task_file::{Registers, error, status};

/// What is the matter; `is_write`: the command was to change the medium.
pub(super) fn of(registers: &Registers, is_write: bool) -> Sense {
    let (fault, bits) = (registers.status & status::DF != 0, registers.error);
    let (key, additional) = if bits & error::IDNF != 0 {
        (SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE)
    } else if bits & error::NM != 0 {
        (SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT)
    } else if bits & error::WP != 0 && is_write {
        (SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED)
    } else if bits & error::UNC != 0 {
        let sense = Sense::new(SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR);
        return sense.with_information(registers.lba);
    } else if fault {
        (SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE)
    } else {
        (SenseKey::AbortedCommand, AdditionalSense::NONE)
    };
    Sense::new(key, additional)
}
