//! Sense data: what is the matter (SPC-5 4.5).

use std::fmt;

use crate::bytes::{put, u16_at, u32_at, u64_at};

/// The length of the fixed format as built here, in bytes.
pub const FIXED_BYTES: usize = 18;

/// Sense keys (SPC-5 4.5.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum SenseKey {
    /// Nothing to report.
    NoSense = 0x0,
    /// Done, after some recovery.
    RecoveredError = 0x1,
    /// The logical unit cannot be accessed.
    NotReady = 0x2,
    /// A flaw in the medium or an error in the recorded data.
    MediumError = 0x3,
    /// A failure of the device itself.
    HardwareError = 0x4,
    /// The command or its parameters were wrong.
    IllegalRequest = 0x5,
    /// Something happened that the initiator must learn.
    UnitAttention = 0x6,
    /// The medium is protected against the access.
    DataProtect = 0x7,
    /// Blank or non-blank where the other was expected.
    BlankCheck = 0x8,
    /// Vendor specific.
    VendorSpecific = 0x9,
    /// EXTENDED COPY could not be completed.
    CopyAborted = 0xa,
    /// The device aborted the command; trying again may help.
    AbortedCommand = 0xb,
    /// The end of the medium, with data left.
    VolumeOverflow = 0xd,
    /// The data compared differs.
    Miscompare = 0xe,
    /// The command completed, with something to say.
    Completed = 0xf,
}

impl SenseKey {
    const ALL: [SenseKey; 15] = [
        SenseKey::NoSense,
        SenseKey::RecoveredError,
        SenseKey::NotReady,
        SenseKey::MediumError,
        SenseKey::HardwareError,
        SenseKey::IllegalRequest,
        SenseKey::UnitAttention,
        SenseKey::DataProtect,
        SenseKey::BlankCheck,
        SenseKey::VendorSpecific,
        SenseKey::CopyAborted,
        SenseKey::AbortedCommand,
        SenseKey::VolumeOverflow,
        SenseKey::Miscompare,
        SenseKey::Completed,
    ];

    /// The key with this code; `None` for the one reserved code and above 0Fh.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|key| *key as u8 == code)
    }
}

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
    NOT_READY_CAUSE_NOT_REPORTABLE = 0x04 0x00 "Logical unit not ready, cause not reportable";
    NOT_READY_BECOMING_READY = 0x04 0x01 "Logical unit is in process of becoming ready";
    NOT_READY_INITIALIZING_COMMAND_REQUIRED = 0x04 0x02 "Logical unit not ready, initializing command required";
    NOT_READY_MANUAL_INTERVENTION_REQUIRED = 0x04 0x03 "Logical unit not ready, manual intervention required";
    WRITE_ERROR = 0x0c 0x00 "Write error";
    UNRECOVERED_READ_ERROR = 0x11 0x00 "Unrecovered read error";
    PARAMETER_LIST_LENGTH_ERROR = 0x1a 0x00 "Parameter list length error";
    MISCOMPARE_DURING_VERIFY_OPERATION = 0x1d 0x00 "Miscompare during verify operation";
    INVALID_COMMAND_OPERATION_CODE = 0x20 0x00 "Invalid command operation code";
    LBA_OUT_OF_RANGE = 0x21 0x00 "Logical block address out of range";
    INVALID_FIELD_IN_CDB = 0x24 0x00 "Invalid field in CDB";
    LOGICAL_UNIT_NOT_SUPPORTED = 0x25 0x00 "Logical unit not supported";
    INVALID_FIELD_IN_PARAMETER_LIST = 0x26 0x00 "Invalid field in parameter list";
    WRITE_PROTECTED = 0x27 0x00 "Write protected";
    SOFTWARE_WRITE_PROTECTED = 0x27 0x02 "Logical unit software write protected";
    SPACE_ALLOCATION_FAILED_WRITE_PROTECT = 0x27 0x07 "Space allocation failed write protect";
    POWER_ON_OR_RESET_OCCURRED = 0x29 0x00 "Power on, reset, or bus device reset occurred";
    BUS_DEVICE_RESET_FUNCTION_OCCURRED = 0x29 0x03 "Bus device reset function occurred";
    IT_NEXUS_LOSS_OCCURRED = 0x29 0x07 "I_T nexus loss occurred";
    MODE_PARAMETERS_CHANGED = 0x2a 0x01 "Mode parameters changed";
    CAPACITY_DATA_HAS_CHANGED = 0x2a 0x09 "Capacity data has changed";
    SAVING_PARAMETERS_NOT_SUPPORTED = 0x39 0x00 "Saving parameters not supported";
    MEDIUM_NOT_PRESENT = 0x3a 0x00 "Medium not present";
    INQUIRY_DATA_HAS_CHANGED = 0x3f 0x03 "INQUIRY data has changed";
    REPORTED_LUNS_DATA_HAS_CHANGED = 0x3f 0x0e "Reported LUNs data has changed";
    INTERNAL_TARGET_FAILURE = 0x44 0x00 "Internal target failure";
    INSUFFICIENT_RESOURCES = 0x55 0x03 "Insufficient resources";
}

