//! The host's side: an ATA disk that answers SCSI commands, so that whoever drives SCSI units drives it too.
//!
//! What a disk says of itself in IDENTIFY DEVICE answers questions at once; commands for its sectors become [`Work`], which the wire cuts
//! into as many ATA commands as it must.

mod pages;
mod sense;
mod work;

pub use work::{Host, Plan, Told, Work};
