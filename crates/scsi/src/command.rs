//! What a CDB asks of a logical unit: an enum for each standard, which reads what its table of operations has.

mod fields;
mod mmc;
mod place;
mod sbc;
mod spc;

pub use mmc::{ConfigurationRequest, DiscStructure, MultimediaCommand, TocFormat, TrackAddress};
pub use sbc::BlockCommand;
pub use spc::PrimaryCommand;

/// A run of logical blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Extent {
    /// The first block.
    pub lba: u64,
    /// How many; zero is legal in most commands.
    pub blocks: u32,
}

/// What a verification compares with (SBC-4 5.36, BYTCHK).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ByteCheck {
    /// 00b: nothing, the blocks only have to be readable.
    Medium,
    /// 01b: the data sent, byte for byte.
    Data,
    /// 11b: each block with the one block sent.
    OneBlock,
}

/// Which values of the mode pages are asked for (SPC-5 6.14.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PageControl {
    /// The values in effect.
    Current = 0,
    /// A one for each bit that MODE SELECT may change.
    Changeable = 1,
    /// The values after a reset.
    Default = 2,
    /// The values kept in non-volatile memory.
    Saved = 3,
}

/// The two forms of MODE SENSE and MODE SELECT, which differ in their parameter header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ModeForm {
    /// The six-byte CDB: a header of four bytes.
    Six,
    /// The ten-byte CDB: a header of eight bytes.
    Ten,
}

/// The fields of MODE SENSE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ModeSense {
    /// Six or ten bytes.
    pub form: ModeForm,
    /// Leave the block descriptors out.
    pub no_descriptors: bool,
    /// Block descriptors may have the long form.
    pub long_lba: bool,
    /// Which values.
    pub control: PageControl,
    /// Which page; 3Fh for all.
    pub page: u8,
    /// Which subpage; FFh for all.
    pub subpage: u8,
    /// Room for the answer, in bytes.
    pub allocation_bytes: u32,
}

/// The fields of LOG SENSE (SPC-5 6.8). Its values are always the cumulative ones, in effect now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LogSense {
    /// Which page.
    pub page: u8,
    /// Which subpage; FFh of page 00h lists all pages with their subpages.
    pub subpage: u8,
    /// The parameter to begin with, or the next after it.
    pub parameter_pointer: u16,
    /// Room for the answer, in bytes.
    pub allocation_bytes: u32,
}

/// Which operations REPORT SUPPORTED OPERATION CODES reports (SPC-5 6.35.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReportedOperations {
    /// 000b: all of them.
    All,
    /// 001b: one that takes no service action.
    Code(u8),
    /// 010b: one with its service action.
    CodeAndAction(u8, u16),
    /// 011b: one, with its service action if it takes one.
    Either(u8, u16),
}

/// The fields of READ DEFECT DATA (SBC-3 5.18 and 5.19).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReadDefectData {
    /// The twelve-byte command, whose answer has a longer header.
    pub is_long: bool,
    /// REQ_PLIST, REQ_GLIST and DEFECT LIST FORMAT, as they stand in one byte; the answer repeats them.
    pub request: u8,
    /// Room for the answer, in bytes.
    pub allocation_bytes: u32,
}

/// The fields of START STOP UNIT (SBC-4 5.31).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StartStop {
    /// POWER CONDITION; with any but zero the other fields do not count.
    pub power_condition: u8,
    /// What is cached need not be written before.
    pub no_flush: bool,
    /// The medium is loaded (with `start`) or ejected.
    pub load_eject: bool,
    /// Start, not stop.
    pub start: bool,
}

/// How all of the medium is made unreadable (SBC-4 5.29).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SanitizeMethod {
    /// It is written, as the parameter list says.
    Overwrite,
    /// It is given back.
    BlockErase,
    /// Not at all: a failure is taken as it is.
    ExitFailureMode,
}

/// The fields of SANITIZE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sanitize {
    /// What to do.
    pub method: SanitizeMethod,
    /// The status comes at the beginning.
    pub immediate: bool,
    /// AUSE: after a failure, EXIT FAILURE MODE is allowed.
    pub unrestricted_exit: bool,
    /// Bytes of the parameter list.
    pub parameter_bytes: u16,
}

/// Which logical units REPORT LUNS reports (SPC-5 6.33).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReportedLuns {
    /// 00h and 02h: all that can be addressed; there are no well-known units.
    All,
    /// 01h: well-known units only.
    WellKnown,
}

#[cfg(test)]
pub(crate) mod tests;
