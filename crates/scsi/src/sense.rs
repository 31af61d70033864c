//! Sense data: what is the matter (SPC-5 4.5).

mod additional;
mod ata;
mod descriptor;
mod fixed;
mod specific;

pub use additional::AdditionalSense;
pub use ata::AtaStatus;
pub use fixed::FIXED_BYTES;

use std::fmt;

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

/// The INFORMATION field (SPC-5 4.5.2.2), where it is valid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Information {
    /// Where: an LBA, or a byte offset for MISCOMPARE.
    Place(u64),
    /// Of a sequential-access device (SSC-5 4.2.10): what was asked for less what was done, in bytes or blocks; negative, in two's
    /// complement, where the block was longer than what was asked for.
    Residue(i64),
}

/// The bits that devices with a stream of blocks set (SPC-5 4.5.2.5.1): tapes, first of all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct StreamFlags {
    /// The command has met a filemark or setmark.
    pub filemark: bool,
    /// The medium, or the partition, begins or ends here, or will soon (EOM).
    pub end_of_medium: bool,
    /// The block has another length than was asked for (ILI).
    pub incorrect_length: bool,
}

impl StreamFlags {
    const FILEMARK: u8 = 0x80;
    const END_OF_MEDIUM: u8 = 0x40;
    const INCORRECT_LENGTH: u8 = 0x20;

    fn to_bits(self) -> u8 {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        bit(self.filemark, Self::FILEMARK)
            | bit(self.end_of_medium, Self::END_OF_MEDIUM)
            | bit(self.incorrect_length, Self::INCORRECT_LENGTH)
    }

    fn from_bits(bits: u8) -> Self {
        StreamFlags {
            filemark: bits & Self::FILEMARK != 0,
            end_of_medium: bits & Self::END_OF_MEDIUM != 0,
            incorrect_length: bits & Self::INCORRECT_LENGTH != 0,
        }
    }
}

/// How far another long command of the unit has come (SPC-5 4.5.2.9). Only the descriptor format tells it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OtherProgress {
    /// The key with which that command's progress is told.
    pub key: SenseKey,
    /// The condition with which it is told.
    pub additional: AdditionalSense,
    /// In parts of 65,536.
    pub progress: u16,
}

/// Which devices wrote the sense data that is read: they mean different things by INFORMATION.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meaning {
    Place,
    Residue,
}

/// The meaning of sense data, in either format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sense {
    /// The kind of condition.
    pub key: SenseKey,
    /// The condition.
    pub additional: AdditionalSense,
    /// Where, or how much is left.
    pub information: Option<Information>,
    /// What the command has met in a stream of blocks.
    pub stream: StreamFlags,
    /// The field in error, for ILLEGAL REQUEST.
    pub field: Option<FieldPointer>,
    /// The segment in error, for COPY ABORTED.
    pub segment: Option<FailedSegment>,
    /// How far a long command has come, in parts of 65,536, for NOT READY and NO SENSE.
    pub progress: Option<u16>,
    /// How far another one has come.
    pub other_progress: Option<OtherProgress>,
    /// The registers of an ATA device behind the unit. The fixed format has no INFORMATION besides.
    pub ata: Option<AtaStatus>,
    /// Whether it tells of an earlier command than the one it ends.
    pub is_deferred: bool,
}

impl Sense {
    /// The condition alone.
    #[must_use]
    pub const fn new(key: SenseKey, additional: AdditionalSense) -> Self {
        Sense {
            key,
            additional,
            information: None,
            stream: StreamFlags { filemark: false, end_of_medium: false, incorrect_length: false },
            field: None,
            segment: None,
            progress: None,
            other_progress: None,
            ata: None,
            is_deferred: false,
        }
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

    /// The same with an INFORMATION field that says where.
    #[must_use]
    pub const fn with_information(mut self, place: u64) -> Self {
        self.information = Some(Information::Place(place));
        self
    }

    /// The same with an INFORMATION field that says how much is left: see [`Information::Residue`].
    #[must_use]
    pub const fn with_residue(mut self, residue: i64) -> Self {
        self.information = Some(Information::Residue(residue));
        self
    }

    /// The same with what the command has met in a stream of blocks.
    #[must_use]
    pub const fn with_stream(mut self, stream: StreamFlags) -> Self {
        self.stream = stream;
        self
    }

    /// What ATA PASS-THROUGH with CK_COND answers (SAT-4 12.2.5): the registers, as an error that was recovered from.
    #[must_use]
    pub const fn of_ata(status: AtaStatus) -> Self {
        let mut sense = Self::new(SenseKey::RecoveredError, AdditionalSense::ATA_PASS_THROUGH_INFORMATION_AVAILABLE);
        sense.ata = Some(status);
        sense
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

    /// Reads either format; `None` when it is neither, has a reserved key or ends before key and code. INFORMATION is taken for a place.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Sense> {
        Self::read(bytes, Meaning::Place)
    }

    /// The same of a sequential-access device: INFORMATION is a residue.
    #[must_use]
    pub fn parse_of_stream(bytes: &[u8]) -> Option<Sense> {
        Self::read(bytes, Meaning::Residue)
    }

    fn read(bytes: &[u8], meaning: Meaning) -> Option<Sense> {
        let code = bytes.first()? & 0x7f;
        let mut sense = match code {
            0x70 | 0x71 => fixed::parse(bytes, meaning)?,
            0x72 | 0x73 => descriptor::parse(bytes, meaning)?,
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
        match self.information {
            Some(Information::Place(at)) if self.key == SenseKey::Miscompare => write!(f, " at byte {at}")?,
            Some(Information::Place(at)) => write!(f, " at block {at}")?,
            Some(Information::Residue(left)) => write!(f, ", {left} left")?,
            None => {}
        }
        for (is_set, words) in [
            (self.stream.filemark, ", at a filemark"),
            (self.stream.end_of_medium, ", at the end of the medium"),
            (self.stream.incorrect_length, ", with a block of another length"),
        ] {
            f.write_str(if is_set { words } else { "" })?;
        }
        if let Some(FieldPointer { in_cdb, byte, .. }) = self.field {
            write!(f, " in byte {byte} of the {}", if in_cdb { "CDB" } else { "parameter list" })?;
        }
        if let Some(segment) = self.segment {
            write!(f, " in segment {}", segment.number)?;
        }
        if let Some(ata) = self.ata {
            write!(f, ", ATA status {:02x}h, error {:02x}h", ata.status, ata.error)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