impl fmt::Display for AdditionalSense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text().unwrap_or("unknown condition");
        write!(f, "{text} ({:02x}h/{:02x}h)", self.code, self.qualifier)
    }
}

/// Which field of the CDB or of the parameter list is wrong (SPC-5 4.5.2.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FieldPointer {
    /// In the CDB, not in the parameter list.
    pub in_cdb: bool,
    /// The byte in which the field begins.
    pub byte: u16,
    /// The left-most bit of the field, when it does not fill whole bytes.
    pub bit: Option<u8>,
}

/// The meaning of sense data, in either format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sense {
    /// The kind of condition.
    pub key: SenseKey,
    /// The condition.
    pub additional: AdditionalSense,
    /// The INFORMATION field, when valid: an LBA, or a byte offset for MISCOMPARE.
    pub information: Option<u64>,
    /// The field in error, for ILLEGAL REQUEST.
    pub field: Option<FieldPointer>,
    /// Whether it tells of an earlier command than the one it ends.
    pub is_deferred: bool,
}

impl Sense {
    /// The condition alone.
    #[must_use]
    pub const fn new(key: SenseKey, additional: AdditionalSense) -> Self {
        Sense { key, additional, information: None, field: None, is_deferred: false }
    }

    /// ILLEGAL REQUEST, INVALID FIELD IN CDB at `byte` (and its `bit`, unless the field fills whole bytes).
    #[must_use]
    pub const fn invalid_field_in_cdb(byte: u16, bit: Option<u8>) -> Self {
        let mut sense = Self::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB);
        sense.field = Some(FieldPointer { in_cdb: true, byte, bit });
        sense
    }

    /// ILLEGAL REQUEST, INVALID FIELD IN PARAMETER LIST at `byte`.
    #[must_use]
    pub const fn invalid_field_in_parameters(byte: u16, bit: Option<u8>) -> Self {
        let mut sense = Self::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
        sense.field = Some(FieldPointer { in_cdb: false, byte, bit });
        sense
    }

    /// The same with an INFORMATION field.
    #[must_use]
    pub const fn with_information(mut self, information: u64) -> Self {
        self.information = Some(information);
        self
    }

    /// Fixed format (SPC-5 4.5.3). An INFORMATION value above 32 bits is left out, as the standard says.
    #[must_use]
    pub fn to_fixed(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED_BYTES];
        bytes[0] = 0x70 | u8::from(self.is_deferred);
        bytes[2] = self.key as u8;
        if let Some(information) = self.information.and_then(|value| u32::try_from(value).ok()) {
            bytes[0] |= 0x80;
            put(&mut bytes, 3, information.to_be_bytes());
        }
        bytes[7] = (FIXED_BYTES - 8) as u8;
        bytes[12] = self.additional.code;
        bytes[13] = self.additional.qualifier;
        if let Some(field) = self.field {
            put(&mut bytes, 15, field_to_wire(field));
        }
        bytes
    }

    /// Descriptor format (SPC-5 4.5.2).
    #[must_use]
    pub fn to_descriptor(&self) -> Vec<u8> {
        let code = 0x72 | u8::from(self.is_deferred);
        let mut bytes = vec![code, self.key as u8, self.additional.code, self.additional.qualifier, 0, 0, 0, 0];
        if let Some(information) = self.information {
            bytes.extend([0x00, 0x0a, 0x80, 0x00]);
            bytes.extend(information.to_be_bytes());
        }
        if let Some(field) = self.field {
            bytes.extend([0x02, 0x06, 0x00, 0x00]);
            bytes.extend(field_to_wire(field));
            bytes.push(0);
        }
        bytes[7] = (bytes.len() - 8) as u8;
        bytes
    }

    /// Reads either format; `None` when it is neither, has a reserved key or ends before key and code.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Sense> {
        let code = bytes.first()? & 0x7f;
        let mut sense = match code {
            0x70 | 0x71 => parse_fixed(bytes)?,
            0x72 | 0x73 => parse_descriptor(bytes)?,
            _ => return None,
        };
        sense.is_deferred = code & 1 != 0;
        Some(sense)
    }
}

