//! A volume attached as a file, and as a block device over it.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{Config, MountOption, Notifier, Session};
use rustix::mount::{UnmountFlags, unmount};
use sanwire_core::Size;
use sanwire_initiator::{Volume, VolumeError, VolumeInfo};

use crate::bytes::ByteVolume;
use crate::executor::{Executor, block_on};
use crate::filesystem::{self, VolumeFilesystem};
use crate::growth::GrowthWatch;
use crate::latch::{Latch, wait_any};
use crate::loop_device::{self, DeviceJob, Running};
pub use crate::loop_device::{Helper, LoopError};
use crate::remains;

/// Threads that read requests from the kernel, and threads that finish them: two of each use two cores.
const READERS: usize = 2;
const WORKERS: usize = 2;
/// How often an unmount is tried while somebody (udev, a closing program) still looks at the file.
const UNMOUNT_TRIES: u32 = 25;
const UNMOUNT_INTERVAL: Duration = Duration::from_millis(40);
/// How long one [`Attachment::detach`] waits for the kernel to write its cache of the block device back.
const WRITE_BACK_TIMEOUT: Duration = Duration::from_secs(5);

/// How to attach.
#[derive(Clone, Debug)]
pub struct FuseOptions {
    /// Where the file system goes; a directory that is missing is made, and removed at the end.
    pub mount_point: PathBuf,
    /// Whether to put a block device (`/dev/loopN`) over the file. It takes root.
    pub block_device: bool,
    /// Whether nothing is written, also where the server would take it.
    pub read_only: bool,
    /// Who writes that device back at the end.
    pub helper: Helper,
}

/// Why a volume could not be attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The directory cannot be used.
    #[error("cannot use {} as the mount point: {source}", path.display())]
    MountPoint {
        /// Which directory.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// The directory has something in it.
    #[error(
        "cannot use {} as the mount point: it is not empty, and what is in it would be hidden while the volume is attached; choose an \
         empty directory, or one that is not there yet", .0.display()
    )]
    NotEmpty(PathBuf),
    /// The mount was refused.
    #[error("cannot mount at {}: {source}; check that /dev/fuse is there and that you are root or have fusermount3", path.display())]
    Mount {
        /// Where.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// The block device over the file failed.
    #[error(transparent)]
    BlockDevice(#[from] LoopError),
    /// Somebody has the file open.
    #[error("{} is in use: close what uses the file in it, then try again ({why})", path.display())]
    Busy {
        /// Which mount point.
        path: PathBuf,
        /// What the unmount said.
        why: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The kernel could not write its cache of the block device back.
    #[error("the cache of {} could not be written back, so what was written last may be lost: {source}", device.display())]
    WriteBack {
        /// Which device.
        device: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// The last flush failed.
    #[error("the last flush failed, so what was written last may be lost: {0}")]
    Flush(VolumeError),
}

/// Why [`Attachment::wait`] came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Somebody unmounted the file system.
    Unmounted,
    /// The latch was set.
    Stopped,
}

/// An attached volume. Dropping it detaches as far as that goes without waiting for users.
#[derive(Debug)]
pub struct Attachment {
    /// The block device, when one was asked for.
    pub device: Option<PathBuf>,
    /// The file that is the volume.
    pub file: PathBuf,
    mount_point: PathBuf,
    made_mount_point: bool,
    mounted: Option<Mounted>,
    helper: Helper,
    writing_back: Option<Running>,
}

/// What runs while the file system is mounted.
struct Mounted {
    volume: ByteVolume,
    executor: Executor,
    session: JoinHandle<()>,
    workers: Vec<JoinHandle<()>>,
    session_ended: Latch,
    notifier: Notifier,
    watch: Option<GrowthWatch>,
}

impl std::fmt::Debug for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mounted")
    }
}

