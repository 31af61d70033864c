//! How many snapshots volumes have, and what these take.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::Pool;

/// The bytes of what `stat` calls a block.
const STAT_BLOCK_BYTES: u64 = 512;

/// The snapshots of a volume.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct SnapshotsTaken {
    pub(crate) count: u64,
    /// What their blocks take, those too that they share with others.
    pub(crate) allocated_bytes: u64,
}

impl Pool {
    /// Of each volume that has snapshots. It asks the file system, which may take its time.
    pub(crate) fn snapshots_taken(&self) -> BTreeMap<String, SnapshotsTaken> {
        let mut taken = BTreeMap::<String, SnapshotsTaken>::new();
        for snapshot in self.snapshots(None) {
            let path = self.path_of(&format!("{}@{}", snapshot.volume, snapshot.name));
            let in_file = fs::metadata(path).map(|file| file.blocks() * STAT_BLOCK_BYTES).ok();
            let bytes = in_file.or_else(|| self.layer_used_bytes(&snapshot.volume, &snapshot.name)).unwrap_or(0);
            let of_volume = taken.entry(snapshot.volume).or_default();
            of_volume.count += 1;
            of_volume.allocated_bytes += bytes;
        }
        taken
    }
}
