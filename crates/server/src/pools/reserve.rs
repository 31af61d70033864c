//! Room that a pool keeps for its catalogue: what makes room, a deletion, is written there first.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

/// In the directory of the pool. No volume has a file of this name.
pub(super) const RESERVE: &str = ".sanwire-pool.reserve";

/// More than the catalogue takes, and what a file system keeps for itself where it is nearly full.
const RESERVE_BYTES: u64 = 4 << 20;

/// A file that holds nothing but its room.
#[derive(Debug)]
pub(super) struct Reserve(PathBuf);

impl Reserve {
    pub(super) fn of(directory: &Path) -> Reserve {
        Reserve(directory.join(RESERVE))
    }

    /// Takes the room again, where there is so much.
    pub(super) fn take(&self) {
        if self.length_bytes() >= RESERVE_BYTES {
            return;
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.0);
        if let Ok(file) = &file
            && fallocate(file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_err()
        {
            // A part of it would help nobody.
            let _ = file.set_len(0);
        }
    }

    /// Gives the room away, if it had any: it is free when this returns.
    pub(super) fn give_up(&self) -> bool {
        let is_there = self.length_bytes() > 0;
        let free = |file: File| file.set_len(0).and_then(|()| file.sync_all());
        is_there && OpenOptions::new().write(true).open(&self.0).and_then(free).is_ok()
    }

    fn length_bytes(&self) -> u64 {
        self.0.metadata().map_or(0, |metadata| metadata.len())
    }
}
