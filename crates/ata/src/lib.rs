//! An ATA disk: task files, IDENTIFY DEVICE data, and the commands of ATA8-ACS to ACS-3 that a disk without a bus needs.
//!
//! Pure: no I/O, no thread, no wire. ATA over Ethernet and HDSP carry task files each in its own way; what these mean is here.
#![forbid(unsafe_code)]

mod command;
mod drive;
mod host;
mod identify;
mod place;
pub mod smart;
mod task_file;
pub mod trim;

pub use command::{Command, Feature, Smart, TransferMode, code as command_code};
pub use drive::{Answer, Ask, Drive, Execution, Facts, Step};
pub use host::{Host, Plan, Told, Work};
pub use identify::{Abilities, IDENTIFY_BYTES, IdentifyDevice, IdentifyError, Trim};
pub use place::{Chs, Place};
pub use task_file::{DEVICE_LBA, Registers, SECTORS_OF_28_BITS, TaskFile, error, status};
