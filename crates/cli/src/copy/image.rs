//! An image file or a block device of this host.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{SeekFrom, seek};
use sanwire_buffer::Frame;

use super::end::Extent;

/// Holes are taken in whole units of this, so that what lies between stays aligned for every volume.
const HOLE_UNIT_BYTES: u64 = 4096;

/// An open image.
#[derive(Debug)]
pub(crate) struct Image {
    file: File,
    path: PathBuf,
    size_bytes: u64,
    is_block_device: bool,
    is_new: bool,
}

impl Image {
    /// Opens a source.
    ///
    /// # Errors
    /// When it cannot be read, or is neither a file nor a block device.
    pub(crate) fn open_source(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open the image {}", path.display()))?;
        Self::from_file(file, path, false)
    }

    /// Opens a destination; an absent file is made, for its owner alone: a volume may hold all secrets of a host.
    ///
    /// # Errors
    /// When it cannot be written, or is neither a file nor a block device.
    pub(crate) fn open_destination(path: &Path) -> anyhow::Result<Self> {
        let is_new = !path.exists();
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        Self::from_file(file.with_context(|| format!("cannot write the image {}", path.display()))?, path, is_new)
    }

    fn from_file(file: File, path: &Path, is_new: bool) -> anyhow::Result<Self> {
        let shown = path.display();
        let kind = file.metadata().with_context(|| shown.to_string())?.file_type();
        let is_block_device = kind.is_block_device();
        anyhow::ensure!(kind.is_file() || is_block_device, "{shown} is neither a file nor a block device: name one");
        let size_bytes = seek(&file, SeekFrom::End(0)).with_context(|| format!("cannot tell the size of {shown}"))?;
        Ok(Image { file, path: path.to_owned(), size_bytes, is_block_device, is_new })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// What a file with any other content would not have: its number, and when it was changed. A block device has nothing of
    /// the kind.
    pub(super) fn version(&self) -> anyhow::Result<Option<String>> {
        if self.is_block_device {
            return Ok(None);
        }
        let metadata = self.file.metadata().with_context(|| self.path.display().to_string())?;
        // The second time cannot be set: whoever gives a file the time of another changes it.
        let content = format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec());
        Ok(Some(format!("{} {content} {}.{:09}", metadata.ino(), metadata.ctime(), metadata.ctime_nsec())))
    }

    /// What tells one destination from the next: its number in its file system, or that of the device.
    pub(super) fn identity(&self) -> anyhow::Result<String> {
        let metadata = self.file.metadata().with_context(|| self.path.display().to_string())?;
        Ok(format!("{} {} {}", metadata.dev(), metadata.ino(), metadata.rdev()))
    }

    pub(super) fn current_size(&self) -> anyhow::Result<u64> {
        seek(&self.file, SeekFrom::End(0)).with_context(|| format!("cannot tell the size of {}", self.path.display()))
    }

    /// Whether what was not written reads as zero: in a file, `prepare` made a hole of everything to come.
    pub(super) fn reads_zero_unwritten(&self) -> bool {
        !self.is_block_device
    }

    /// Gives a file its size and makes a hole of everything from the place where the copy goes on, which is returned.
    pub(super) fn prepare(&mut self, size_bytes: u64, done_bytes: Option<u64>) -> anyhow::Result<u64> {
        if self.is_block_device {
            return Ok(done_bytes.unwrap_or(0));
        }
        let start_bytes = match done_bytes {
            Some(done_bytes) if !self.is_new && self.size_bytes == size_bytes => done_bytes,
            _ => 0,
        };
        let sized = self.file.set_len(start_bytes).and_then(|()| self.file.set_len(size_bytes));
        sized.with_context(|| format!("cannot give {} a size of {size_bytes} bytes", self.path.display()))?;
        self.size_bytes = size_bytes;
        Ok(start_bytes)
    }

    pub(super) fn extent_at(&self, place_bytes: u64) -> anyhow::Result<Extent> {
        let end_bytes = self.size_bytes;
        let next = |target| match seek(&self.file, target) {
            Ok(found) => Ok(found.min(end_bytes)),
            // No data after this place.
            Err(rustix::io::Errno::NXIO) => Ok(end_bytes),
            // This file system or device does not tell: all is data.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(place_bytes),
            Err(error) => Err(error).with_context(|| format!("looking for holes in {}", self.path.display())),
        };
        let data_bytes = if self.is_block_device { place_bytes } else { next(SeekFrom::Data(place_bytes))? };
        // A hole ends at a unit's start, or with the file when that is a unit's start.
        let hole_end_bytes = data_bytes / HOLE_UNIT_BYTES * HOLE_UNIT_BYTES;
        if hole_end_bytes > place_bytes {
            return Ok(Extent { range: place_bytes..hole_end_bytes, is_hole: true });
        }
        if self.is_block_device || data_bytes == end_bytes {
            return Ok(Extent { range: place_bytes..end_bytes, is_hole: false });
        }
        let data_end_bytes = match next(SeekFrom::Hole(data_bytes))? {
            // INVAL: no word of a hole.
            found if found <= data_bytes => end_bytes,
            found => found.next_multiple_of(HOLE_UNIT_BYTES).min(end_bytes),
        };
        Ok(Extent { range: place_bytes..data_end_bytes, is_hole: false })
    }

    pub(super) fn read(&self, offset_bytes: u64, mut frame: Frame) -> anyhow::Result<Frame> {
        let length =
            usize::try_from(self.size_bytes.saturating_sub(offset_bytes)).unwrap_or(usize::MAX).min(frame.len());
        let (inside, beyond) = frame.split_at_mut(length);
        self.file.read_exact_at(inside, offset_bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                anyhow::anyhow!("{} became shorter while it was read: copy it again", self.path.display())
            }
            _ => anyhow::Error::new(error).context(format!("reading {} at byte {offset_bytes}", self.path.display())),
        })?;
        beyond.fill(0);
        Ok(frame)
    }

    pub(super) fn write(&self, offset_bytes: u64, data: &[u8]) -> anyhow::Result<()> {
        let written = self.file.write_all_at(data, offset_bytes);
        written.with_context(|| format!("writing {} at byte {offset_bytes}", self.path.display()))
    }

    pub(super) fn flush(&self) -> anyhow::Result<()> {
        self.file.sync_data().with_context(|| format!("flushing {}", self.path.display()))
    }
}
