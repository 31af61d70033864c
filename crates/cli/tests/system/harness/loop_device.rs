//! A block device over a file.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{run, run_ok};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A block device, until it is dropped: its path.
#[derive(Debug)]
pub struct LoopDevice(pub String);

impl LoopDevice {
    /// Makes it over a file of this length, which is made too.
    pub fn new(image: &Path, length_bytes: u64) -> LoopDevice {
        File::create(image).and_then(|file| file.set_len(length_bytes)).expect("an image");
        let mut attach = Command::new("losetup");
        attach.args(["--find", "--show"]).arg(image);
        LoopDevice(run_ok(attach, TIMEOUT).trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let mut detach = Command::new("losetup");
        detach.args(["--detach", &self.0]);
        run(detach, TIMEOUT);
    }
}
