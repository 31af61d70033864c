//! The file on the local disk, and the file system in it.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::link::call;
use crate::mounted::{Device, Mounted};
use crate::servers::fill;

use super::load::{COPY, COPY_BYTES};

/// Twice what the loads use of it.
const DISK_BYTES: u64 = 768 << 20;

/// The file, gone with the value.
#[derive(Debug)]
pub(super) struct Disk {
    path: String,
}

impl Disk {
    /// Makes it, every block written: holes would be read without the disk.
    pub(super) fn new(directory: &Path) -> Result<Self> {
        let path = directory.join(format!("sanwire-bench-{}.img", std::process::id()));
        let disk = Disk { path: path.display().to_string() };
        fill(&disk.path, DISK_BYTES)?;
        Ok(disk)
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Makes a file system in it with the file that is copied later. Nothing is left to be done in the background.
    pub(super) fn make_file_system(&self, directory: &str) -> Result<()> {
        let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        call("mkfs.ext4", &["-q", "-F", "-E", options, &self.path])?;
        let _mounted = Mounted::new(Device::over(&self.path)?, directory)?;
        fill(&format!("{directory}/{COPY}"), COPY_BYTES)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            eprintln!("sanwire-bench: {}: {error}", self.path);
        }
    }
}
