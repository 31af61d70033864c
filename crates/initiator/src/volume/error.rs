//! What goes wrong with a volume.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why an operation on a volume failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VolumeError {
    /// Offset or length is no multiple of the block.
    #[error("{length_bytes} bytes at byte {offset_bytes} are not whole blocks: use multiples of {block_bytes} bytes")]
    Misaligned {
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u64,
        /// The volume's block.
        block_bytes: u32,
    },
    /// The operation would pass the end of the volume.
    #[error("{length_bytes} bytes at byte {offset_bytes} pass the end of the volume, which has {size_bytes} bytes")]
    OutOfRange {
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u64,
        /// The volume's size.
        size_bytes: u64,
    },
    /// More than one operation carries, or than all the client's buffers hold.
    #[error("{length_bytes} bytes are too many for one transfer: split it into parts of at most {max_bytes} bytes")]
    TooLong {
        /// What was asked.
        length_bytes: u64,
        /// What is possible.
        max_bytes: u64,
    },
    /// The volume takes no writes.
    #[error("the volume is read-only: ask the server's administrator for write access")]
    ReadOnly,
    /// The medium failed there.
    #[error("medium error at byte {offset_bytes}: {sense}")]
    Medium {
        /// The first byte of the operation.
        offset_bytes: u64,
        /// The device's sense data, in words.
        sense: Arc<str>,
    },
    /// The server has no space left behind a thin volume.
    #[error("no space is left on the server behind this volume: free or add space there, then write again")]
    NoSpace,
    /// The server cannot do this on this volume.
    #[error("the server does not support this operation on this volume")]
    Unsupported,
    /// Another initiator holds a reservation.
    #[error("another client has reserved the volume: wait for it, or have the reservation removed")]
    Reserved,
    /// The server has been away for longer than the client waits.
    #[error("server {server} has not answered for {} s: check the link and the server", since.elapsed().as_secs())]
    Disconnected {
        /// Which server.
        server: Arc<str>,
        /// Since when.
        since: Instant,
    },
    /// The server is there, but has not done the operation in time.
    #[error(
        "the server has not done the operation within {} s, and may or may not do it yet: look what keeps its disk busy",
        after.as_secs()
    )]
    TimedOut {
        /// How long it had.
        after: Duration,
    },
    /// The server has lost writes that it had acknowledged and that were not flushed.
    #[error(
        "server {server} was lost with writes to this volume that it had acknowledged and not made stable, and they could not be written again: check what was written since the last flush that succeeded"
    )]
    WritesLost {
        /// Which server.
        server: Arc<str>,
    },
    /// The volume was closed.
    #[error("the volume is closed: open it again")]
    Closed,
    /// The server's answer broke the rules or reported what nobody expects.
    #[error("unexpected answer from the server: {what}")]
    Protocol {
        /// What it was.
        what: Arc<str>,
    },
}

impl VolumeError {
    /// The Linux error number that says the same.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            VolumeError::Misaligned { .. } | VolumeError::OutOfRange { .. } | VolumeError::TooLong { .. } => EINVAL,
            VolumeError::ReadOnly => EROFS,
            VolumeError::Medium { .. } | VolumeError::WritesLost { .. } => EIO,
            VolumeError::NoSpace => ENOSPC,
            VolumeError::Unsupported => EOPNOTSUPP,
            VolumeError::Reserved => EBADE,
            VolumeError::Disconnected { .. } => ENOTCONN,
            VolumeError::TimedOut { .. } => ETIMEDOUT,
            VolumeError::Closed => ENODEV,
            VolumeError::Protocol { .. } => EPROTO,
        }
    }
}

// The numbers of Linux's errno.h, the same on every architecture that Rust supports there except MIPS and SPARC.
const EIO: i32 = 5;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EBADE: i32 = 52;
const EPROTO: i32 = 71;
const EOPNOTSUPP: i32 = 95;
const ENOTCONN: i32 = 107;
const ETIMEDOUT: i32 = 110;
