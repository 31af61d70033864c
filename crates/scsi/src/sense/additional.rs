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

            /// The standard's words for it, when it is one of those named here or that other devices often tell of.
            #[must_use]
            pub fn text(self) -> Option<&'static str> {
                match (self.code, self.qualifier) {
                    $(($code, $qualifier) => Some($text),)*
                    other => foreign(other),
                }
            }
        }
    };
}

additional_sense! {
    NONE = 0x00 0x00 "No additional sense information";
    FILEMARK_DETECTED = 0x00 0x01 "Filemark detected";
    END_OF_PARTITION_OR_MEDIUM_DETECTED = 0x00 0x02 "End-of-partition/medium detected";
    OPERATION_IN_PROGRESS = 0x00 0x16 "Operation in progress";
    ATA_PASS_THROUGH_INFORMATION_AVAILABLE = 0x00 0x1d "ATA pass through information available";
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
    UNEXPECTED_UNSOLICITED_DATA = 0x0c 0x0c "Write error - unexpected unsolicited data";
    NOT_ENOUGH_UNSOLICITED_DATA = 0x0c 0x0d "Write error - not enough unsolicited data";
    THIRD_PARTY_DEVICE_FAILURE = 0x0d 0x01 "Third party device failure";
    COPY_TARGET_DEVICE_NOT_REACHABLE = 0x0d 0x02 "Copy target device not reachable";
    INCORRECT_COPY_TARGET_DEVICE_TYPE = 0x0d 0x03 "Incorrect copy target device type";
    INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT = 0x0e 0x03 "Invalid field in command information unit";
    UNRECOVERED_READ_ERROR = 0x11 0x00 "Unrecovered read error";
    PARAMETER_LIST_LENGTH_ERROR = 0x1a 0x00 "Parameter list length error";
    MISCOMPARE_DURING_VERIFY_OPERATION = 0x1d 0x00 "Miscompare during verify operation";
    INVALID_COMMAND_OPERATION_CODE = 0x20 0x00 "Invalid command operation code";
    ACCESS_DENIED_NO_ACCESS_RIGHTS = 0x20 0x02 "Access denied - no access rights";
    LBA_OUT_OF_RANGE = 0x21 0x00 "Logical block address out of range";
    INVALID_TOKEN_OPERATION = 0x23 0x00 "Invalid token operation, cause not reportable";
    UNSUPPORTED_TOKEN_TYPE = 0x23 0x01 "Invalid token operation, unsupported token type";
    REMOTE_TOKEN_USAGE_NOT_SUPPORTED = 0x23 0x02 "Invalid token operation, remote token usage not supported";
    TOKEN_UNKNOWN = 0x23 0x04 "Invalid token operation, token unknown";
    TOKEN_CORRUPT = 0x23 0x05 "Invalid token operation, token corrupt";
    TOKEN_EXPIRED = 0x23 0x07 "Invalid token operation, token expired";
    TOKEN_CANCELLED = 0x23 0x08 "Invalid token operation, token cancelled";
    TOKEN_DELETED = 0x23 0x09 "Invalid token operation, token deleted";
    INVALID_TOKEN_LENGTH = 0x23 0x0a "Invalid token operation, invalid token length";
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
    INVALID_OPERATION_FOR_COPY_SOURCE_OR_DESTINATION = 0x26 0x0c "Invalid operation for copy source or destination";
    COPY_SEGMENT_GRANULARITY_VIOLATION = 0x26 0x0d "Copy segment granularity violation";
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
    COMMANDS_CLEARED_BY_DEVICE_SERVER = 0x2f 0x02 "Commands cleared by device server";
    INCOMPATIBLE_FORMAT = 0x30 0x02 "Cannot read medium - incompatible format";
    SANITIZE_COMMAND_FAILED = 0x31 0x03 "SANITIZE command failed";
    THIN_PROVISIONING_SOFT_THRESHOLD_REACHED = 0x38 0x07 "Thin provisioning soft threshold reached";
    SAVING_PARAMETERS_NOT_SUPPORTED = 0x39 0x00 "Saving parameters not supported";
    MEDIUM_NOT_PRESENT = 0x3a 0x00 "Medium not present";
    MEDIUM_NOT_PRESENT_TRAY_CLOSED = 0x3a 0x01 "Medium not present - tray closed";
    MEDIUM_NOT_PRESENT_TRAY_OPEN = 0x3a 0x02 "Medium not present - tray open";
    INQUIRY_DATA_HAS_CHANGED = 0x3f 0x03 "INQUIRY data has changed";
    REPORTED_LUNS_DATA_HAS_CHANGED = 0x3f 0x0e "Reported LUNs data has changed";
    INTERNAL_TARGET_FAILURE = 0x44 0x00 "Internal target failure";
    PROTOCOL_SERVICE_CRC_ERROR = 0x47 0x05 "Protocol service CRC error";
    INITIATOR_RESPONSE_TIMEOUT = 0x4b 0x06 "Initiator response timeout";
    MEDIUM_REMOVAL_PREVENTED = 0x53 0x02 "Medium removal prevented";
    INSUFFICIENT_RESOURCES = 0x55 0x03 "Insufficient resources";
    INSUFFICIENT_REGISTRATION_RESOURCES = 0x55 0x04 "Insufficient registration resources";
    INSUFFICIENT_RESOURCES_TO_CREATE_ROD_TOKEN = 0x55 0x0d "Insufficient resources to create ROD token";
    ILLEGAL_MODE_FOR_THIS_TRACK = 0x64 0x00 "Illegal mode for this track";
    SET_TARGET_PORT_GROUPS_COMMAND_FAILED = 0x67 0x0a "Set target port groups command failed";
}

