//! A loop device over the file of an attachment, by `losetup` of util-linux.
//!
//! A process that writes such a device back, or only closes it last, waits in the kernel for the process that serves the file, and no
//! signal ends that wait. The serving process must not wait so for itself: killed meanwhile, it would keep its connection to the
//! kernel open, which is what everybody waits for. So other processes do it, see [`Helper`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the kernel may take to release a device that is not in use.
const DETACH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take to find out whether somebody uses a device; it takes longer only while its server is away.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the kernel may take to give a device another size.
const GROW_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How far the kernel reads ahead of who reads a device, or a file on it, from beginning to end, in KiB: several of the longest requests
/// that the file's server takes, so that the wire is not idle while one of them is answered. As much as for Ceph's devices.
const READ_AHEAD_KIB: u32 = 4096;
const O_EXCL: i32 = 0o200;
const EIO: i32 = 5;

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
    /// The server has not taken yet what the kernel has to write.
    #[error("what was written to {} is not at the server yet", .0.display())]
    WritingBack(PathBuf),
    /// The kernel's word on something else.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
}

/// What is done to a block device in a process of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceJob {
    /// Finds out whether somebody uses it.
    Check,
    /// Writes back what the kernel caches of it, if nobody uses it.
    WriteBack,
    /// Gives it the size that its file has by now.
    Grow,
}

/// The command that calls [`perform`] in a process of its own.
///
/// That process inherits no descriptor of `/dev/fuse`: when the one that serves the device dies, the kernel ends what the other
/// waits for.
pub type Helper = fn(DeviceJob, &Path) -> Command;

/// Does the job in this process, and tells the one that has started it how that went: the error number, on stdout.
pub fn perform(job: DeviceJob, device: &Path) {
    let done = match job {
        DeviceJob::Check => open_alone(device).map(drop),
        DeviceJob::WriteBack => open_alone(device).and_then(|file| file.sync_all()),
        DeviceJob::Grow => take_size(device),
    };
    let number = done.map_or_else(|error| error.raw_os_error().unwrap_or(EIO), |()| 0);
    // It may have been killed meanwhile.
    let _ = io::Write::write_all(&mut io::stdout(), format!("\n{RESULT}{number}\n").as_bytes());
}

/// The kernel takes the size that it knows: it is made to ask for the file's before.
fn take_size(device: &Path) -> io::Result<()> {
    let file = backing_file(device).ok_or(io::ErrorKind::NotFound)?;
    fs::metadata(file)?;
    run(Command::new("losetup").arg("--set-capacity").arg(device)).map(drop).map_err(io::Error::other)
}

const RESULT: &str = "device job: ";

/// A [`DeviceJob`] under way in another process.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    device: PathBuf,
}

impl Running {
    pub(crate) fn start(helper: Helper, job: DeviceJob, device: &Path) -> Result<Self, LoopError> {
        let mut command = helper(job, device);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // Ctrl-C is for the process that serves the device.
        command.process_group(0);
        let child = command.spawn().map_err(|source| LoopError::Io { path: device.to_owned(), source })?;
        Ok(Running { child, device: device.to_owned() })
    }

    /// How it went; `None` when it has not ended in this time. A device that somebody uses is [`LoopError::Busy`].
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<Result<io::Result<()>, LoopError>> {
        let deadline = Instant::now() + patience;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Some(match self.result() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(LoopError::Busy(self.device.clone())),
            result => Ok(result),
        })
    }

    fn result(&mut self) -> io::Result<()> {
        let mut said = String::new();
        if let Some(stdout) = &mut self.child.stdout {
            stdout.read_to_string(&mut said)?;
        }
        match said.lines().find_map(|line| line.strip_prefix(RESULT)?.parse().ok()) {
            Some(0) => Ok(()),
            Some(number) => Err(io::Error::from_raw_os_error(number)),
            None => Err(io::Error::other("the process that writes it back has died")),
        }
    }
}

/// Makes a loop device over the file; gives its path.
pub(crate) fn attach(file: &Path, block_bytes: u32, read_only: bool) -> Result<PathBuf, LoopError> {
    let mut command = Command::new("losetup");
    command.args(["--find", "--show", "--direct-io=on", "--sector-size", &block_bytes.to_string()]);
    if read_only {
        command.arg("--read-only");
    }
    let device = PathBuf::from(run(command.arg("--").arg(file))?.trim());
    if read_ahead_kib(&device).is_some_and(|kib| kib < READ_AHEAD_KIB) {
        set_read_ahead(&device, READ_AHEAD_KIB);
    }
    Ok(device)
}

