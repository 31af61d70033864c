//! What goes wrong, as sense data.

use sanwire_scsi::{AdditionalSense, Reply, Sense, SenseKey, Status};
use sanwire_store::{ErrorKind, StoreError};

/// The device did not do what its own parts agreed on.
pub(crate) const INTERNAL: Sense = Sense::new(SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE);

/// The store's backing object is gone: an administrator has to bring it back.
pub(crate) const NOT_ACCESSIBLE: Sense =
    Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_MANUAL_INTERVENTION_REQUIRED);

pub(crate) const LBA_OUT_OF_RANGE: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE);

/// What the command is about is not in the unit any more.
pub(crate) const MEDIUM_CHANGED: Sense =
    Sense::new(SenseKey::UnitAttention, AdditionalSense::NOT_READY_TO_READY_CHANGE);

/// The content of the unit was replaced after this command had come. Its key is one after which initiators do not give a write again: that
/// would come over what was put there.
pub(crate) const REPLACED: Sense = Sense::new(SenseKey::DataProtect, AdditionalSense::NOT_READY_TO_READY_CHANGE);

/// There is no logical unit of this number.
pub(crate) const NOT_SUPPORTED: Sense =
    Sense::new(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);

/// Somebody may not do that with the unit.
pub(crate) const ACCESS_DENIED: Sense =
    Sense::new(SenseKey::IllegalRequest, AdditionalSense::ACCESS_DENIED_NO_ACCESS_RIGHTS);

/// Sense data for a failed request. Medium errors carry the LBA, if it has one: a flush has no place.
pub(crate) fn sense(error: &StoreError, lba: Option<u64>) -> Sense {
    let at_lba = |additional| {
        let sense = Sense::new(SenseKey::MediumError, additional);
        lba.map_or(sense, |lba| sense.with_information(lba))
    };
    let protect = |additional| Sense::new(SenseKey::DataProtect, additional);
    match error.kind {
        ErrorKind::Unreadable => at_lba(AdditionalSense::UNRECOVERED_READ_ERROR),
        ErrorKind::Unwritable => at_lba(AdditionalSense::WRITE_ERROR),
        // SBC-4 4.7.3.6: no space behind a thin unit.
        ErrorKind::Full => protect(AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT),
        ErrorKind::ReadOnly => protect(AdditionalSense::WRITE_PROTECTED),
        ErrorKind::OutOfRange => LBA_OUT_OF_RANGE,
        ErrorKind::Gone => NOT_ACCESSIBLE,
        ErrorKind::Unsupported | ErrorKind::Other => INTERNAL,
    }
}

/// CHECK CONDITION with sense data in fixed or descriptor format.
pub(crate) fn check_condition(sense: &Sense, descriptor: bool) -> Reply {
    let sense = if descriptor { sense.to_descriptor() } else { sense.to_fixed() };
    Reply { sense, ..Reply::bare(Status::CheckCondition) }
}
