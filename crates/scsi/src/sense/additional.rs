//! Additional sense codes: what exactly is the matter.

use std::fmt;

/// Additional sense code and qualifier (SPC-5 annex F.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AdditionalSense {
    /// The code (ASC).
    pub code: u8,
    /// The qualifier (ASCQ).
    pub qualifier: u8,
}

macro_rules! additional_sense {
    ($($name:ident = $code:literal $qualifier:literal $text:literal;)*) => {
        impl AdditionalSense {
            $(
                #[doc = $text]
                pub const $name: AdditionalSense = AdditionalSense { code: $code, qualifier: $qualifier };
            )*

            /// The standard's words for it, when it is one of those named here.
            #[must_use]
            pub fn text(self) -> Option<&'static str> {
                match (self.code, self.qualifier) {
                    $(($code, $qualifier) => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

additional_sense! {
    NONE = 0x00 0x00 "No additional sense information";
    OPERATION_IN_PROGRESS = 0x00 0x16 "Operation in progress";
    NOT_READY_CAUSE_NOT_REPORTABLE = 0x04 0x00 "Logical unit not ready, cause not reportable";
    NOT_READY_BECOMING_READY = 0x04 0x01 "Logical unit is in process of becoming ready";
    NOT_READY_INITIALIZING_COMMAND_REQUIRED = 0x04 0x02 "Logical unit not ready, initializing command required";
    NOT_READY_MANUAL_INTERVENTION_REQUIRED = 0x04 0x03 "Logical unit not ready, manual intervention required";
    NOT_READY_ASYMMETRIC_ACCESS_STATE_TRANSITION = 0x04 0x0a "Logical unit not accessible, asymmetric access state transition";
    NOT_READY_TARGET_PORT_STANDBY = 0x04 0x0b "Logical unit not accessible, target port in standby state";
    NOT_READY_TARGET_PORT_UNAVAILABLE = 0x04 0x0c "Logical unit not accessible, target port in unavailable state";
    NOT_READY_SANITIZE_IN_PROGRESS = 0x04 0x1b "Logical unit not ready, sanitize in progress";
    UNREACHABLE_COPY_TARGET = 0x08 0x04 "Unreachable copy target";
    WRITE_ERROR = 0x0c 0x00 "Write error";
    THIRD_PARTY_DEVICE_FAILURE = 0x0d 0x01 "Third party device failure";
    COPY_TARGET_DEVICE_NOT_REACHABLE = 0x0d 0x02 "Copy target device not reachable";
    INCORRECT_COPY_TARGET_DEVICE_TYPE = 0x0d 0x03 "Incorrect copy target device type";
    INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT = 0x0e 0x03 "Invalid field in command information unit";
    UNRECOVERED_READ_ERROR = 0x11 0x00 "Unrecovered read error";
    PARAMETER_LIST_LENGTH_ERROR = 0x1a 0x00 "Parameter list length error";
    MISCOMPARE_DURING_VERIFY_OPERATION = 0x1d 0x00 "Miscompare during verify operation";
    INVALID_COMMAND_OPERATION_CODE = 0x20 0x00 "Invalid command operation code";
    LBA_OUT_OF_RANGE = 0x21 0x00 "Logical block address out of range";
    INVALID_FIELD_IN_CDB = 0x24 0x00 "Invalid field in CDB";
    LOGICAL_UNIT_NOT_SUPPORTED = 0x25 0x00 "Logical unit not supported";
    INVALID_FIELD_IN_PARAMETER_LIST = 0x26 0x00 "Invalid field in parameter list";
    INVALID_RELEASE_OF_PERSISTENT_RESERVATION = 0x26 0x04 "Invalid release of persistent reservation";
    TOO_MANY_TARGET_DESCRIPTORS = 0x26 0x06 "Too many target descriptors";
    UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE = 0x26 0x07 "Unsupported target descriptor type code";
    TOO_MANY_SEGMENT_DESCRIPTORS = 0x26 0x08 "Too many segment descriptors";
    UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE = 0x26 0x09 "Unsupported segment descriptor type code";
    UNEXPECTED_INEXACT_SEGMENT = 0x26 0x0a "Unexpected inexact segment";
    INLINE_DATA_LENGTH_EXCEEDED = 0x26 0x0b "Inline data length exceeded";
    WRITE_PROTECTED = 0x27 0x00 "Write protected";
    SOFTWARE_WRITE_PROTECTED = 0x27 0x02 "Logical unit software write protected";
    SPACE_ALLOCATION_FAILED_WRITE_PROTECT = 0x27 0x07 "Space allocation failed write protect";
    NOT_READY_TO_READY_CHANGE = 0x28 0x00 "Not ready to ready change, medium may have changed";
    POWER_ON_OR_RESET_OCCURRED = 0x29 0x00 "Power on, reset, or bus device reset occurred";
    BUS_DEVICE_RESET_FUNCTION_OCCURRED = 0x29 0x03 "Bus device reset function occurred";
    IT_NEXUS_LOSS_OCCURRED = 0x29 0x07 "I_T nexus loss occurred";
    MODE_PARAMETERS_CHANGED = 0x2a 0x01 "Mode parameters changed";
    RESERVATIONS_PREEMPTED = 0x2a 0x03 "Reservations preempted";
    RESERVATIONS_RELEASED = 0x2a 0x04 "Reservations released";
    REGISTRATIONS_PREEMPTED = 0x2a 0x05 "Registrations preempted";
    ASYMMETRIC_ACCESS_STATE_CHANGED = 0x2a 0x06 "Asymmetric access state changed";
    CAPACITY_DATA_HAS_CHANGED = 0x2a 0x09 "Capacity data has changed";
    SANITIZE_COMMAND_FAILED = 0x31 0x03 "SANITIZE command failed";
    THIN_PROVISIONING_SOFT_THRESHOLD_REACHED = 0x38 0x07 "Thin provisioning soft threshold reached";
    SAVING_PARAMETERS_NOT_SUPPORTED = 0x39 0x00 "Saving parameters not supported";
    MEDIUM_NOT_PRESENT = 0x3a 0x00 "Medium not present";
    INQUIRY_DATA_HAS_CHANGED = 0x3f 0x03 "INQUIRY data has changed";
    REPORTED_LUNS_DATA_HAS_CHANGED = 0x3f 0x0e "Reported LUNs data has changed";
    INTERNAL_TARGET_FAILURE = 0x44 0x00 "Internal target failure";
    MEDIUM_REMOVAL_PREVENTED = 0x53 0x02 "Medium removal prevented";
    INSUFFICIENT_RESOURCES = 0x55 0x03 "Insufficient resources";
    INSUFFICIENT_REGISTRATION_RESOURCES = 0x55 0x04 "Insufficient registration resources";
}

impl fmt::Display for AdditionalSense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text().unwrap_or("unknown condition");
        write!(f, "{text} ({:02x}h/{:02x}h)", self.code, self.qualifier)
    }
}
