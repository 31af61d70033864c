//! Why a volume was not copied straight to another server.

/// Why a volume was not copied straight to another server.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Who asks may not have that done, or it may not go there.
    #[error("volume {volume} is not copied straight to another server: {reason}")]
    Refused {
        /// Which.
        volume: String,
        /// Why, and what to do.
        reason: String,
    },
    /// It was begun, and not brought to its end.
    #[error("copying volume {volume} straight to another server has failed{went}: {reason}")]
    Failed {
        /// Which.
        volume: String,
        /// How much of it has gone where, if it was begun.
        went: String,
        /// Why.
        reason: String,
    },
    /// Somebody has ended it.
    #[error("the copy of volume {volume} to another server was ended before it was done{went}: {reason}")]
    Cancelled {
        /// Which.
        volume: String,
        /// How much of it has gone where, if it was begun.
        went: String,
        /// Why.
        reason: String,
    },
    /// The pool in which its snapshot is has too little room left.
    #[error("the copy of volume {volume} to another server was ended before it was done{went}: {reason}")]
    NoRoom {
        /// Which.
        volume: String,
        /// How much of it has gone where, if it was begun.
        went: String,
        /// Why, and what to do.
        reason: String,
    },
}
