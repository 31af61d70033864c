//! Stores that keep several copies of their blocks.

use std::error::Error;
use std::fmt;

/// Copies that can be compared, and replaced, while the store is used. All of it blocks, and may take hours.
pub trait Copies {
    /// Compares all copies, and makes those the same again that differ. Gives how many pieces differed.
    ///
    /// # Errors
    /// [`CopiesError`]: a copy could not be read.
    fn scrub(&self) -> Result<u64, CopiesError>;

    /// Another store, written as for a volume, takes the place of a member that is gone; members are counted from 1 on. It is filled
    /// afterwards.
    ///
    /// # Errors
    /// [`CopiesError`]: the member is there, or the store is not fit for its place, or holds something.
    fn replace(&self, member: usize, store: &str) -> Result<(), CopiesError>;

    /// It takes all that its members have room for, and these stores behind them, written as for volumes. All that those hold is lost.
    ///
    /// # Errors
    /// [`CopiesError`]: a member is away, nothing is longer, or a store is not fit. It is as long as it was, or as it was to be.
    fn grow(&self, others: &[String]) -> Result<(), CopiesError>;

    /// Ends a comparison or a growth that goes on before it is done, which is refused then; of the growth everything is as it was. What
    /// begins later is not ended, and the last step of a growth is not, either.
    fn stop(&self);
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
