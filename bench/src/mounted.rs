//! Block devices over a file or over an attachment, and what is mounted from them.

use std::fs;

use anyhow::{Context, Result};

use crate::link::call;
use crate::process::Running;
use crate::servers::wait_for;

/// A block device, gone with the value.
#[derive(Debug)]
pub(crate) struct Device {
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
    pub(crate) fn over(file: &str) -> Result<Self> {
        let path = call("losetup", &["--find", "--show", "--direct-io=on", file])?.trim().to_owned();
        Ok(Device { path, behind: Behind::Loop })
    }

    /// The device of `sanwire attach`, when it is there.
    pub(crate) fn of_attachment(attachment: Running, directory: &str) -> Result<Self> {
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

    pub(crate) fn path(&self) -> &str {
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
pub(crate) struct Mounted {
    pub(crate) device: Device,
    pub(crate) directory: String,
}

impl Mounted {
    pub(crate) fn new(device: Device, directory: &str) -> Result<Self> {
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
