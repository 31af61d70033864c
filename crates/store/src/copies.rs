//! Stores that keep several copies of their blocks.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Copies that can be compared, and replaced, while the store is used. All of it blocks, and may take hours.
pub trait Copies {
    /// Compares all copies, and makes those the same again that differ. Gives how many pieces differed.
    ///
    /// # Errors
    /// [`CopiesError`]: a copy could not be read, or this was cancelled.
    fn scrub(&self, cancellation: &Cancellation) -> Result<u64, CopiesError>;

    /// Another store, written as for a volume, takes the place of a member that is gone; members are counted from 1 on. It is filled
    /// afterwards.
    ///
    /// # Errors
    /// [`CopiesError`]: the member is there, or the store is not fit for its place, or holds something.
    fn replace(&self, member: usize, store: &str) -> Result<(), CopiesError>;

    /// It takes all that its members have room for, and these stores behind them, written as for volumes. All that those hold is lost.
    ///
    /// # Errors
    /// [`CopiesError`]: a member is away, nothing is longer, or a store is not fit: it is as long as it was, or as it was to be. Where this
    /// was cancelled, it is as it was; the last step is done all the same.
    fn grow(&self, others: &[String], cancellation: &Cancellation) -> Result<(), CopiesError>;
}

/// By this something ends before it is done, also if it has not begun yet: each has one of its own. Clones are the same one.
#[derive(Clone, Default, Debug)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Has it end soon, and does not wait for that.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is to end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why copies stay as they are.
#[derive(Debug)]
pub struct CopiesError(pub Box<dyn Error + Send + Sync>);

impl fmt::Display for CopiesError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Error for CopiesError {}
