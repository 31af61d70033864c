//! Blocks in a regular file or on a block device.

mod identity;
mod open;
mod probe;
mod records;
mod whole;

pub use probe::{metadata, synced_metadata};

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use sanwire_store::{
    Capabilities, CompletionQueue, ErrorKind, Geometry, GrowingGeometry, KernelOp, Request, ResizeError, Space,
    Started, Store, StoreError,
};

pub use identity::{VolumeMark, remove_made};
pub use open::FileOptions;
pub use records::{mark_records, records_mark};

use self::whole::{Watch, known_length};

/// The unit of `st_blocks`, whatever the file system's block is.
const STAT_BLOCK_BYTES: u64 = 512;

/// A regular file or a block device, locked against other servers while it is open.
///
/// It does no I/O itself: every request becomes a [`KernelOp`].
#[derive(Debug)]
pub struct FileStore {
    file: Arc<File>,
    /// With direct I/O: the same file through the page cache, for requests whose memory is not aligned.
    buffered: Option<Arc<File>>,
    is_block_device: bool,
    geometry: GrowingGeometry,
    watch: Watch,
}

impl FileStore {
    fn file_for(&self, request: &Request) -> &Arc<File> {
        let Some(buffered) = &self.buffered else { return &self.file };
        let block_bytes = self.geometry.get().block_bytes as usize;
        let is_aligned = |bytes: &[u8]| {
            (bytes.as_ptr() as usize).is_multiple_of(block_bytes) && bytes.len().is_multiple_of(block_bytes)
        };
        let is_fit = match request {
            Request::Read { buffer, .. } => is_aligned(buffer),
            Request::Write { data, .. } => data.pieces().iter().all(|piece| is_aligned(piece)),
            _ => true,
        };
        // Linux keeps the page cache and direct I/O on one file coherent, request by request.
        if is_fit { &self.file } else { buffered }
    }
}

impl Store for FileStore {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { tells_space: true, grows: true, ..Capabilities::of(self.geometry()) }
    }

    fn start(&self, request: Request, _: &CompletionQueue) -> Started {
        let geometry = self.geometry.get();
        if let Err(error) = geometry.check(&request) {
            return Started::Done(Err(error));
        }
        if matches!(request, Request::Discard { .. }) && !geometry.discards {
            return Started::Done(Err(StoreError::new(ErrorKind::Unsupported, request.range_bytes().0)));
        }
        if !self.is_block_device
            && let Err(error) = self.watch.check(&self.file, &geometry, &request)
        {
            return Started::Done(Err(error));
        }
        let file = Arc::clone(self.file_for(&request));
        Started::Kernel(KernelOp { file, is_block_device: self.is_block_device, request })
    }

    /// The blocks that the file has, and those that its file system has left.
    fn space(&self) -> Option<Space> {
        if self.is_block_device || !self.geometry.get().discards {
            return None;
        }
        let used_bytes = self.file.metadata().ok()?.blocks().saturating_mul(STAT_BLOCK_BYTES);
        let file_system = rustix::fs::fstatvfs(&*self.file).ok()?;
        Some(Space { used_bytes, available_bytes: file_system.f_bavail.checked_mul(file_system.f_frsize) })
    }

    /// A regular file is made longer, a block device looked at again.
    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        self.geometry.check(length_bytes)?;
        if self.geometry.get().read_only {
            return Err(ResizeError::Fixed("it is readonly"));
        }
        if self.is_block_device {
            let end_bytes = (&*self.file).seek(SeekFrom::End(0)).map_err(ResizeError::Io)?;
            if length_bytes > end_bytes {
                return Err(ResizeError::Fixed("its block device is not that long: make that longer first"));
            }
        } else {
            if known_length(&self.file).is_some_and(|is_bytes| is_bytes < self.geometry.get().length_bytes) {
                return Err(ResizeError::Fixed("its file was cut short: restore what is missing first"));
            }
            self.file.set_len(length_bytes).map_err(ResizeError::Io)?;
            self.file.sync_all().map_err(ResizeError::Unstable)?;
        }
        self.geometry.grow(length_bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