/// Mounts a file system with one file, the volume, and puts a block device over it if that is wanted.
///
/// # Errors
/// See [`AttachError`]; nothing is left mounted then.
pub fn attach_fuse(volume: Volume, options: FuseOptions) -> Result<Attachment, AttachError> {
    let volume = ByteVolume::new(volume, options.read_only);
    let info = volume.info();
    let made_mount_point = prepare_mount_point(&options.mount_point, &source(&info))?;
    let mount_point = options
        .mount_point
        .canonicalize()
        .map_err(|source| AttachError::MountPoint { path: options.mount_point.clone(), source })?;
    let file = mount_point.join(file_name(&info));
    // From here on, dropping the attachment undoes what was done.
    let helper = options.helper;
    let mut attachment =
        Attachment { device: None, file, mount_point, made_mount_point, mounted: None, helper, writing_back: None };
    attachment.mounted = Some(mount(volume, &info, &attachment.mount_point)?);
    if options.block_device {
        attachment.device = Some(loop_device::attach(&attachment.file, info.block_bytes, info.read_only)?);
    }
    attachment.watch_growth()?;
    Ok(attachment)
}

impl Attachment {
    /// The directory that the file system is mounted on.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Whether [`Attachment::detach`] removes the mount point, because attaching made it.
    #[must_use]
    pub fn made_mount_point(&self) -> bool {
        self.made_mount_point
    }

    /// From now on what the volume grows by is seen in the file and the block device.
    fn watch_growth(&mut self) -> Result<(), AttachError> {
        let Some(mounted) = &mut self.mounted else { return Ok(()) };
        let (file, device, helper) = (self.file.clone(), self.device.clone(), self.helper);
        let notifier = mounted.notifier.clone();
        let grown = move |size_bytes| {
            // The kernel believes the old size for a while; a kernel that cannot be told asks then.
            let _ = filesystem::tell_growth(&notifier);
            let Some(device) = &device else { return };
            let shown = device.display();
            match loop_device::grow(device, &file, helper) {
                Ok(()) => tracing::info!("{shown} has {} now", Size(size_bytes)),
                Err(error) => {
                    tracing::error!("{shown} keeps its old size: {error}; try `losetup --set-capacity {shown}`")
                }
            }
        };
        let watch = GrowthWatch::start(mounted.volume.volume().clone(), grown).map_err(AttachError::Thread)?;
        mounted.watch = Some(watch);
        Ok(())
    }

    /// Waits until `stop` is set or somebody unmounts the file system.
    pub fn wait(&self, stop: &Latch) -> Ended {
        let Some(mounted) = &self.mounted else { return Ended::Unmounted };
        wait_any(&[stop.as_fd(), mounted.session_ended.as_fd()]);
        if mounted.session_ended.is_set() { Ended::Unmounted } else { Ended::Stopped }
    }

    /// Takes the block device away, flushes the volume and unmounts. When somebody still uses the device or the
    /// file, everything that is in use stays as it is and goes on working: try again later.
    ///
    /// # Errors
    /// [`AttachError::BlockDevice`] and [`AttachError::Busy`] leave it attached; after [`AttachError::WriteBack`] and
    /// [`AttachError::Flush`] it is detached.
    pub fn detach(&mut self) -> Result<(), AttachError> {
        let written_back = self.detach_device()?;
        let Some(mounted) = self.mounted.take() else { return Ok(()) };
        let flushed = mounted.flush();
        if !mounted.session_ended.is_set()
            && let Err(why) = unmount_patiently(&self.mount_point)
        {
            self.mounted = Some(mounted);
            return Err(AttachError::Busy { path: self.mount_point.clone(), why });
        }
        mounted.end();
        if self.made_mount_point {
            // It stays when somebody has put something else there.
            let _ = std::fs::remove_dir(&self.mount_point);
        }
        written_back.and(flushed)
    }

    /// Gives how the last writing back went.
    fn detach_device(&mut self) -> Result<Result<(), AttachError>, AttachError> {
        let Some(device) = &self.device else { return Ok(Ok(())) };
        let mut written_back = Ok(());
        if loop_device::backing_file(device).is_some() {
            let running = match self.writing_back.take() {
                Some(running) => running,
                None => Running::start(self.helper, DeviceJob::WriteBack, device)?,
            };
            let running = self.writing_back.insert(running);
            let ended = running.wait(WRITE_BACK_TIMEOUT).ok_or_else(|| LoopError::WritingBack(device.clone()))?;
            self.writing_back = None;
            written_back = ended?;
            loop_device::detach(device)?;
        }
        let device = self.device.take().unwrap_or_default();
        Ok(written_back.map_err(|source| AttachError::WriteBack { device, source }))
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Err(error) = self.detach() {
            tracing::warn!(%error, "the volume stays attached until its users are gone");
        }
    }
}

