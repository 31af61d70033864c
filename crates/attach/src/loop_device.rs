//! A loop device over the file of an attachment, by `losetup` of util-linux.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the kernel may take to let go of a device that nobody uses.
const DETACH_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const O_EXCL: i32 = 0o200;

/// What went wrong with a loop device.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// The program is not installed.
    #[error("losetup was not found: install util-linux, or attach without a block device")]
    Missing,
    /// It ended with an error.
    #[error("losetup failed: {0}")]
    Failed(String),
    /// A mounted file system, or another program, has the device.
    #[error("{} is in use: unmount its file systems and close it, then try again", .0.display())]
    Busy(PathBuf),
    /// The kernel's word on something else.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
}

/// Makes a loop device over the file; gives its path.
pub(crate) fn attach(file: &Path, block_bytes: u32, read_only: bool) -> Result<PathBuf, LoopError> {
    let mut command = Command::new("losetup");
    command.args(["--find", "--show", "--direct-io=on", "--sector-size", &block_bytes.to_string()]);
    if read_only {
        command.arg("--read-only");
    }
    let device = run(command.arg("--").arg(file))?;
    Ok(PathBuf::from(device.trim()))
}

/// Writes back what the kernel caches of the device and takes it away. A device in use stays as it is.
///
/// Gives how the writing back went: a server that is gone must not keep its device here for ever.
pub(crate) fn detach(device: &Path) -> Result<io::Result<()>, LoopError> {
    let Some(backing) = backing_file(device) else { return Ok(Ok(())) };
    let written_back = open_alone(device)?.sync_all();
    run(Command::new("losetup").arg("--detach").arg(device))?;
    let deadline = Instant::now() + DETACH_TIMEOUT;
    // The kernel detaches at the last close: udev may have the device open for a moment.
    while backing_file(device).as_ref() == Some(&backing) {
        if Instant::now() > deadline {
            return Err(LoopError::Busy(device.to_owned()));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(written_back)
}

/// Whether nobody has the device mounted or opened for itself.
pub(crate) fn check_unused(device: &Path) -> Result<(), LoopError> {
    open_alone(device).map(drop)
}

fn open_alone(device: &Path) -> Result<File, LoopError> {
    let opened = OpenOptions::new().read(true).custom_flags(O_EXCL).open(device);
    opened.map_err(|source| match source.kind() {
        io::ErrorKind::ResourceBusy => LoopError::Busy(device.to_owned()),
        _ => LoopError::Io { path: device.to_owned(), source },
    })
}

/// The file under a loop device, if it has one.
pub(crate) fn backing_file(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?;
    let path = std::fs::read_to_string(Path::new("/sys/block").join(name).join("loop/backing_file")).ok()?;
    Some(PathBuf::from(path.trim_end_matches('\n')))
}

fn run(command: &mut Command) -> Result<String, LoopError> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => LoopError::Missing,
        _ => LoopError::Failed(error.to_string()),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LoopError::Failed(if said.is_empty() { output.status.to_string() } else { said }))
}
