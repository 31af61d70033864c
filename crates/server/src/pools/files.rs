//! What is done to the files of a pool. Tests let each step fail.

use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, copy_file_range, fallocate, ioctl_ficlone};
use sanwire_snapshot::Shelf;
use sanwire_store_file::LayerDirectory;

use super::below::KeptBelow;
use super::catalogue::Catalogue;
use crate::kept::StateFile;

/// The steps by which the content of volumes is copied, replaced and removed. How one file comes to hold what another one does is that of the
/// pool: [`Reflink`] has both share their blocks.
pub(super) trait Files: Debug + Send + Sync {
    /// Makes a file, for its owner alone, with what another one holds now. Never over one that is there.
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

    /// How many bytes the file system of a directory has left, and how many it has at all.
    fn space(&self, directory: &Path) -> io::Result<(u64, u64)> {
        let space = rustix::fs::statvfs(directory)?;
        Ok((space.f_bavail.saturating_mul(space.f_frsize), space.f_blocks.saturating_mul(space.f_frsize)))
    }

    /// Whether snapshots can be made there: tried, with two files that are empty.
    fn can_share(&self, directory: &Path) -> bool;

    /// Whether a file there can have a second name, as what is below layers has: tried.
    fn can_link(&self, directory: &Path) -> bool {
        let [file, name] = PROBES.map(|name| directory.join(name));
        let made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&file);
        let linked = made.and_then(|_| fs::hard_link(&file, &name));
        [file, name].iter().for_each(|probe| drop(fs::remove_file(probe)));
        linked.is_ok()
    }

    /// Keeps the catalogue, through crashes.
    fn save(&self, file: &StateFile, catalogue: &Catalogue) -> io::Result<()> {
        catalogue.save(file)
    }

    /// Makes a directory, for its owner alone, if it is not there.
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => path.parent().map_or(Ok(()), |parent| self.sync(parent)),
        }
    }

    /// Makes a file of this length, for its owner alone, that holds nothing. Never over one that is there.
    fn make(&self, path: &Path, length_bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.set_len(length_bytes)
    }

    /// Gives a file a second name.
    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        fs::hard_link(file, name)
    }

    /// Keeps which store is below the layers in a directory, through crashes.
    fn keep_below(&self, directory: &Path, kept: &KeptBelow) -> io::Result<()> {
        kept.save(directory)
    }

    /// Removes a directory with all that is in it, if it is there.
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The layers in a directory, which is made and locked; `direct`: past the page cache.
    fn layers(&self, path: &Path, direct: bool) -> io::Result<Arc<dyn Shelf>> {
        Ok(Arc::new(layer_directory(path, direct)?))
    }
}

/// How long layers are waited for that a process has which was killed: until what it had begun has ended.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// The layers in a directory.
pub(super) fn layer_directory(path: &Path, direct: bool) -> io::Result<LayerDirectory> {
    let give_up_at = Instant::now() + LOCK_TIMEOUT;
    loop {
        match LayerDirectory::with_direct(path, direct) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < give_up_at => {
                thread::sleep(LOCK_INTERVAL);
            }
            opened => return opened,
        }
    }
}

/// Files in the directory of a pool for a moment. No volume has a file of these names.
const PROBES: [&str; 2] = [".sanwire-probe.a", ".sanwire-probe.b"];

/// Files that share blocks until one of them is written to (XFS, btrfs and others).
#[derive(Debug)]
pub(super) struct Reflink;

impl Files for Reflink {
    fn can_share(&self, directory: &Path) -> bool {
        let make = |name: &str| -> io::Result<File> {
            let path = directory.join(name);
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path);
            fs::remove_file(&path)?;
            file
        };
        let probes = PROBES.map(make);
        matches!(&probes, [Ok(from), Ok(to)] if ioctl_ficlone(to, from).is_ok())
    }

    fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        let from = File::open(from)?;
        let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
        // The kernel writes out first what it has of the source in memory.
        Ok(ioctl_ficlone(&to, &from)?)
    }

    fn replace(&self, from: &Path, onto: &Path) -> io::Result<()> {
        let (from, onto) = (File::open(from)?, OpenOptions::new().write(true).open(onto)?);
        let (from_bytes, onto_bytes) = (from.metadata()?.len(), onto.metadata()?.len());
        if from_bytes < onto_bytes && !from_bytes.is_multiple_of(SHARED_MULTIPLE_BYTES) {
            copy(&from, &onto, from_bytes)?;
        } else {
            ioctl_ficlone(&onto, &from)?;
        }
        zero_behind(&onto, from_bytes, onto_bytes)
    }
}

/// A file system shares whole blocks of its own only, but for the last one at the end of both files. None has longer blocks than this.
const SHARED_MULTIPLE_BYTES: u64 = 64 << 10;

/// So much is copied at a time, at the most.
const COPY_MAX_BYTES: usize = 1 << 30;

/// The same for one that ends within a block of the longer one: what can be shared is, and the rest is copied.
fn copy(from: &File, onto: &File, length_bytes: u64) -> io::Result<()> {
    let shared_bytes = length_bytes - length_bytes % SHARED_MULTIPLE_BYTES;
    let mut at = 0;
    for end in [shared_bytes, length_bytes] {
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(COPY_MAX_BYTES).min(COPY_MAX_BYTES);
            let (mut read_at, mut write_at) = (at, at);
            match copy_file_range(from, Some(&mut read_at), onto, Some(&mut write_at), length)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                copied => at += copied as u64,
            }
        }
    }
    Ok(())
}

/// The file reads as zeroes from there to its end.
pub(super) fn zero_behind(file: &File, from_bytes: u64, end_bytes: u64) -> io::Result<()> {
    if from_bytes >= end_bytes {
        return Ok(());
    }
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, punch, from_bytes, end_bytes - from_bytes)?)
}
