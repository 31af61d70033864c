//! The file on the local disk, block devices over it or over an attachment of it, and the file system in it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::link::call;
use crate::process::Running;
use crate::servers::{fill, wait_for};

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

/// A block device, gone with the value.
#[derive(Debug)]
pub(super) struct Device {
    path: String,
    behind: Behind,
}

#[derive(Debug)]
enum Behind {
    /// A loop device of our own.
    Loop,
    /// A program that takes its device away when it ends.
    Attachment { _program: Running },
}

impl Device {
    /// A loop device with direct I/O, as `sanwire attach` makes it over its file.
    pub(super) fn over(file: &str) -> Result<Self> {
        let path = call("losetup", &["--find", "--show", "--direct-io=on", file])?.trim().to_owned();
        Ok(Device { path, behind: Behind::Loop })
    }

    /// The device of `sanwire attach`, when it is there.
    pub(super) fn of_attachment(attachment: Running, directory: &str) -> Result<Self> {
        let mut path = String::new();
        wait_for("the attached device", || {
            let list = call("losetup", &["--list", "--noheadings", "--output", "NAME,BACK-FILE"])?;
            let mut devices = list.lines().filter_map(|line| line.split_once(' '));
            let found = devices.find(|(_, file)| file.trim().starts_with(directory));
            found.context("no device yet")?.0.clone_into(&mut path);
            Ok(())
        })?;
        Ok(Device { path, behind: Behind::Attachment { _program: attachment } })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        match self.behind {
            Behind::Loop => report(call("losetup", &["--detach", &self.path])),
            Behind::Attachment { .. } => {}
        }
    }
}

/// A mounted device, gone with the value.
#[derive(Debug)]
pub(super) struct Mounted {
    pub(super) device: Device,
    pub(super) directory: String,
}

impl Mounted {
    pub(super) fn new(device: Device, directory: &str) -> Result<Self> {
        fs::create_dir_all(directory)?;
        call("mount", &["-o", "noatime", device.path(), directory])?;
        Ok(Mounted { device, directory: directory.into() })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The device, a field, goes after this.
        report(call("umount", &[&self.directory]));
    }
}

fn report(result: Result<String>) {
    if let Err(error) = result {
        eprintln!("sanwire-bench: {error:#}");
    }
}
