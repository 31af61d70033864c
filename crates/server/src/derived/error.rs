//! Why a volume cannot be derived from another one, and what to do.

use std::path::PathBuf;

use sanwire_core::Protection;
use sanwire_device::DeriveError;

/// How many derived volumes stand on one another at the most: each of them is asked about a command.
pub(crate) const DEPTH_MAX: usize = 8;

/// Why a volume cannot be derived from another one.
#[derive(Debug, thiserror::Error)]
pub enum DerivedError {
    /// There is no such parent.
    #[error("there is no volume called {parent}, from which it is to be derived: add that one, or correct the name")]
    NoParent {
        /// Which.
        parent: String,
    },
    /// The parent is not open.
    #[error("volume {parent}, from which it is derived, is not served")]
    NotServed {
        /// Which.
        parent: String,
    },
    /// Its parent was replaced by another volume of the same name.
    #[error(
        "{parent} is another volume than the one from which it was derived, and its principals would see the content of that: revoke it, and \
         derive it again if they may"
    )]
    OtherParent {
        /// The parent.
        parent: String,
    },
    /// A volume would be derived from itself.
    #[error(
        "volumes would be derived from each other in a circle, {circle}: derive one of them from a volume that has a store of its own"
    )]
    Circle {
        /// All of them, from one back to it.
        circle: String,
    },
    /// Too many stand on one another.
    #[error(
        "it would be derived from {parent}, which is itself derived {depth} deep, and {DEPTH_MAX} is the most: derive it from one that is less deep"
    )]
    TooDeep {
        /// The parent.
        parent: String,
        /// On how many that stands.
        depth: usize,
    },
    /// Its time is over.
    #[error("its time was over at {until} (the server's clock): give it a later `until`, or remove it")]
    Expired {
        /// Then.
        until: String,
    },
    /// It would end at once.
    #[error("{until} is over (the server's clock): give it a later time, or revoke it")]
    Past {
        /// Then.
        until: String,
    },
    /// It would be there for longer than its parent.
    #[error(
        "it would end at {until}, after {parent}, from which it is derived and which ends at {parent_until}: give it an earlier time, or none, \
         and it ends with that"
    )]
    Beyond {
        /// When it would end.
        until: String,
        /// The parent.
        parent: String,
        /// When that ends, also with its own parent.
        parent_until: String,
    },
    /// Its time is over, though the clock says otherwise.
    #[error(
        "its time was over at {until}: the server's clock is earlier, but this server has seen {seen} already; set the clock, and reload"
    )]
    ExpiredBefore {
        /// Then.
        until: String,
        /// The latest time that the server has seen.
        seen: String,
    },
    /// A time that counts from now on would begin anew at each start.
    #[error(
        "until={until} would begin anew at each start: write a time, like 2027-01-31T18:00:00Z; or make it by `sanwire dvd create`"
    )]
    Relative {
        /// As it is written.
        until: String,
    },
    /// Its packets would be guarded less than those of the parent.
    #[error(
        "security={level} is less than the {parent_level} of {parent}, from which it is derived: give it that much at least"
    )]
    Level {
        /// What is written.
        level: Protection,
        /// The parent.
        parent: String,
        /// What the parent demands.
        parent_level: Protection,
    },
    /// This names nobody.
    #[error("invalid owner '{owner}': use {expected}")]
    Owner {
        /// What is written.
        owner: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// Too many may derive volumes from it.
    #[error("{count} owners, {max} are allowed: an address prefix like 10.0.0.0/24 names several")]
    TooManyOwners {
        /// How many are given.
        count: usize,
        /// How many may be.
        max: usize,
    },
    /// The device refuses it.
    #[error(transparent)]
    Device(#[from] DeriveError),
    /// The module that is to judge its commands cannot be used.
    #[error("its program {}: {reason}", path.display())]
    Program {
        /// Where it is.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
}
