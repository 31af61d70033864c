//! Which files live in memory.

use std::fs::File;
use std::sync::{Arc, Weak};

use rustix::fs::{FsWord, fstatfs};

/// Files remembered; with more of them than this, some are asked again.
const PLACES: usize = 64;

/// The types of the file systems of which all files live in memory (linux/magic.h).
const TMPFS_MAGIC: FsWord = 0x0102_1994;
const RAMFS_MAGIC: FsWord = 0x8584_58f6;

/// Remembers, for the files an engine meets, whether they live in memory.
///
/// An answer is kept with a weak handle: it does not keep the file open, and while it exists no other file can have
/// the same address.
#[derive(Debug)]
pub(super) struct MemoryFiles {
    known: [Option<(Weak<File>, bool)>; PLACES],
}

impl Default for MemoryFiles {
    fn default() -> Self {
        MemoryFiles { known: [const { None }; PLACES] }
    }
}

impl MemoryFiles {
    /// Whether reads and writes of this file never wait for a medium.
    pub(super) fn has(&mut self, file: &Arc<File>) -> bool {
        let address = Arc::as_ptr(file);
        let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        let place = &mut self.known[hash as usize];
        if let Some((known, answer)) = place
            && known.as_ptr() == address
        {
            return *answer;
        }
        let answer = is_in_memory(file);
        *place = Some((Arc::downgrade(file), answer));
        answer
    }
}

fn is_in_memory(file: &File) -> bool {
    let is_memory = fstatfs(file).is_ok_and(|answer| matches!(answer.f_type, TMPFS_MAGIC | RAMFS_MAGIC));
    // A device node lies on a tmpfs (devtmpfs) too; what it stands for does not.
    is_memory && file.metadata().is_ok_and(|metadata| metadata.is_file())
}
