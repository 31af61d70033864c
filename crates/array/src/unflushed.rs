//! What is not known to be stable.

use sanwire_store::{ErrorKind, StoreError};

/// Whether a group may have lost what was answered.
#[derive(Clone, Default, Debug)]
pub(crate) struct Unflushed {
    /// Writes that were answered.
    written: u64,
    /// Of those, so many were before a flush that has ended well.
    flushed: u64,
    /// Some of the others may have been lost, which nobody was told yet.
    is_lost: bool,
}

impl Unflushed {
    pub(crate) fn written(&mut self) {
        self.written += 1;
    }

    pub(crate) fn lose(&mut self) {
        self.is_lost |= self.written > self.flushed;
    }

    /// A flush begins: it is about so many writes.
    pub(crate) fn begin_flush(&self) -> u64 {
        self.written
    }

    /// It has ended well where it could be asked.
    ///
    /// # Errors
    /// Some of what it was to make stable may have been lost: that is told once.
    pub(crate) fn flushed(&mut self, written: u64) -> Result<(), StoreError> {
        if !std::mem::take(&mut self.is_lost) {
            self.flushed = self.flushed.max(written);
            return Ok(());
        }
        let source = std::io::Error::other(
            "the connection with a member was lost for good before all that was written there was stable: some of it may be lost",
        );
        Err(StoreError { source: Some(source), ..StoreError::new(ErrorKind::Unwritable, 0) })
    }
}

/// What has failed at a member that was to be stable there: it may have lost what was written before, whatever a later flush says.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Failures {
    /// How often that was.
    pub(crate) seen: u64,
    /// Of those, what follows from so many was done: the member was given up, or who had asked was told.
    pub(crate) judged: u64,
}
