//! Whether a file is still as long as it was opened: a write beyond the end of one that was cut short would turn all between into
//! readable zeroes.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{AtFlags, StatxFlags};
use rustix::time::{ClockId, clock_gettime};
use sanwire_store::{Geometry, Request, StoreError};

/// Watches the length of one file.
///
/// Its length is asked for once in each tick of the kernel's coarse clock (1 to 10 ms) in which there are requests, and before each
/// write that reaches the end, which is the only one that could hide a cut. A file that was found cut short is looked at with each
/// request until it is whole again.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The tick of the last look.
    looked_at: AtomicU64,
    is_cut: AtomicBool,
}

impl Watch {
    /// Refuses a request on a file that is shorter than it should be.
    pub(super) fn check(&self, file: &File, geometry: &Geometry, request: &Request) -> Result<(), StoreError> {
        let now = tick();
        let (offset_bytes, length_bytes) = request.range_bytes();
        let end_bytes = offset_bytes + length_bytes;
        let reaches_the_end = request.is_write() && end_bytes == geometry.length_bytes;
        if self.looked_at.load(Ordering::Relaxed) == now && !self.is_cut.load(Ordering::Relaxed) && !reaches_the_end {
            return Ok(());
        }
        self.looked_at.store(now, Ordering::Relaxed);
        // A file system that does not tell is trusted.
        let is_bytes = known_length(file).unwrap_or(u64::MAX);
        let is_cut = is_bytes < geometry.length_bytes;
        if self.is_cut.load(Ordering::Relaxed) != is_cut {
            self.is_cut.store(is_cut, Ordering::Relaxed);
        }
        if is_cut { Err(StoreError::cut_short(is_bytes.clamp(offset_bytes, end_bytes))) } else { Ok(()) }
    }
}

/// The length as the kernel knows it: no file system is asked that may take its time.
pub(super) fn known_length(file: &File) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Some(rustix::fs::statx(file, "", flags, StatxFlags::SIZE).ok()?.stx_size)
}

/// A number that changes with the coarse clock, which costs a few nanoseconds.
fn tick() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    // Never zero: no look was at the beginning of time.
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64) | 1 << 63
}