fn read_ahead_kib(device: &Path) -> Option<u32> {
    fs::read_to_string(read_ahead_of(device)?).ok()?.trim().parse().ok()
}

/// Where that cannot be set, in a container for example, long reads are slower and nothing else.
fn set_read_ahead(device: &Path, kib: u32) {
    let Some(path) = read_ahead_of(device) else { return };
    if let Err(error) = fs::write(&path, kib.to_string()) {
        tracing::debug!(%error, path = %path.display(), "the read-ahead stays as it is");
    }
}

fn read_ahead_of(device: &Path) -> Option<PathBuf> {
    Some(Path::new("/sys/block").join(device.file_name()?).join("queue/read_ahead_kb"))
}

fn release(device: &Path) -> Result<(), LoopError> {
    run(Command::new("losetup").arg("--detach").arg(device)).map(drop)
}

/// Gives a device over this file the size that the file has by now; one that has gone meanwhile is nobody's loss.
pub(crate) fn grow(device: &Path, file: &Path, helper: Helper) -> Result<(), LoopError> {
    if backing_file(device).as_deref() != Some(file) {
        return Ok(());
    }
    let grown = Running::start(helper, DeviceJob::Grow, device)?.wait(GROW_TIMEOUT);
    let failed = |source| LoopError::Io { path: device.to_owned(), source };
    grown.unwrap_or_else(|| Ok(Err(io::ErrorKind::TimedOut.into())))?.map_err(failed)
}

/// Takes a device away that was written back and that nobody uses.
pub(crate) fn detach(device: &Path) -> Result<(), LoopError> {
    let Some(backing) = backing_file(device) else { return Ok(()) };
    release(device)?;
    let deadline = Instant::now() + DETACH_TIMEOUT;
    // The kernel detaches at the last close: udev may have the device open for a moment.
    while backing_file(device).as_ref() == Some(&backing) {
        if Instant::now() > deadline {
            return Err(LoopError::Busy(device.to_owned()));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Takes a device away whose file nobody serves any more. One in use goes when its last user does.
pub(crate) fn detach_dead(device: &Path) -> Result<(), LoopError> {
    let shown = device.display();
    match open_alone(device).map(|file| file.sync_all()) {
        Ok(Ok(())) => detach(device),
        Ok(Err(error)) => {
            tracing::warn!(%error, device = %shown, "what was not written yet is lost");
            detach(device)
        }
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            tracing::warn!(device = %shown, "its process has ended: unmount its file systems, and it goes away");
            release(device)
        }
        Err(source) => Err(LoopError::Io { path: device.to_owned(), source }),
    }
}

/// Whether nobody has the device mounted or opened for itself, as far as that can be told while its server is away.
pub(crate) fn check_unused(device: &Path, helper: Helper) -> Result<(), LoopError> {
    let checked = Running::start(helper, DeviceJob::Check, device)?.wait(CHECK_TIMEOUT);
    let failed = |source| LoopError::Io { path: device.to_owned(), source };
    checked.map_or(Ok(()), |result| result?.map_err(failed))
}

fn open_alone(device: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(O_EXCL).open(device)
}

/// The file under a loop device, if it has one.
pub(crate) fn backing_file(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?;
    let path = fs::read_to_string(Path::new("/sys/block").join(name).join("loop/backing_file")).ok()?;
    Some(PathBuf::from(path.trim_end_matches('\n').trim_end_matches(" (deleted)")))
}

/// The number of the file system that the file under a loop device is in; `None` where that cannot be told.
pub(crate) fn backing_file_system(device: &Path) -> Option<u64> {
    let mut command = Command::new("losetup");
    let told = run(command.args(["--list", "--noheadings", "--raw", "--output", "BACK-MAJ:MIN"]).arg(device)).ok()?;
    // The column is padded, and losetup escapes the padding.
    let told = told.replace("\\x20", "");
    let (major, minor) = told.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.trim().parse().ok()?, minor.trim().parse().ok()?))
}

/// The loop devices over files in a directory.
pub(crate) fn devices_within(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let devices = entries.map(|entry| Path::new("/dev").join(entry.file_name()));
    devices.filter(|device| backing_file(device).is_some_and(|file| file.starts_with(directory))).collect()
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
