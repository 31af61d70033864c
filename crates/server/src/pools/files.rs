//! What is done to the files of a pool. Tests let each step fail.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate, ioctl_ficlone};

use super::catalogue::Catalogue;
use crate::kept::StateFile;

/// The steps by which the content of volumes is copied, replaced and removed. How one file comes to hold what another one does is that of the
/// pool: [`Reflink`] has both share their blocks.
pub(super) trait Files: Debug + Send + Sync {
    /// Makes a file, for its owner alone, with what another one holds now.
    fn copy(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Has a file hold what another one does, which is not longer, and zeroes behind that. Doing it again is doing it once.
    fn replace(&self, from: &Path, onto: &Path) -> io::Result<()>;

    /// Makes a file or directory stable, by a description of its own: one that serves is told by itself what was lost.
    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Removes a file, if it is there.
    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Keeps the catalogue, through crashes.
    fn save(&self, file: &StateFile, catalogue: &Catalogue) -> io::Result<()> {
        file.save(catalogue)
    }
}

/// Files that share blocks until one of them is written to (XFS, btrfs and others).
#[derive(Debug)]
pub(super) struct Reflink;

impl Files for Reflink {
    fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        let from = File::open(from)?;
        // One that a crash has left there is nobody's.
        self.remove(to)?;
        let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
        // The kernel writes out first what it has of the source in memory.
        Ok(ioctl_ficlone(&to, &from)?)
    }

    fn replace(&self, from: &Path, onto: &Path) -> io::Result<()> {
        let (from, onto) = (File::open(from)?, OpenOptions::new().write(true).open(onto)?);
        let (from_bytes, onto_bytes) = (from.metadata()?.len(), onto.metadata()?.len());
        ioctl_ficlone(&onto, &from)?;
        zero_behind(&onto, from_bytes, onto_bytes)
    }
}

/// The file reads as zeroes from there to its end.
pub(super) fn zero_behind(file: &File, from_bytes: u64, end_bytes: u64) -> io::Result<()> {
    if from_bytes >= end_bytes {
        return Ok(());
    }
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, punch, from_bytes, end_bytes - from_bytes)?)
}
