//! Opening: everything that can be wrong with a file is found here, before the first request.

use std::fs::{File, FileType, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use sanwire_store::{Expectation, Geometry, GrowingGeometry, Known, OpenError};

use super::identity::{Present, check_absent, check_present, settle, sync_beside};
use super::whole::Watch;
use super::{FileStore, probe};

/// How to open a [`FileStore`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileOptions {
    /// The length. A file that is absent or empty becomes a sparse file of this length; another one must have it, or be longer.
    pub size_bytes: Option<u64>,
    /// Let `size_bytes` make an existing file longer. Nothing ever makes it shorter.
    pub grow: bool,
    /// Open for reading only. Several servers may share a file that way.
    pub read_only: bool,
    /// Go past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// The logical block; without it 512, or what the block device says.
    pub block_bytes: Option<u32>,
    /// Refuse everything but a block device.
    pub only_block_device: bool,
    /// Whoever opens it has it locked already, by another description.
    pub is_locked: bool,
}

impl FileOptions {
    /// The logical block of files of which none is said.
    pub const BLOCK_BYTES: u32 = 512;
}

impl FileStore {
    /// Opens, creates where asked, locks and examines the file.
    ///
    /// # Errors
    /// Every [`OpenError`]; a file that was created is removed again.
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self, OpenError> {
        Self::open_checked(path.as_ref(), options, None).map(|(store, _)| store)
    }

    /// The same, if the file holds what is expected; and what is to be known of it from now on, before it is used.
    ///
    /// # Errors
    /// Every [`OpenError`]; a file that was created is removed again.
    pub fn open_volume(
        path: impl AsRef<Path>,
        options: &FileOptions,
        expected: &Expectation<'_>,
    ) -> Result<(Self, Option<Known>), OpenError> {
        Self::open_checked(path.as_ref(), options, Some(expected))
    }

    fn open_checked(
        path: &Path,
        options: &FileOptions,
        expected: Option<&Expectation<'_>>,
    ) -> Result<(Self, Option<Known>), OpenError> {
        let opened = open_file(path, options, expected)?;
        let is_new = opened.is_new;
        let made = Self::examine(path, options, opened, expected);
        // What is locked by now belongs to another server that was quicker.
        if is_new && matches!(&made, Err(error) if !matches!(error, OpenError::Locked { .. })) {
            // Best effort: the file is ours and holds nothing.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn examine(
        path: &Path,
        options: &FileOptions,
        opened: Opened,
        expected: Option<&Expectation<'_>>,
    ) -> Result<(Self, Option<Known>), OpenError> {
        let Opened { file, is_new, is_block_device } = opened;
        if !options.is_locked {
            lock(path, &file, options.read_only)?;
        }
        let present = expected.map(|expected| present(path, &file, is_block_device, expected)).transpose()?;
        let (block_bytes, physical_block_bytes) = block_sizes(path, &file, is_block_device, options)?;
        let length_bytes = settle_length(path, &file, is_block_device, options)?;
        check_blocks(path, length_bytes, block_bytes)?;
        // Before anything is made stable: the kernel tells of what is lost those that are open then.
        let direct = options.direct.then(|| open_direct(path, &file, options, block_bytes)).transpose()?;
        let known = expected.zip(present).map(|(expected, present)| {
            let known = settle(expected, &file, &present, options.read_only);
            if is_new {
                make_stable(path, &file);
            }
            Known { length_bytes, ..known }
        });
        let discards = probe::discards(&file, is_block_device, length_bytes, options.read_only);
        let geometry = Geometry {
            length_bytes,
            block_bytes,
            physical_block_bytes,
            read_only: options.read_only,
            discards,
            atomic_write_bytes: 0,
        };
        let (file, buffered) = match direct {
            Some(direct) => (Arc::new(direct), Some(Arc::new(file))),
            None => (Arc::new(file), None),
        };
        Ok((
            FileStore {
                file,
                buffered,
                is_block_device,
                geometry: GrowingGeometry::new(geometry),
                watch: Watch::default(),
            },
            known,
        ))
    }
}

/// Keeps a file that was made through a loss of power, before anything remembers that it was there. Where that cannot be done,
/// it may be missed at the next start.
fn make_stable(path: &Path, file: &File) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = sync_beside(file).and_then(|()| File::open(directory)?.sync_all());
}

/// What is there, if it is what is expected.
fn present(path: &Path, file: &File, is_block_device: bool, expected: &Expectation<'_>) -> Result<Present, OpenError> {
    let present = Present::of(path, file, is_block_device, expected)?;
    check_present(expected, path, &present)?;
    Ok(present)
}

struct Opened {
    file: File,
    is_new: bool,
    is_block_device: bool,
}

fn open_file(path: &Path, options: &FileOptions, expected: Option<&Expectation<'_>>) -> Result<Opened, OpenError> {
    let fail = |action| move |source| OpenError::Io { path: path.into(), action, source };
    let mut how = OpenOptions::new();
    how.read(true).write(!options.read_only);
    // Asked before opening: opening a FIFO would wait for its other end.
    let is_block_device = match std::fs::metadata(path) {
        Ok(metadata) => check_type(path, metadata.file_type(), options)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !options.only_block_device {
                expected.map_or(Ok(()), |expected| check_absent(expected, path))?;
            }
            if options.size_bytes.is_none() || options.read_only || options.only_block_device {
                return Err(missing(path, options, error));
            }
            // What a disk holds is for nobody else to read.
            let file = how.create_new(true).mode(0o600).open(path).map_err(fail("create"))?;
            return Ok(Opened { file, is_new: true, is_block_device: false });
        }
        Err(error) => return Err(fail("examine")(error)),
    };
    if is_block_device && !options.read_only {
        // On block devices O_EXCL refuses what is mounted or otherwise claimed.
        how.custom_flags(libc::O_EXCL);
    }
    match how.open(path) {
        Ok(file) => Ok(Opened { file, is_new: false, is_block_device }),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Err(OpenError::Locked { path: path.into() }),
        Err(error) => Err(fail("open")(error)),
    }
}