impl fmt::Display for SenseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SenseKey::NoSense => "no sense",
            SenseKey::RecoveredError => "recovered error",
            SenseKey::NotReady => "not ready",
            SenseKey::MediumError => "medium error",
            SenseKey::HardwareError => "hardware error",
            SenseKey::IllegalRequest => "illegal request",
            SenseKey::UnitAttention => "unit attention",
            SenseKey::DataProtect => "data protect",
            SenseKey::BlankCheck => "blank check",
            SenseKey::VendorSpecific => "vendor specific",
            SenseKey::CopyAborted => "copy aborted",
            SenseKey::AbortedCommand => "aborted command",
            SenseKey::VolumeOverflow => "volume overflow",
            SenseKey::Miscompare => "miscompare",
            SenseKey::Completed => "completed",
        })
    }
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.additional)?;
        if let Some(information) = self.information {
            let what = if self.key == SenseKey::Miscompare { "byte" } else { "block" };
            write!(f, " at {what} {information}")?;
        }
        if let Some(FieldPointer { in_cdb, byte, .. }) = self.field {
            write!(f, " in byte {byte} of the {}", if in_cdb { "CDB" } else { "parameter list" })?;
        }
        Ok(())
    }
}

fn parse_fixed(bytes: &[u8]) -> Option<Sense> {
    let key = SenseKey::from_code(bytes.get(2)? & 0x0f)?;
    // Devices may end early: what is past the additional length is zero.
    let end = bytes.get(7).map_or(bytes.len(), |&more| (8 + usize::from(more)).min(bytes.len()));
    let bytes = &bytes[..end];
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let mut sense = Sense::new(key, AdditionalSense { code: byte(12), qualifier: byte(13) });
    if byte(0) & 0x80 != 0 {
        sense.information = u32_at(bytes, 3).map(u64::from);
    }
    sense.field = bytes.get(15..18).and_then(|field| field_from_wire(key, field));
    Some(sense)
}

fn parse_descriptor(bytes: &[u8]) -> Option<Sense> {
    let key = SenseKey::from_code(bytes.get(1)? & 0x0f)?;
    let mut sense = Sense::new(key, AdditionalSense { code: *bytes.get(2)?, qualifier: *bytes.get(3)? });
    let more = usize::from(bytes.get(7).copied().unwrap_or(0));
    let mut rest = bytes.get(8..).unwrap_or(&[]);
    rest = &rest[..more.min(rest.len())];
    while let [kind, length, after @ ..] = rest {
        let Some(body) = after.get(..usize::from(*length)) else { break };
        match kind {
            0x00 if body.first().is_some_and(|flags| flags & 0x80 != 0) => sense.information = u64_at(body, 2),
            0x02 => sense.field = body.get(2..5).and_then(|field| field_from_wire(key, field)),
            _ => {}
        }
        rest = &after[usize::from(*length)..];
    }
    Some(sense)
}

