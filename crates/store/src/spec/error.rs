//! What can be wrong with how a volume is written.

use super::raw::all_keys;
use crate::kind;

/// What is wrong with what the user wrote.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpecError {
    /// No `NAME=` in front.
    #[error("'{text}' has no name: a volume is NAME=STORE[,KEY[=VALUE]]..., like disk0=ram:1G")]
    NoName {
        /// What was written.
        text: String,
    },
    /// Not a volume's name.
    #[error("'{name}' is no volume name: 1 to 64 of the letters a-z and A-Z, digits, '.', '_' and '-'")]
    Name {
        /// What was written.
        name: String,
    },
    /// Not one of the stores.
    #[error("'{store}' is no store: use {}", kind::forms())]
    Store {
        /// What was written.
        store: String,
    },
    /// No such key.
    #[error("there is no key '{key}': use {}", all_keys().collect::<Vec<_>>().join(", "))]
    Key {
        /// What was written.
        key: String,
    },
    /// Given more than once.
    #[error("{key} is given twice")]
    Twice {
        /// Which key.
        key: &'static str,
    },
    /// Not a value for the key.
    #[error("invalid {key} '{value}': use {expected}")]
    Value {
        /// Which key.
        key: &'static str,
        /// What was written.
        value: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// The key is not for this store.
    #[error("{key} is not for this store: {reason}")]
    NotHere {
        /// Which key.
        key: &'static str,
        /// Why.
        reason: &'static str,
    },
}
