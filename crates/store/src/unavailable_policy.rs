//! How long a volume's commands wait for a store that cannot do its work now, before they fail.

use std::time::Duration;

use sanwire_buffer::{Frame, Slices};

use crate::error::ErrorKind;
use crate::request::Request;

/// For which failures of a store commands wait, and how long at the most; `None`: they fail at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Patience {
    /// With [`ErrorKind::Full`]: somebody makes room.
    pub full: Option<Duration>,
    /// With [`ErrorKind::Gone`]: the backing object comes back.
    pub gone: Option<Duration>,
}

impl Patience {
    /// How long a command waits after such a failure.
    #[must_use]
    pub fn with(self, kind: ErrorKind) -> Option<Duration> {
        match kind {
            ErrorKind::Full => self.full,
            ErrorKind::Gone => self.gone,
            _ => None,
        }
    }

    /// Whether nothing is waited for.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Patience::default()
    }
}

/// What is left of a request that was started, to start it again.
#[derive(Clone, Debug)]
pub enum Retry {
    /// A read, without its memory.
    Read {
        /// Where to read.
        offset_bytes: u64,
        /// How much.
        length_bytes: usize,
    },
    /// A write, with a share of its data.
    Write {
        /// Where to write.
        offset_bytes: u64,
        /// What to write.
        data: Slices,
    },
    /// Anything else that has a range.
    Range {
        /// What is done.
        request: fn(u64, u64) -> Request,
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u64,
    },
}

impl Retry {
    /// What it takes to start the request again; `None` for a flush: of what one that failed has not made stable, the kernel may have
    /// dropped, and a second one would succeed all the same.
    #[must_use]
    pub fn of(request: &Request) -> Option<Self> {
        let (offset_bytes, length_bytes) = request.range_bytes();
        let request = match request {
            Request::Read { buffer, .. } => return Some(Retry::Read { offset_bytes, length_bytes: buffer.len() }),
            Request::Write { data, .. } => return Some(Retry::Write { offset_bytes, data: data.clone() }),
            Request::Flush => return None,
            Request::Discard { .. } => |offset_bytes, length_bytes| Request::Discard { offset_bytes, length_bytes },
            Request::Allocation { .. } => {
                |offset_bytes, length_bytes| Request::Allocation { offset_bytes, length_bytes }
            }
            Request::WriteZeroes { .. } => {
                |offset_bytes, length_bytes| Request::WriteZeroes { offset_bytes, length_bytes }
            }
        };
        Some(Retry::Range { request, offset_bytes, length_bytes })
    }

    /// The request once more; `None` when it is a read and `frame` gives no memory of that many bytes.
    #[must_use]
    pub fn request(&self, frame: impl FnOnce(usize) -> Option<Frame>) -> Option<Request> {
        Some(match self {
            Retry::Read { offset_bytes, length_bytes } => {
                Request::Read { offset_bytes: *offset_bytes, buffer: frame(*length_bytes)? }
            }
            Retry::Write { offset_bytes, data } => Request::Write { offset_bytes: *offset_bytes, data: data.clone() },
            Retry::Range { request, offset_bytes, length_bytes } => request(*offset_bytes, *length_bytes),
        })
    }

    /// Bytes of memory that its data keeps.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        if let Retry::Write { data, .. } = self { data.kept_bytes() } else { 0 }
    }
}
