//! Flushes that have failed, and whether who uses the volume has heard of it.
//!
//! A store says once that it has not made stable what was written, and calls the flush after that a success. Not all flushes of a volume
//! are its users': one of a snapshot's may have taken along what they have written. So what has failed for anybody fails the next flush
//! of a user too; the device tells all the others.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use sanwire_store::{Completion, ErrorKind, StoreError};

/// Those of one volume, whichever of its layers is written.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    count: AtomicU64,
    heard: AtomicU64,
}

impl Losses {
    /// A flush has failed.
    pub(crate) fn add(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// How many have.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// What a user is told whose flush has ended so.
    pub(crate) fn tell(&self, end: Completion) -> Completion {
        let count = self.count();
        match self.heard.fetch_max(count, Ordering::AcqRel) < count {
            true => end.and_then(|_| Err(lost(0))),
            false => end,
        }
    }
}

/// The end of what a failed flush may have taken along.
pub(crate) fn lost(offset_bytes: u64) -> StoreError {
    let source = io::Error::other("another flush of the volume has failed, and may have lost what was written");
    StoreError { kind: ErrorKind::Unwritable, offset_bytes, source: Some(source) }
}

#[cfg(test)]
mod tests {
    use sanwire_store::Outcome;

    use super::*;

    #[test]
    fn a_failure_is_told_to_one_flush_of_a_user() {
        let losses = Losses::default();
        assert!(losses.tell(Ok(Outcome::Done)).is_ok());
        losses.add();
        losses.add();
        assert!(losses.tell(Ok(Outcome::Done)).is_err());
        assert!(losses.tell(Ok(Outcome::Done)).is_ok());
        losses.add();
        assert_eq!(losses.tell(Err(StoreError::new(ErrorKind::Full, 7))).unwrap_err().offset_bytes, 7);
        assert!(losses.tell(Ok(Outcome::Done)).is_ok(), "its own error has told it");
    }
}
