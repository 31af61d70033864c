//! Sense data: what is the matter (SPC-5 4.5).

mod additional;

pub use additional::AdditionalSense;

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

/// Which segment of a copy was not copied (SPC-4 4.5.2.4.5 and 6.4: the segment pointer and the command-specific
/// information of EXTENDED COPY).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FailedSegment {
    /// Its place in the list, from 0.
    pub number: u16,
    /// The byte of its descriptor in which the field in error begins, when one is in error.
    pub byte: Option<u16>,
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
    /// The segment in error, for COPY ABORTED.
    pub segment: Option<FailedSegment>,
    /// How far a long command has come, in parts of 65,536, for NOT READY.
    pub progress: Option<u16>,
    /// Whether it tells of an earlier command than the one it ends.
    pub is_deferred: bool,
}

impl Sense {
    /// The condition alone.
    #[must_use]
    pub const fn new(key: SenseKey, additional: AdditionalSense) -> Self {
        Sense { key, additional, information: None, field: None, segment: None, progress: None, is_deferred: false }
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

    /// COPY ABORTED in this segment.
    #[must_use]
    pub const fn copy_aborted(additional: AdditionalSense, segment: FailedSegment) -> Self {
        let mut sense = Self::new(SenseKey::CopyAborted, additional);
        sense.segment = Some(segment);
        sense
    }

    /// The same with a PROGRESS INDICATION (SPC-5 4.5.2.4.4).
    #[must_use]
    pub const fn with_progress(mut self, progress: u16) -> Self {
        self.progress = Some(progress);
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
        if let Some(segment) = self.segment {
            put(&mut bytes, 8, u32::from(segment.number).to_be_bytes());
        }
        bytes[12] = self.additional.code;
        bytes[13] = self.additional.qualifier;
        if let Some(specific) = self.key_specific() {
            put(&mut bytes, 15, specific);
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
        if let Some(segment) = self.segment {
            bytes.extend([0x01, 0x0a, 0x00, 0x00]);
            bytes.extend(u64::from(segment.number).to_be_bytes());
        }
        if let Some(specific) = self.key_specific() {
            bytes.extend([0x02, 0x06, 0x00, 0x00]);
            bytes.extend(specific);
            bytes.push(0);
        }
        bytes[7] = (bytes.len() - 8) as u8;
        bytes
    }

    /// The sense key specific bytes (SPC-5 4.5.2.4), when there is something to say.
    fn key_specific(&self) -> Option<[u8; 3]> {
        let progress = || self.progress.map(u16::to_be_bytes).map(|[high, low]| [0x80, high, low]);
        let in_segment = || self.segment?.byte.map(u16::to_be_bytes).map(|[high, low]| [0xa0, high, low]);
        self.field.map(field_to_wire).or_else(in_segment).or_else(progress)
    }

    fn set_key_specific(&mut self, bytes: &[u8]) {
        self.field = field_from_wire(self.key, bytes);
        self.progress = progress_from_wire(self.key, bytes);
        if let Some(segment) = &mut self.segment {
            segment.byte = segment_byte_from_wire(bytes);
        }
    }

    /// The command-specific information: of copies, the segment.
    fn set_command_specific(&mut self, number: Option<u16>) {
        if self.key == SenseKey::CopyAborted {
            self.segment = number.map(|number| FailedSegment { number, byte: None });
        }
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
        if let Some(segment) = self.segment {
            write!(f, " in segment {}", segment.number)?;
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
    sense.set_command_specific(u16_at(bytes, 10));
    if let Some(specific) = bytes.get(15..18) {
        sense.set_key_specific(specific);
    }
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
            0x01 => sense.set_command_specific(u16_at(body, 8)),
            0x02 => sense.set_key_specific(body.get(2..5).unwrap_or(&[])),
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

/// The segment pointer, when it counts from the segment's descriptor (SD).
fn segment_byte_from_wire(bytes: &[u8]) -> Option<u16> {
    u16_at(bytes, 1).filter(|_| bytes.first().is_some_and(|flags| flags & 0xa0 == 0xa0))
}

fn progress_from_wire(key: SenseKey, bytes: &[u8]) -> Option<u16> {
    let is_valid = matches!(key, SenseKey::NotReady | SenseKey::NoSense) && bytes.first()? & 0x80 != 0;
    u16_at(bytes, 1).filter(|_| is_valid)
}

#[cfg(test)]
mod tests;
