//! The SCSI language, of both ends: command descriptor blocks, sense data, status, VPD and mode pages.
//!
//! Pure: bytes in, meaning out, and back. Nothing here knows a device's state or a wire.
//!
//! The target's way: [`CommandSet::find`] says which operation a CDB asks for, and the command of its standard
//! ([`PrimaryCommand::parse`], ...) reads the fields; the functions that return bytes build the answer. The initiator's
//! way: [`build`] makes the CDB, the `parse` functions read the answer.
#![forbid(unsafe_code)]

pub mod build;
mod bytes;
mod capacity;
mod command;
pub mod copy;
pub mod inquiry;
pub mod log;
pub mod mmc;
pub mod mode;
mod node_name;
mod operation;
pub mod port_groups;
mod receipt;
pub mod report;
pub mod reservation;
pub mod rod;
mod sense;
mod task;
mod unmap;
pub mod vpd;

pub use bytes::AnswerError;
pub use capacity::Capacity;
pub use command::{
    BlockCommand, ByteCheck, ConfigurationRequest, DiscStructure, Extent, LogSense, ModeForm, ModeSense,
    MultimediaCommand, PageControl, PrimaryCommand, ReadDefectData, ReportedLuns, ReportedOperations, Sanitize,
    SanitizeMethod, StartStop, TocFormat, TrackAddress,
};
pub use inquiry::StandardInquiry;
pub use node_name::{IscsiName, NameError};
pub use operation::{
    CommandSet, CommandStandard, Features, Operation, OperationClass, OperationClasses, classes_of,
    code as operation_code, goes_in_pieces, length_field,
};
pub use receipt::{Receipt, Receipts};
pub use sense::{
    AdditionalSense, AtaStatus, FIXED_BYTES, FailedSegment, FieldPointer, Information, OtherProgress, Sense, SenseKey,
    StreamFlags,
};
pub use task::{Cdb, Piece, Reply, Rest, Status, Task};
pub use unmap::{UnmapList, unmap_parameters};
pub use vpd::{DeviceIdentification, Identity};
