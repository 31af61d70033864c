//! What is attached on this host, for `detach` and lists in other processes: one small file for each attachment.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sanwire_initiator::{Claim, Unclaimed};
use serde_json::Value;

use crate::device_name;
use crate::loop_device::{self, Helper, LoopError};
use crate::record::{Kind, Record};
use crate::remains::{is_dead_mount, remove_dead_mount};
use crate::telling::{self, Telling};

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long an attachment has at least to tell whether it is in use, and a client that goes to be gone.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// Why the registry failed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A file of it failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The user has no directory for it.
    #[error("XDG_RUNTIME_DIR is not set: set it to a directory of your own, where attachments are listed")]
    NoPlace,
    /// Nothing of this name is attached.
    #[error("{0} is not attached on this host: `sanwire ls` lists what is")]
    Unknown(String),
    /// Several attachments go by this name.
    #[error("{count} attachments are called {name}: name the device or the mount point instead")]
    Ambiguous {
        /// The name.
        name: String,
        /// How many.
        count: usize,
    },
    /// The volume is attached already.
    #[error(
        "{volume} is attached on this host already{place}: two attachments write without knowing of each other; detach that one, or add --again if that is meant"
    )]
    Attached {
        /// The volume.
        volume: String,
        /// As what.
        place: String,
    },
    /// The block device is in use.
    #[error(transparent)]
    BlockDevice(#[from] LoopError),
    /// Programs are connected to the NBD server.
    #[error("{volume} is in use by {count} NBD clients at {place}: end or disconnect them, then try again")]
    Connected {
        /// The volume.
        volume: String,
        /// How many.
        count: u64,
        /// Where.
        place: String,
    },
    /// The NBD server does not say whether programs are connected to it.
    #[error("{volume} at {place} does not tell whether NBD clients use it: try again, or end process {pid}")]
    Silent {
        /// The volume.
        volume: String,
        /// Where.
        place: String,
        /// Which process.
        pid: u32,
    },
    /// The process may not be ended by this user.
    #[error("cannot end process {pid}: {source}")]
    Signal {
        /// Which process.
        pid: u32,
        /// The kernel's word.
        source: io::Error,
    },
    /// The process is still there.
    #[error("process {pid} still serves {volume} after {waited_s} s: its file or device may be in use")]
    StillServing {
        /// Which process.
        pid: u32,
        /// Which volume.
        volume: String,
        /// How long.
        waited_s: u64,
    },
}

/// How a detach went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Detached {
    /// What was attached.
    pub record: Record,
    /// Whether its process had died before, so that only its remains were removed.
    pub was_dead: bool,
}

/// The directory of records.
#[derive(Clone, Debug)]
pub struct Registry {
    directory: PathBuf,
    helper: Helper,
}

/// A record that stands in the registry until this is dropped.
#[derive(Debug)]
pub struct Listing {
    path: PathBuf,
}

impl Registry {
    /// The registry of this user: in `/run/sanwire` for root, else in `$XDG_RUNTIME_DIR/sanwire`.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn open(helper: Helper) -> Result<Self, RegistryError> {
        if rustix::process::geteuid().is_root() {
            return Registry::at("/run/sanwire".into(), helper);
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
        Registry::at(PathBuf::from(runtime.ok_or(RegistryError::NoPlace)?).join("sanwire"), helper)
    }

