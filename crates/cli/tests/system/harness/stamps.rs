//! Numbers that are written in order, each after the one before is stable: what holds one of them holds all before it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BLOCK_BYTES: usize = 4096;

/// The number that stands in a block.
pub fn stamp(content: &[u8]) -> u64 {
    u64::from_le_bytes(content[..8].try_into().expect("8 bytes"))
}

/// Writes a number to both volumes, to the first one first, as soon as it has been told that the last one stands there.
pub fn write_stamps(volumes: &[File; 2], reached: &AtomicU64, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        let next = reached.load(Ordering::Relaxed) + 1;
        let mut block = vec![0; BLOCK_BYTES];
        block[..8].copy_from_slice(&next.to_le_bytes());
        for volume in volumes {
            volume.write_all_at(&block, 0).and_then(|()| volume.sync_data()).expect("it can be written");
        }
        reached.store(next, Ordering::Relaxed);
    }
}

/// Ends the writing when it is dropped, also by a test that fails.
#[derive(Debug)]
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
