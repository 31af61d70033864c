//! The SCSI language, of both ends: command descriptor blocks, sense data, status, VPD and mode pages.
//!
//! Pure: bytes in, meaning out, and back. Nothing here knows a device's state or a wire.
#![forbid(unsafe_code)]

mod task;

pub use task::{Cdb, Reply, Status, Task};