    /// The registry in this directory; `helper` looks whether block devices are in use.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn at(directory: PathBuf, helper: Helper) -> Result<Self, RegistryError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|source| RegistryError::Io { path: directory.clone(), source })?;
        Ok(Registry { directory, helper })
    }

    /// Has this process tell those who ask how an attachment is, until that is dropped: its place is [`Record::status`].
    ///
    /// # Errors
    /// When there can be no socket.
    pub fn telling(&self, tell: impl Fn() -> Value + Send + 'static) -> Result<Telling, RegistryError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(format!("{}-{number}.status", std::process::id()));
        Telling::start(path.clone(), tell).map_err(|source| RegistryError::Io { path, source })
    }

    /// Where this process may listen for what is to be done with what it attaches: that place is [`Record::control`].
    #[must_use]
    pub fn control_place(&self) -> PathBuf {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        self.directory.join(format!("{}-{number}.control", std::process::id()))
    }

    /// Lists an attachment until the [`Listing`] is dropped.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&self, record: &Record) -> Result<Listing, RegistryError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(format!("{}-{number}.json", record.pid));
        write_record(&path, record)?;
        Ok(Listing { path })
    }

    /// Claims a volume, which is told apart by its identity, for this process: it is attached on this host once, and beside others only
    /// by who says so (`again`).
    ///
    /// # Errors
    /// [`RegistryError::Attached`] when another process has it.
    pub fn claim(&self, volume: &str, identity: &str, again: bool) -> Result<Claim, RegistryError> {
        Claim::take(&self.directory.join("claims"), identity, again).map_err(|unclaimed| match unclaimed {
            Unclaimed::Io(path, source) => RegistryError::Io { path, source },
            Unclaimed::Held(pid) => {
                let of_holder = |record: Record| (Some(record.pid) == pid).then(|| record.place());
                let place = self.read().unwrap_or_default().into_iter().find_map(|(_, record)| of_holder(record));
                let place = place.map_or_else(String::new, |place| format!(" as {place}"));
                RegistryError::Attached { volume: volume.to_owned(), place }
            }
        })
    }

    /// Whether a living attachment has its file in this directory.
    #[must_use]
    pub fn has_mount_point(&self, directory: &Path) -> bool {
        let is_there =
            |record: &Record| matches!(&record.kind, Kind::Fuse { mount_point, .. } if mount_point == directory);
        self.read().is_ok_and(|records| records.iter().any(|(_, record)| is_there(record) && record.is_alive()))
    }

    /// What is attached, after the remains of dead processes were removed.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn list(&self) -> Result<Vec<Record>, RegistryError> {
        self.clean()?;
        let mut records: Vec<Record> = self.read()?.into_iter().map(|(_, record)| record).collect();
        records.sort_by(|a, b| a.volume.cmp(&b.volume).then(a.pid.cmp(&b.pid)));
        Ok(records)
    }

    /// Removes the remains of processes that died: loop devices, dead mounts, sockets, records. Gives what it removed;
    /// a device that is still in use goes when its last user does.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn clean(&self) -> Result<Vec<Record>, RegistryError> {
        let mut removed = Vec::new();
        for (path, record) in self.read()? {
            if record.is_alive() {
                continue;
            }
            match remove_remains(&record) {
                Ok(()) => {
                    let _ = fs::remove_file(path);
                    removed.push(record);
                }
                Err(error) => tracing::warn!(%error, volume = record.volume, "remains of a dead attachment stay"),
            }
        }
        Ok(removed)
    }

    /// Ends the attachment of this name, in whatever process it is, and waits for its end.
    ///
    /// # Errors
    /// See [`RegistryError`]. A block device in use is left alone.
    pub fn detach(&self, name: &str, timeout: Duration) -> Result<Detached, RegistryError> {
        let mut found: Vec<_> = self.read()?.into_iter().filter(|(_, record)| record.is_called(name)).collect();
        // The name may have belonged to a dead attachment before: loop devices' numbers are given again.
        if found.iter().any(|(_, record)| record.is_alive()) {
            found.retain(|(_, record)| record.is_alive());
        }
        let count = found.len();
        let (path, record) = match found.pop() {
            Some(found) if count == 1 => found,
            Some(_) => return Err(RegistryError::Ambiguous { name: name.to_owned(), count }),
            None => return Err(RegistryError::Unknown(name.to_owned())),
        };
        if !record.is_alive() {
            remove_remains(&record)?;
            let _ = fs::remove_file(path);
            return Ok(Detached { record, was_dead: true });
        }
        if let Some(device) = record.device().filter(|device| loop_device::backing_file(device).is_some()) {
            loop_device::check_unused(device, self.helper)?;
        }
        let (volume, place, pid) = (record.volume.clone(), record.place(), record.pid);
        match clients_left(&record, timeout) {
            Some(0) => {}
            Some(count) => return Err(RegistryError::Connected { volume, count, place }),
            None => return Err(RegistryError::Silent { volume, place, pid }),
        }
        end_process(&record, &path, timeout)?;
        Ok(Detached { record, was_dead: false })
    }

    fn read(&self) -> Result<Vec<(PathBuf, Record)>, RegistryError> {
        let failed = |source| RegistryError::Io { path: self.directory.clone(), source };
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            // It may go away between the two looks; one that cannot be read is nobody's.
            let Ok(text) = fs::read(&path) else { continue };
            match serde_json::from_slice(&text) {
                Ok(record) => records.push((path, record)),
                Err(error) => tracing::warn!(%error, path = %path.display(), "not a record of an attachment"),
            }
        }
        Ok(records)
    }
}

