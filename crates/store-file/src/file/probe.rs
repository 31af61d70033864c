//! What the kernel can do with a file, asked rather than guessed.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, FallocateFlags, StatxFlags};

use super::STAT_BLOCK_BYTES;

/// Held while a file that is looked at has another time than it should.
static PROBING: Mutex<()> = Mutex::new(());

/// What the system says of a file, with the time at which it was last written: not while it is only looked at what can be done with it.
///
/// # Errors
/// The kernel's.
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    let _probing = PROBING.lock().unwrap_or_else(PoisonError::into_inner);
    fs::metadata(path)
}

/// The same of an open file, when that is stable.
///
/// # Errors
/// The kernel's.
pub fn synced_metadata(file: &File) -> io::Result<Metadata> {
    let _probing = PROBING.lock().unwrap_or_else(PoisonError::into_inner);
    file.sync_all()?;
    file.metadata()
}

/// Whether holes can be punched and then read as zeroes, or could if the file were open for writing.
pub(super) fn discards(file: &File, is_block_device: bool, length_bytes: u64, read_only: bool) -> bool {
    if is_block_device {
        return device_discards(file);
    }
    if read_only {
        // Nothing may be tried. A file that has holes shows that it can.
        return file.metadata().is_ok_and(|metadata| metadata.blocks() * STAT_BLOCK_BYTES < length_bytes);
    }
    // Past the end there is nothing to lose, but a file system without holes says so all the same.
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _probing = PROBING.lock().unwrap_or_else(PoisonError::into_inner);
    let written = file.metadata().and_then(|metadata| metadata.modified());
    let discards = rustix::fs::fallocate(file, flags, length_bytes, 4096).is_ok();
    // It holds what it held, and others tell by its time whether it was written to.
    let _ = written.and_then(|written| file.set_modified(written));
    discards
}

/// `fallocate` on a block device unmaps through write-zeroes, so the queue must have both.
fn device_discards(file: &File) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let limit = |name: &str| {
        // A partition has no queue of its own; its directory lies in that of the disk.
        ["queue", "../queue"].iter().find_map(|queue| {
            let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{queue}/{name}")).ok()?;
            text.trim().parse::<u64>().ok()
        })
    };
    limit("discard_max_bytes").is_some_and(|bytes| bytes > 0)
        && limit("write_zeroes_max_bytes").is_some_and(|bytes| bytes > 0)
}

/// The block that direct I/O on this file needs; `None` when the kernel is too old to say (before 6.1).
pub(super) fn direct_block_bytes(file: &File) -> Option<u32> {
    let answer = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let is_known = answer.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    (is_known && answer.stx_dio_offset_align > 0).then(|| answer.stx_dio_offset_align.max(answer.stx_dio_mem_align))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_file_that_is_only_looked_at_keeps_its_time() {
        let path = std::env::temp_dir().join(format!("sanwire-probe-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        file.set_len(8192).and_then(|()| file.set_modified(SystemTime::UNIX_EPOCH)).unwrap();
        assert!(discards(&file, false, 8192, false));
        assert_eq!(file.metadata().unwrap().modified().unwrap(), SystemTime::UNIX_EPOCH);
        fs::remove_file(path).unwrap();
    }
}