impl Mounted {
    fn flush(&self) -> Result<(), AttachError> {
        if self.volume.info().read_only {
            return Ok(());
        }
        block_on(self.volume.flush()).map_err(AttachError::Flush)
    }

    fn end(self) {
        drop(self.watch);
        let _ = self.session.join();
        self.executor.stop();
        for worker in self.workers {
            let _ = worker.join();
        }
    }
}

fn mount(volume: ByteVolume, info: &VolumeInfo, mount_point: &Path) -> Result<Mounted, AttachError> {
    let failed = |source| AttachError::Mount { path: mount_point.to_owned(), source };
    let executor = Executor::default();
    let session_ended = Latch::new().map_err(AttachError::Thread)?;
    let filesystem = VolumeFilesystem::new(volume.clone(), executor.clone(), file_name(info));
    let mut workers = Vec::with_capacity(WORKERS);
    for _ in 0..WORKERS {
        let worker = executor.clone();
        workers.push(spawn("fuse-worker", move || worker.work(|| ()))?);
    }
    let session = Session::new(filesystem, mount_point, &configuration(info)).map_err(|source| {
        executor.stop();
        failed(source)
    })?;
    let notifier = session.notifier();
    let ended = session_ended.clone();
    let session = spawn("fuse-session", move || {
        if let Err(error) = session.run() {
            tracing::warn!(%error, "the FUSE session ended");
        }
        ended.set();
    })?;
    Ok(Mounted { volume, executor, session, workers, session_ended, notifier, watch: None })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, AttachError> {
    std::thread::Builder::new().name(name.into()).spawn(work).map_err(AttachError::Thread)
}

fn configuration(info: &VolumeInfo) -> Config {
    let mut configuration = Config::default();
    configuration.mount_options = vec![
        MountOption::FSName(source(info)),
        MountOption::Subtype("sanwire".into()),
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoExec,
        MountOption::DefaultPermissions,
        if info.read_only { MountOption::RO } else { MountOption::RW },
    ];
    configuration.n_threads = Some(READERS);
    configuration.clone_fd = true;
    configuration
}

/// What the list of mounts calls it.
fn source(info: &VolumeInfo) -> String {
    format!("{}/{}", info.server, info.name).replace([',', '\\'], "_")
}

/// The volume's name as a file's.
fn file_name(info: &VolumeInfo) -> String {
    let name = info.name.replace(['/', '\0'], "_");
    if matches!(name.as_str(), "" | "." | "..") { "volume".into() } else { name }
}

/// Makes the directory if it is missing; says whether it did. A dead mount of the same volume there is removed.
fn prepare_mount_point(path: &Path, source: &str) -> Result<bool, AttachError> {
    let refused = |source| AttachError::MountPoint { path: path.to_owned(), source };
    if remains::remove_dead_mount(path, Some(source))? {
        tracing::warn!(mount_point = %path.display(), "removed what an attachment that died had left behind");
    }
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => match std::fs::read_dir(path).map_err(refused)?.next() {
            Some(_) => Err(AttachError::NotEmpty(path.to_owned())),
            None => Ok(false),
        },
        Ok(_) => Err(refused(io::ErrorKind::NotADirectory.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(path).map(|()| true).map_err(refused)
        }
        Err(error) => Err(refused(error)),
    }
}

fn unmount_patiently(mount_point: &Path) -> Result<(), String> {
    let mut result = unmount_once(mount_point, false);
    for _ in 1..UNMOUNT_TRIES {
        if result.is_ok() {
            break;
        }
        std::thread::sleep(UNMOUNT_INTERVAL);
        result = unmount_once(mount_point, false);
    }
    result
}

/// Unmounts: by the kernel for root, by fusermount3 for everybody else. `lazily` also takes away what is in use.
pub(crate) fn unmount_once(mount_point: &Path, lazily: bool) -> Result<(), String> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match unmount(mount_point, flags) {
        Err(rustix::io::Errno::PERM) => {}
        result => return result.map_err(|error| error.to_string()),
    }
    let arguments: &[&str] = if lazily { &["-u", "-z", "--"] } else { &["-u", "--"] };
    let output = Command::new("fusermount3").args(arguments).arg(mount_point).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("fusermount3: {error}")),
    }
}

#[cfg(test)]
mod tests;