fn missing(path: &Path, options: &FileOptions, source: io::Error) -> OpenError {
    if options.read_only || options.only_block_device {
        OpenError::Io { path: path.into(), action: "open", source }
    } else {
        OpenError::Missing { path: path.into() }
    }
}

/// Whether it is a block device; an error when it is neither that nor a regular file.
fn check_type(path: &Path, kind: FileType, options: &FileOptions) -> Result<bool, OpenError> {
    if kind.is_block_device() {
        Ok(true)
    } else if options.only_block_device {
        Err(OpenError::Type { path: path.into(), expected: "a block device (a regular file is written file:PATH)" })
    } else if kind.is_file() {
        Ok(false)
    } else {
        Err(OpenError::Type { path: path.into(), expected: "a regular file or a block device" })
    }
}

fn lock(path: &Path, file: &File, read_only: bool) -> Result<(), OpenError> {
    let locked = if read_only { file.try_lock_shared() } else { file.try_lock() };
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => OpenError::Locked { path: path.into() },
        TryLockError::Error(source) => OpenError::Io { path: path.into(), action: "lock", source },
    })
}

/// Logical and physical block.
fn block_sizes(
    path: &Path,
    file: &File,
    is_block_device: bool,
    options: &FileOptions,
) -> Result<(u32, u32), OpenError> {
    if !is_block_device {
        let block_bytes = options.block_bytes.unwrap_or(FileOptions::BLOCK_BYTES);
        return Ok((block_bytes, block_bytes.max(4096)));
    }
    let fail = |errno: rustix::io::Errno| OpenError::Io {
        path: path.into(),
        action: "ask the block size of",
        source: errno.into(),
    };
    let logical = rustix::fs::ioctl_blksszget(file).map_err(fail)?;
    let physical = rustix::fs::ioctl_blkpbszget(file).map_err(fail)?;
    let block_bytes = options.block_bytes.unwrap_or(if logical <= 512 { 512 } else { 4096 });
    Ok((block_bytes, physical.max(block_bytes)))
}

/// Gives the file the length that was asked for, if that loses nothing, and tells the length it has.
fn settle_length(path: &Path, file: &File, is_block_device: bool, options: &FileOptions) -> Result<u64, OpenError> {
    let fail = |action| move |source| OpenError::Io { path: path.into(), action, source };
    // A block device's metadata says zero; its end says the truth.
    let is_bytes = (&*file).seek(SeekFrom::End(0)).map_err(fail("ask the length of"))?;
    let length_bytes = wanted_length(path, is_bytes, is_block_device, options)?;
    if length_bytes > is_bytes {
        file.set_len(length_bytes).map_err(fail("set the length of"))?;
    }
    Ok(length_bytes)
}

/// The length with which what has this one is served. A file that is longer than was asked for keeps its length: nothing is cut, and a
/// size that was not corrected after the file grew keeps nobody from it.
fn wanted_length(path: &Path, is_bytes: u64, is_block_device: bool, options: &FileOptions) -> Result<u64, OpenError> {
    let Some(wanted_bytes) = options.size_bytes.filter(|wanted| *wanted != is_bytes) else { return Ok(is_bytes) };
    let advice = if is_block_device {
        "leave size= out, a block device has the size it has"
    } else if wanted_bytes < is_bytes {
        return Ok(is_bytes);
    } else if options.read_only {
        "leave size= out"
    } else if is_bytes > 0 && !options.grow {
        "add grow to make it longer, or leave size= out"
    } else {
        return Ok(wanted_bytes);
    };
    Err(OpenError::Size { path: path.into(), is_bytes, wanted_bytes, advice })
}

fn check_blocks(path: &Path, length_bytes: u64, block_bytes: u32) -> Result<(), OpenError> {
    if length_bytes == 0 || !length_bytes.is_multiple_of(u64::from(block_bytes)) {
        return Err(OpenError::Blocks { path: path.into(), length_bytes, block_bytes });
    }
    Ok(())
}

impl FileOptions {
    /// Whether a regular file of this length can be opened so.
    ///
    /// # Errors
    /// What opening it would say of its length.
    pub(crate) fn check_length(&self, path: &Path, length_bytes: u64) -> Result<(), OpenError> {
        let length_bytes = wanted_length(path, length_bytes, false, self)?;
        check_blocks(path, length_bytes, self.block_bytes.unwrap_or(FileOptions::BLOCK_BYTES))
    }
}

/// A second handle on the very same file, past the page cache.
fn open_direct(path: &Path, file: &File, options: &FileOptions, block_bytes: u32) -> Result<File, OpenError> {
    let fail = |action| move |source| OpenError::Io { path: path.into(), action, source };
    if let Some(needed_bytes) = probe::direct_block_bytes(file).filter(|needed| *needed > block_bytes) {
        return Err(OpenError::Direct { path: path.into(), block_bytes, needed_bytes });
    }
    let mut how = OpenOptions::new();
    how.read(true).write(!options.read_only).custom_flags(libc::O_DIRECT);
    let direct = how.open(path).map_err(fail("open for direct I/O (leave direct out if the file system has none)"))?;
    let identity = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
    if identity(&direct).map_err(fail("examine"))? != identity(file).map_err(fail("examine"))? {
        let source = io::Error::other("it was replaced while it was being opened");
        return Err(fail("open")(source));
    }
    Ok(direct)
}
