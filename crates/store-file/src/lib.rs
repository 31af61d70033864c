//! Blocks in files and on block devices of this machine, and [`blocking`], which does by ordinary calls what the kernel is to do for
//! any store.
//!
//! [`register`] makes their kinds known to [`sanwire_store::VolumeSpec`]: `file:PATH`, and the absolute path of a block device.
#![forbid(unsafe_code)]

pub mod blocking;
mod file;
mod kind;
mod layers;

pub use file::{
    FileOptions, FileStore, VolumeMark, mark_records, metadata, records_mark, remove_made, synced_metadata,
};
pub use kind::register;
pub use layers::LayerDirectory;