impl Listing {
    /// More is known of it by now.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn update(&self, record: &Record) -> Result<(), RegistryError> {
        write_record(&self.path, record)
    }
}

fn write_record(path: &Path, record: &Record) -> Result<(), RegistryError> {
    let unfinished = path.with_extension("tmp");
    let failed = |source| RegistryError::Io { path: path.to_owned(), source };
    let text = serde_json::to_vec_pretty(record).map_err(|error| failed(error.into()))?;
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished);
    file.and_then(|mut file| io::Write::write_all(&mut file, &text)).map_err(failed)?;
    fs::rename(&unfinished, path).map_err(failed)
}

impl Drop for Listing {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// How many clients an NBD server has, when those were waited for that are about to go; 0 where nobody is there to tell, and `None` where
/// one is and says nothing for so long: there may be some.
fn clients_left(record: &Record, patience: Duration) -> Option<u64> {
    let (Kind::Nbd { .. }, Some(status)) = (&record.kind, &record.status) else { return Some(0) };
    let told = || match telling::ask(status, patience.max(LOOK_TIMEOUT)) {
        Ok(told) => Some(told["nbd_clients"].as_u64().unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(_) => Some(0),
    };
    let deadline = Instant::now() + LOOK_TIMEOUT;
    loop {
        match told() {
            Some(1..) if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
            count => return count,
        }
    }
}

/// Asks the process to end and waits until the attachment is off the list.
fn end_process(record: &Record, path: &Path, timeout: Duration) -> Result<(), RegistryError> {
    let pid = record.pid;
    let signalled = match i32::try_from(pid).ok().and_then(Pid::from_raw) {
        Some(process) => kill_process(process, Signal::TERM),
        None => Err(rustix::io::Errno::SRCH),
    };
    match signalled {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(RegistryError::Signal { pid, source: error.into() }),
    }
    let deadline = Instant::now() + timeout;
    while path.exists() && record.is_alive() {
        if Instant::now() > deadline {
            let (volume, waited_s) = (record.volume.clone(), timeout.as_secs());
            return Err(RegistryError::StillServing { pid, volume, waited_s });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Undoes what a dead process left. A thing that meanwhile belongs to somebody else is left alone.
fn remove_remains(record: &Record) -> Result<(), LoopError> {
    for socket in [&record.status, &record.control].into_iter().flatten() {
        let _ = fs::remove_file(socket);
    }
    match &record.kind {
        Kind::Fuse { mount_point, made_mount_point, file, file_system, device, name } => {
            let is_left = |device: &&Path| is_left_over(device, file, *file_system);
            if let (Some(name), Some(device)) = (name, device.as_deref())
                && (is_dead_mount(mount_point) || is_left(&device) || loop_device::backing_file(device).is_none())
            {
                device_name::remove(name, device, file);
            }
            if !remove_dead_mount(mount_point, None)?
                && let Some(device) = device.as_deref().filter(is_left)
            {
                loop_device::detach_dead(device)?;
            }
            if *made_mount_point {
                let _ = fs::remove_dir(mount_point);
            }
        }
        Kind::Nbd { socket: Some(socket), .. } => {
            // At the worst an attachment at this place takes it away.
            let _ = sanwire_io::unix::remove_dead(socket);
        }
        Kind::Nbd { socket: None, .. } => {}
    }
    Ok(())
}

/// Whether a loop device is still over the file of a dead attachment. Its number may have been given to another file, or to that of a new
/// attachment at the same place, perhaps in a mount name space in which that is not seen from here.
fn is_left_over(device: &Path, file: &Path, file_system: Option<u64>) -> bool {
    if loop_device::backing_file(device).as_deref() != Some(file) || file.exists() {
        return false;
    }
    // While the device is over it the number is not given again.
    let now = loop_device::backing_file_system(device);
    file_system.zip(now).is_none_or(|(then, now)| then == now)
}

#[cfg(test)]
mod tests;
