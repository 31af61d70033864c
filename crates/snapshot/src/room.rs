//! How much space a merge may take for a moment, so that those who write do not lack it.

use sanwire_store::{Outcome, Request};

use crate::SnapshotError;
use crate::layer::{Perform, Source};
use crate::merge::PART_MAX_BYTES;

/// A merge takes this part of what is available, at the most.
const SHARE: u64 = 4;

/// What is read and written at once; and where there is little space.
const COPY_BYTES: u64 = 1 << 20;
const COPY_BYTES_IF_SHORT: u64 = 64 << 10;

/// The space for one part of a merge.
#[derive(Debug)]
pub(crate) struct Room {
    /// What it had at first.
    share_bytes: u64,
    /// `None`: there is enough for any part.
    left_bytes: Option<u64>,
    is_used_up: bool,
}

impl Room {
    /// What is available to a layer.
    pub(crate) fn of(layer: &Source) -> Self {
        let available_bytes = layer.store.space().and_then(|space| space.available_bytes).unwrap_or(u64::MAX);
        let share_bytes = available_bytes / SHARE;
        let left_bytes = (share_bytes < 2 * PART_MAX_BYTES).then_some(share_bytes);
        Room { share_bytes, left_bytes, is_used_up: false }
    }

    /// What is to be asked for at once.
    pub(crate) fn piece_max_bytes(&self) -> u64 {
        if self.left_bytes.is_some() { COPY_BYTES_IF_SHORT } else { COPY_BYTES }
    }

    /// Whether something was asked for that it does not have.
    pub(crate) fn is_used_up(&self) -> bool {
        self.is_used_up && self.left_bytes.is_some_and(|left| left < self.share_bytes)
    }

    /// Takes so much, if it is there.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let Some(left) = &mut self.left_bytes else { return true };
        let rest = left.checked_sub(bytes);
        match rest {
            Some(rest) => *left = rest,
            None => self.is_used_up = true,
        }
        rest.is_some()
    }

    /// Takes what a write to some bytes of a store needs: nothing, where it has them already.
    pub(crate) fn take_for(
        &mut self,
        layer: &Source,
        (offset_bytes, length_bytes): (u64, u64),
        perform: Perform<'_>,
    ) -> Result<bool, SnapshotError> {
        if self.left_bytes.is_none() {
            return Ok(true);
        }
        let (mut next, end, mut needed_bytes) = (offset_bytes, offset_bytes + length_bytes, 0);
        while next < end {
            let ask = Request::Allocation { offset_bytes: next, length_bytes: end - next };
            let (is_there, run_bytes) = match layer.run(ask, perform)? {
                Outcome::Allocated(run) if run.length_bytes > 0 => (run.is_mapped, run.length_bytes),
                _ => (false, end - next),
            };
            needed_bytes += if is_there { 0 } else { run_bytes };
            next += run_bytes;
        }
        Ok(self.take(needed_bytes))
    }
}
