//! What goes wrong with a store: the kind, the place, the cause.

use std::io;

/// The kinds that a device tells apart when it makes sense data of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The medium could not be read there (EIO on a read, an injected error).
    Unreadable,
    /// The medium could not be written there (EIO on a write, an injected error).
    Unwritable,
    /// No space is left behind a thin store (ENOSPC, EDQUOT).
    Full,
    /// The store does not take writes.
    ReadOnly,
    /// Offset and length are not within the store.
    OutOfRange,
    /// The backing object is gone (ENXIO, ENODEV, a file cut short).
    Gone,
    /// The store cannot do this (discard on a file system without holes).
    Unsupported,
    /// Anything else that the kernel said.
    Other,
}

/// A failed request.
#[derive(Debug, thiserror::Error)]
#[error("{kind:?} at byte {offset_bytes}{}", source.as_ref().map(|s| format!(": {s}")).unwrap_or_default())]
pub struct StoreError {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// Where in the store: the first byte known to be affected.
    pub offset_bytes: u64,
    /// The kernel's word, when there was one.
    #[source]
    pub source: Option<io::Error>,
}
