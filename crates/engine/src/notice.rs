//! What an administrator should read.

use std::fmt;
use std::time::Duration;

use sanwire_store::ErrorKind;

/// What has happened to a store whose commands wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Commands wait until the store can do its work.
    Stalled {
        /// Of this volume.
        volume: String,
        /// Why it cannot: it is full, or gone.
        kind: ErrorKind,
        /// How long each of them waits at the most.
        at_most: Duration,
        /// How often that was so before, since the last such notice.
        untold: u64,
    },
    /// No command waits any more.
    Over {
        /// For the store of this volume.
        volume: String,
        /// Commands that have failed meanwhile.
        failed: u32,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Stalled { volume, kind, at_most, untold } => {
                let what = if *kind == ErrorKind::Full { "full" } else { "gone" };
                write!(formatter, "the store of {volume} is {what}: its commands wait, each {at_most:?} at the most")?;
                match untold {
                    0 => Ok(()),
                    untold => write!(formatter, "; it was so {untold} more times that are not logged"),
                }
            }
            Notice::Over { volume, failed } => {
                write!(formatter, "no command waits for the store of {volume} any more; {failed} failed meanwhile")
            }
        }
    }
}
