//! Which files live in memory.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};

/// Files remembered; with more of them than this, some are asked again.
const PLACES: usize = 64;

const RAMFS_MAGIC: libc::c_long = 0x8584_58f6;

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
    // SAFETY: an all-zero statfs is a valid value of this plain structure.
    let mut answer: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open while `file` is borrowed, and `answer` is a statfs that the kernel may write.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut answer) };
    // A device node lies on a tmpfs (devtmpfs) too; what it stands for does not.
    let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
    result == 0 && is_regular && matches!(answer.f_type, libc::TMPFS_MAGIC | RAMFS_MAGIC)
}