/// What our own device never says, but others do that initiators meet (SPC-5 annex F.2): code, qualifier, words. Ascending.
static FOREIGN: &[(u8, u8, &str)] = &[
    (0x00, 0x03, "Setmark detected"),
    (0x00, 0x04, "Beginning-of-partition/medium detected"),
    (0x00, 0x05, "End-of-data detected"),
    (0x00, 0x07, "Programmable early warning detected"),
    (0x02, 0x00, "No seek complete"),
    (0x03, 0x00, "Peripheral device write fault"),
    (0x04, 0x04, "Logical unit not ready, format in progress"),
    (0x04, 0x05, "Logical unit not ready, rebuild in progress"),
    (0x04, 0x06, "Logical unit not ready, recalculation in progress"),
    (0x04, 0x07, "Logical unit not ready, operation in progress"),
    (0x04, 0x09, "Logical unit not ready, self-test in progress"),
    (0x04, 0x0d, "Logical unit not ready, structure check required"),
    (0x04, 0x10, "Logical unit not ready, auxiliary memory not accessible"),
    (0x04, 0x11, "Logical unit not ready, notify (enable spinup) required"),
    (0x04, 0x12, "Logical unit not ready, offline"),
    (0x04, 0x14, "Logical unit not ready, space allocation in progress"),
    (0x05, 0x00, "Logical unit does not respond to selection"),
    (0x06, 0x00, "No reference position found"),
    (0x08, 0x00, "Logical unit communication failure"),
    (0x08, 0x01, "Logical unit communication time-out"),
    (0x08, 0x02, "Logical unit communication parity error"),
    (0x08, 0x03, "Logical unit communication CRC error"),
    (0x09, 0x00, "Track following error"),
    (0x0a, 0x00, "Error log overflow"),
    (0x0b, 0x00, "Warning"),
    (0x0b, 0x01, "Warning - specified temperature exceeded"),
    (0x0b, 0x02, "Warning - enclosure degraded"),
    (0x0c, 0x02, "Write error - auto reallocation failed"),
    (0x0c, 0x03, "Write error - recommend reassignment"),
    (0x0d, 0x00, "Error detected by third party temporary initiator"),
    (0x0d, 0x04, "Copy target device data underrun"),
    (0x0d, 0x05, "Copy target device data overrun"),
    (0x0e, 0x00, "Invalid information unit"),
    (0x0e, 0x01, "Information unit too short"),
    (0x0e, 0x02, "Information unit too long"),
    (0x10, 0x00, "ID CRC or ECC error"),
    (0x10, 0x01, "Logical block guard check failed"),
    (0x10, 0x02, "Logical block application tag check failed"),
    (0x10, 0x03, "Logical block reference tag check failed"),
    (0x11, 0x01, "Read retries exhausted"),
    (0x11, 0x04, "Unrecovered read error - auto reallocate failed"),
    (0x11, 0x0b, "Unrecovered read error - recommend reassignment"),
    (0x11, 0x0c, "Unrecovered read error - recommend rewrite the data"),
    (0x14, 0x00, "Recorded entity not found"),
    (0x14, 0x01, "Record not found"),
    (0x15, 0x00, "Random positioning error"),
    (0x15, 0x01, "Mechanical positioning error"),
    (0x16, 0x00, "Data synchronization mark error"),
    (0x17, 0x00, "Recovered data with no error correction applied"),
    (0x17, 0x01, "Recovered data with retries"),
    (0x18, 0x00, "Recovered data with error correction applied"),
    (0x19, 0x00, "Defect list error"),
    (0x1b, 0x00, "Synchronous data transfer error"),
    (0x1c, 0x00, "Defect list not found"),
    (0x1d, 0x01, "Miscompare verify of unmapped LBA"),
    (0x21, 0x01, "Invalid element address"),
    (0x21, 0x04, "Unaligned write command"),
    (0x21, 0x05, "Write boundary violation"),
    (0x21, 0x06, "Attempt to read invalid data"),
    (0x21, 0x07, "Read boundary violation"),
    (0x22, 0x00, "Illegal function"),
    (0x23, 0x03, "Invalid token operation, remote ROD token creation not supported"),
    (0x23, 0x06, "Invalid token operation, token revoked"),
    (0x24, 0x08, "Invalid XCDB"),
    (0x26, 0x01, "Parameter not supported"),
    (0x26, 0x02, "Parameter value invalid"),
    (0x26, 0x03, "Threshold parameters not supported"),
    (0x27, 0x01, "Hardware write protected"),
    (0x27, 0x03, "Associated write protect"),
    (0x27, 0x04, "Persistent write protect"),
    (0x27, 0x05, "Permanent write protect"),
    (0x27, 0x06, "Conditional write protect"),
    (0x29, 0x01, "Power on occurred"),
    (0x29, 0x02, "SCSI bus reset occurred"),
    (0x29, 0x04, "Device internal reset"),
    (0x2a, 0x00, "Parameters changed"),
    (0x2a, 0x02, "Log parameters changed"),
    (0x2a, 0x07, "Implicit asymmetric access state transition failed"),
    (0x2a, 0x08, "Priority changed"),
    (0x2a, 0x10, "Timestamp changed"),
    (0x2c, 0x00, "Command sequence error"),
    (0x2c, 0x09, "Previous reservation conflict status"),
    (0x2e, 0x00, "Insufficient time for operation"),
    (0x2e, 0x01, "Command timeout before processing"),
    (0x2e, 0x02, "Command timeout during processing"),
    (0x2e, 0x03, "Command timeout during processing due to error recovery"),
    (0x2f, 0x00, "Commands cleared by another initiator"),
    (0x2f, 0x01, "Commands cleared by power loss notification"),
    (0x30, 0x00, "Incompatible medium installed"),
    (0x31, 0x00, "Medium format corrupted"),
    (0x31, 0x01, "Format command failed"),
    (0x32, 0x00, "No defect spare location available"),
    (0x32, 0x01, "Defect list update failure"),
    (0x34, 0x00, "Enclosure failure"),
    (0x35, 0x00, "Enclosure services failure"),
    (0x37, 0x00, "Rounded parameter"),
    (0x3e, 0x00, "Logical unit has not self-configured yet"),
    (0x3e, 0x01, "Logical unit failure"),
    (0x3e, 0x02, "Timeout on logical unit"),
    (0x3e, 0x03, "Logical unit failed self-test"),
    (0x3f, 0x00, "Target operating conditions have changed"),
    (0x3f, 0x01, "Microcode has been changed"),
    (0x3f, 0x02, "Changed operating definition"),
    (0x3f, 0x05, "Device identifier changed"),
    (0x41, 0x00, "Data path failure"),
    (0x42, 0x00, "Power-on or self-test failure"),
    (0x43, 0x00, "Message error"),
    (0x44, 0x01, "Persistent reservation information lost"),
    (0x45, 0x00, "Select or reselect failure"),
    (0x46, 0x00, "Unsuccessful soft reset"),
    (0x47, 0x00, "SCSI parity error"),
    (0x47, 0x01, "Data phase CRC error detected"),
    (0x47, 0x03, "Information unit iuCRC error detected"),
    (0x47, 0x04, "Asynchronous information protection error detected"),
    (0x47, 0x7f, "Some commands cleared by iSCSI protocol event"),
    (0x48, 0x00, "Initiator detected error message received"),
    (0x49, 0x00, "Invalid message error"),
    (0x4a, 0x00, "Command phase error"),
    (0x4b, 0x00, "Data phase error"),
    (0x4b, 0x01, "Invalid target port transfer tag received"),
    (0x4b, 0x02, "Too much write data"),
    (0x4b, 0x03, "ACK/NAK timeout"),
    (0x4b, 0x04, "NAK received"),
    (0x4b, 0x05, "Data offset error"),
    (0x4b, 0x07, "Connection lost"),
    (0x4c, 0x00, "Logical unit failed self-configuration"),
    (0x4e, 0x00, "Overlapped commands attempted"),
    (0x53, 0x00, "Media load or eject failed"),
    (0x55, 0x00, "System resource failure"),
    (0x55, 0x01, "System buffer full"),
    (0x55, 0x02, "Insufficient reservation resources"),
    (0x5d, 0x00, "Failure prediction threshold exceeded"),
    (0x5e, 0x00, "Low power condition on"),
    (0x65, 0x00, "Voltage fault"),
    (0x67, 0x00, "Configuration failure"),
    (0x68, 0x00, "Logical unit not configured"),
    (0x69, 0x00, "Data loss on logical unit"),
    (0x6a, 0x00, "Informational, refer to log"),
    (0x6e, 0x00, "Command to logical unit failed"),
    (0x74, 0x00, "Security error"),
    (0x74, 0x71, "Logical unit access not authorized"),
];

fn foreign(wanted: (u8, u8)) -> Option<&'static str> {
    let at = FOREIGN.binary_search_by_key(&wanted, |(code, qualifier, _)| (*code, *qualifier)).ok()?;
    FOREIGN.get(at).map(|(_, _, text)| *text)
}

impl fmt::Display for AdditionalSense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match (self.code, self.qualifier) {
            (0x40, 0x80..) => "Diagnostic failure on component",
            // SPC-5 annex F.2: these are the vendors'.
            (0x80.., _) | (_, 0x80..) => "vendor specific condition",
            _ => self.text().unwrap_or("unknown condition"),
        };
        write!(f, "{text} ({:02x}h/{:02x}h)", self.code, self.qualifier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_of_others_stand_in_order_and_none_twice() {
        assert!(FOREIGN.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1)));
    }
}
