//! Where reservations are kept through restarts.

use std::fmt::{self, Debug};
use std::io;

use super::record::RecordError;

/// Where the registrations and the reservation of one unit are kept, so that they survive the server (APTPL, SPC-5
/// 5.14.5). A record is replaced whole or not at all.
pub trait ReservationKeeper: Debug + Send + Sync {
    /// The record saved last; `None` when there has been none.
    ///
    /// # Errors
    /// When there is one that cannot be read.
    fn load(&self) -> io::Result<Option<Vec<u8>>>;

    /// Keeps the record, and tells `saved` when it is on stable storage, or that it may not be: at once, or later from any
    /// thread. The caller serves others, and must not be kept waiting for a medium. One record is kept at a time.
    fn save(&self, record: Vec<u8>, saved: Saved);

    /// The place of the record, for messages.
    fn place(&self) -> String;
}

/// Why the kept reservations of a unit cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeptError {
    /// They cannot be read.
    #[error(
        "the reservations kept in {place} cannot be read ({kind}): make the file readable, or remove it if no initiator relies on them"
    )]
    Unreadable {
        /// Where they are.
        place: String,
        /// Why.
        kind: io::ErrorKind,
    },
    /// What was read is not what was saved.
    #[error(
        "the reservations kept in {place} are not usable: {reason}; restore the file, or remove it if no initiator relies on them"
    )]
    Damaged {
        /// Where they are.
        place: String,
        /// Why.
        reason: RecordError,
    },
}

/// The command that waits until a record is kept. Dropped untold, it is told that the record was not kept.
pub struct Saved(Option<Box<dyn FnOnce(bool) + Send>>);

impl Saved {
    /// `told` is called with whether the record is on stable storage.
    pub fn new(told: impl FnOnce(bool) + Send + 'static) -> Saved {
        Saved(Some(Box::new(told)))
    }

    /// The record is on stable storage, or may not be.
    pub fn tell(mut self, is_kept: bool) {
        self.end(is_kept);
    }

    fn end(&mut self, is_kept: bool) {
        if let Some(told) = self.0.take() {
            told(is_kept);
        }
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl fmt::Debug for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Saved")
    }
}
