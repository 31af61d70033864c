//! What is written down of one attachment.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::registry::RegistryError;
use crate::telling;

/// One attachment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The process that serves it.
    pub pid: u32,
    /// When that process started, in the kernel's ticks: a process id may come again.
    pub pid_started: u64,
    /// The volume's URL.
    pub volume: String,
    /// The volume's name at its server, where the URL does not end with it.
    #[serde(default)]
    pub name: Option<String>,
    /// What its server calls it, and no other volume: `naa.` and 16 hexadecimal digits, where it has such a name.
    #[serde(default)]
    pub identity: Option<String>,
    /// What it is attached as.
    pub kind: Kind,
    /// Where its process tells how it is.
    #[serde(default)]
    pub status: Option<PathBuf>,
    /// Where its process does what is asked, of an array: its copies are compared there, for one.
    #[serde(default)]
    pub control: Option<PathBuf>,
}

/// What a volume is attached as.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A file, perhaps with a block device over it.
    Fuse {
        /// The directory.
        mount_point: PathBuf,
        /// Whether attaching made the directory.
        made_mount_point: bool,
        /// The file.
        file: PathBuf,
        /// The number of the file system (`st_dev`): one that is mounted at the same place later has another one.
        #[serde(default)]
        file_system: Option<u64>,
        /// The block device.
        device: Option<PathBuf>,
        /// Its name in `/dev/sanwire`.
        #[serde(default)]
        name: Option<PathBuf>,
    },
    /// An NBD server.
    Nbd {
        /// Its unix socket, if it has one.
        socket: Option<PathBuf>,
        /// Its URL.
        url: String,
    },
}

impl Record {
    /// A record of this process.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn of_this_process(volume: String, kind: Kind) -> Result<Self, RegistryError> {
        let pid = std::process::id();
        let pid_started = start_time(pid).ok_or_else(|| RegistryError::Io {
            path: PathBuf::from(format!("/proc/{pid}/stat")),
            source: io::ErrorKind::InvalidData.into(),
        })?;
        Ok(Record { pid, pid_started, volume, name: None, identity: None, kind, status: None, control: None })
    }

    /// Whether its process still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.pid_started)
    }

    /// How it is, as its process tells; `None` when that does not answer for so long.
    #[must_use]
    pub fn look(&self, patience: Duration) -> Option<Value> {
        telling::ask(self.status.as_deref()?, patience).ok()
    }

    /// The block device, when it has one.
    #[must_use]
    pub fn device(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Fuse { device, .. } => device.as_deref(),
            Kind::Nbd { .. } => None,
        }
    }

    /// The block device's name, when it has one.
    #[must_use]
    pub fn device_name(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Fuse { name, .. } => name.as_deref(),
            Kind::Nbd { .. } => None,
        }
    }

    /// Where it is found: the block device, the file or the NBD URL.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.kind {
            Kind::Fuse { file, device, .. } => device.as_ref().unwrap_or(file).display().to_string(),
            Kind::Nbd { url, .. } => url.clone(),
        }
    }

    /// Whether people may mean it by `name`: its volume's URL, the last part of that or the volume's name, its device, mount point, file or socket.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        let path = fs::canonicalize(name).unwrap_or_else(|_| PathBuf::from(name));
        let is = |ours: &Path| ours == path || ours == Path::new(name);
        let by_volume =
            self.volume == name || self.volume.rsplit('/').next() == Some(name) || self.name.as_deref() == Some(name);
        by_volume
            || match &self.kind {
                Kind::Fuse { mount_point, file, device, .. } => {
                    is(mount_point) || is(file) || device.as_deref().is_some_and(is)
                }
                Kind::Nbd { socket, url } => url == name || socket.as_deref().is_some_and(is),
            }
    }
}

/// Field 22 of `/proc/PID/stat` (proc(5)); the second field may contain anything, so count from its end. A zombie
/// does not count: it serves nothing.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