fn field_to_wire(field: FieldPointer) -> [u8; 3] {
    let in_cdb = if field.in_cdb { 0x40 } else { 0 };
    let bit = field.bit.map_or(0, |bit| 0x08 | (bit & 0x07));
    let [high, low] = field.byte.to_be_bytes();
    [0x80 | in_cdb | bit, high, low]
}

fn field_from_wire(key: SenseKey, bytes: &[u8]) -> Option<FieldPointer> {
    let flags = *bytes.first()?;
    if key != SenseKey::IllegalRequest || flags & 0x80 == 0 {
        return None;
    }
    let bit = (flags & 0x08 != 0).then_some(flags & 0x07);
    Some(FieldPointer { in_cdb: flags & 0x40 != 0, byte: u16_at(bytes, 1)?, bit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fixed_format_has_the_bytes_of_the_standard() {
        let sense = Sense::invalid_field_in_cdb(1, Some(7));
        assert_eq!(sense.to_fixed(), [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xcf, 0, 1]);
        let sense = Sense::new(SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR).with_information(0x1234);
        assert_eq!(sense.to_fixed(), [0xf0, 0, 3, 0, 0, 0x12, 0x34, 10, 0, 0, 0, 0, 0x11, 0, 0, 0, 0, 0]);
        assert_eq!(sense.with_information(1 << 32).to_fixed()[..7], [0x70, 0, 3, 0, 0, 0, 0], "too large: not valid");
    }

    #[test]
    fn descriptor_format_has_the_bytes_of_the_standard() {
        let mut sense = Sense::invalid_field_in_parameters(0x102, None).with_information(1 << 32);
        let body = [0x72, 5, 0x26, 0, 0, 0, 0, 20, 0, 10, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 6, 0, 0, 0x80, 1, 2, 0];
        assert_eq!(sense.to_descriptor(), body);
        sense.is_deferred = true;
        assert_eq!(sense.to_descriptor()[0], 0x73);
    }

    #[test]
    fn sense_data_reads_like_a_sentence() {
        let sense = Sense::new(SenseKey::MediumError, AdditionalSense::WRITE_ERROR).with_information(7);
        assert_eq!(sense.to_string(), "medium error: Write error (0ch/00h) at block 7");
        let sense = Sense::invalid_field_in_cdb(1, Some(7));
        assert_eq!(sense.to_string(), "illegal request: Invalid field in CDB (24h/00h) in byte 1 of the CDB");
    }

    proptest! {
        #[test]
        fn both_formats_survive(
            key in prop::sample::select(SenseKey::ALL.to_vec()), code: u8, qualifier: u8, information: Option<u32>,
            field in prop::option::of((any::<bool>(), any::<u16>(), prop::option::of(0u8..8))), is_deferred: bool,
        ) {
            let field = field.filter(|_| key == SenseKey::IllegalRequest);
            let field = field.map(|(in_cdb, byte, bit)| FieldPointer { in_cdb, byte, bit });
            let information = information.map(u64::from);
            let sense = Sense { key, additional: AdditionalSense { code, qualifier }, information, field, is_deferred };
            prop_assert_eq!(Sense::parse(&sense.to_fixed()), Some(sense));
            let wide = Sense { information: information.map(|value| value << 32 | 7), ..sense };
            prop_assert_eq!(Sense::parse(&wide.to_descriptor()), Some(wide));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), code in 0x70u8..0x74) {
            let mut bytes = bytes;
            let _ = Sense::parse(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = code;
                let _ = Sense::parse(&bytes);
            }
        }
    }
}
