//! Why an array is not made, or not assembled.

use sanwire_store::StoreError;

/// What keeps an array from being made or assembled. The numbers of members count from 1, as people see them.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    /// What was asked for is no array.
    #[error("{0}")]
    Shape(String),
    /// A member cannot take part.
    #[error("{place}: {reason}")]
    Member {
        /// Where it is.
        place: String,
        /// Why.
        reason: String,
    },
    /// A member could not be read or written.
    #[error("{place}: {source}")]
    Store {
        /// Where it is.
        place: String,
        /// Its store's word.
        source: StoreError,
    },
    /// The label of a member is not understood: it is left as it is.
    #[error(
        "the label of an array on {place} is one that this version of Sanwire does not understand, so nothing is done to it: use it with the \
         version that has written it, or, if what it holds is to be given up, clear its first 128 KiB and its last MiB"
    )]
    Illegible {
        /// Where the member is.
        place: String,
    },
    /// None of the volumes has a label of it.
    #[error("no member of an array called {name} was found")]
    Unknown {
        /// The array's name.
        name: String,
    },
    /// Several arrays have the name.
    #[error("arrays {} and {} are both called {name}: name the members of one of them", one, other)]
    Ambiguous {
        /// Their name.
        name: String,
        /// The identity of one.
        one: String,
        /// The identity of the other.
        other: String,
    },
    /// Two volumes have the label of the same member.
    #[error("{one} and {other} both say that they are member {number}: one is a copy; leave it out")]
    Twice {
        /// Where one is.
        one: String,
        /// Where the other is.
        other: String,
        /// Which member.
        number: usize,
    },
    /// A member is older than others know it to be.
    #[error(
        "{older} is older than {newer} says that this member is, so it is a copy, or was rolled back: leave it out, and bring the member \
         itself back, or take {newer} alone by force"
    )]
    Older {
        /// Where the older one is.
        older: String,
        /// Where the one is that knows.
        newer: String,
    },
    /// Another host has had the array since this one has.
    #[error(
        "{place} says that another host has used the array since it was begun to be used here: what is here is older; take the array out of \
         use here, and see to it that one host alone uses it"
    )]
    TakenOver {
        /// Where the member is that says so.
        place: String,
    },
    /// Somebody has used the array while it was looked at.
    #[error(
        "array {name} was used by somebody while it was read, so what was read may be older than what it holds, or a mixture: stop what uses \
         it, and read it again"
    )]
    Used {
        /// The array's name.
        name: String,
    },
    /// Two parts of the array have been used apart from each other.
    #[error(
        "{one} and {other} were used apart from each other, and each has what the other has not: leave one of them out, and take it \
         into the array again as a new member"
    )]
    Split {
        /// Where one is.
        one: String,
        /// Where the other is.
        other: String,
    },
    /// Too few members are there to know that they are the newest.
    #[error(
        "only {present} of {wanted} members with the same content are there, which may be the older ones; missing: {missing}. Bring \
         another one back, or force it if you know that these were written last"
    )]
    NoQuorum {
        /// How many are there.
        present: usize,
        /// How many there are by the newest label.
        wanted: usize,
        /// Where those were that are missing.
        missing: String,
    },
    /// A part of the volume is with no member that is there.
    #[error("a part of the array is missing: {missing}")]
    Incomplete {
        /// Where its members were.
        missing: String,
    },
}
