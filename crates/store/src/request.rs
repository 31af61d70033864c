//! What a store is asked and what it answers.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::{Frame, Slices};

use crate::completion::{CompletionQueue, Pending};
use crate::copies::Copies;
use crate::counts::RemoteCount;
use crate::course::Layered;
use crate::error::{ErrorKind, StoreError};
use crate::resize::ResizeError;

/// What a store is, as far as its users must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes of the whole store, a multiple of `block_bytes`.
    pub length_bytes: u64,
    /// The logical block: 512 or 4096 bytes. Offsets and lengths of requests are multiples of it.
    pub block_bytes: u32,
    /// The block that the medium writes without reading first; at least `block_bytes`.
    pub physical_block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether discarded blocks give space back and then read as zeroes; of a store that refuses writes, whether they would.
    pub discards: bool,
    /// The longest write that is done wholly or not at all, as concurrent reads and a crash see it; zero when a
    /// write may be torn.
    pub atomic_write_bytes: u32,
}

impl Geometry {
    /// Whether a store of this geometry may begin the request: within the length, in whole blocks, not a write where
    /// writes are refused.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] and [`ErrorKind::ReadOnly`].
    pub fn check(&self, request: &Request) -> Result<(), StoreError> {
        let (offset_bytes, length_bytes) = request.range_bytes();
        if self.read_only && request.is_write() {
            return Err(StoreError::new(ErrorKind::ReadOnly, offset_bytes));
        }
        let block_bytes = u64::from(self.block_bytes);
        let is_within = offset_bytes.checked_add(length_bytes).is_some_and(|end| end <= self.length_bytes);
        if is_within && offset_bytes.is_multiple_of(block_bytes) && length_bytes.is_multiple_of(block_bytes) {
            Ok(())
        } else {
            Err(StoreError::new(ErrorKind::OutOfRange, offset_bytes))
        }
    }
}

/// What a store can do beside its requests. A layer passes on that of the store below, or narrows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// What it is.
    pub geometry: Geometry,
    /// Whether [`Store::share`] may find something.
    pub shares: bool,
    /// Whether [`Store::space`] may tell something.
    pub tells_space: bool,
    /// Whether [`Store::resize`] may make it longer.
    pub grows: bool,
    /// The longest range that is discarded, or written with zeroes, at once; a positive multiple of the block. `None`: any.
    pub range_max_bytes: Option<u64>,
}

impl Capabilities {
    /// Those of a store of this geometry that can do nothing beside its requests.
    #[must_use]
    pub fn of(geometry: Geometry) -> Self {
        Capabilities { geometry, shares: false, tells_space: false, grows: false, range_max_bytes: None }
    }
}

/// One operation on a store. Offsets and lengths are bytes.
#[derive(Debug)]
pub enum Request {
    /// Fill the whole of `buffer` from the store; it comes back in [`Outcome::Read`].
    Read {
        /// Where to read.
        offset_bytes: u64,
        /// Where to put it, and how much.
        buffer: Frame,
    },
    /// Write all of `data`.
    Write {
        /// Where to write.
        offset_bytes: u64,
        /// What to write, piece after piece.
        data: Slices,
    },
    /// Make every completed write stable.
    Flush,
    /// Give the space back; afterwards it reads as zeroes.
    Discard {
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u64,
    },
    /// Ask how the beginning of a range stands; [`Outcome::Allocated`] tells it.
    Allocation {
        /// Where.
        offset_bytes: u64,
        /// How far to look.
        length_bytes: u64,
    },
    /// Write zeroes, keeping the space allocated.
    WriteZeroes {
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u64,
    },
}

impl Request {
    /// Offset and length in bytes; a flush has neither.
    #[must_use]
    pub fn range_bytes(&self) -> (u64, u64) {
        match self {
            Request::Read { offset_bytes, buffer } => (*offset_bytes, buffer.len() as u64),
            Request::Write { offset_bytes, data } => (*offset_bytes, data.len() as u64),
            Request::Discard { offset_bytes, length_bytes }
            | Request::Allocation { offset_bytes, length_bytes }
            | Request::WriteZeroes { offset_bytes, length_bytes } => (*offset_bytes, *length_bytes),
            Request::Flush => (0, 0),
        }
    }

    /// Whether it changes what the store holds.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(self, Request::Write { .. } | Request::Discard { .. } | Request::WriteZeroes { .. })
    }
}

/// How a request ended well.
#[derive(Debug)]
pub enum Outcome {
    /// The frame of a read, filled.
    Read(Frame),
    /// How the beginning of a range stands.
    Allocated(Allocation),
    /// Anything else.
    Done,
}

/// The first run of blocks of one kind in a range that was asked about. It may be shorter than it could be, never empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Whether space stands behind it, or nobody knows; else it reads as zeroes.
    pub is_mapped: bool,
    /// From the offset of the request on.
    pub length_bytes: u64,
}

/// What stands behind a thin store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Bytes that its blocks take.
    pub used_bytes: u64,
    /// Bytes that are still to be had where they come from, which others may take too; `None` when nobody knows.
    pub available_bytes: Option<u64>,
}

/// How a request ended.
pub type Completion = Result<Outcome, StoreError>;

/// What became of a request that was started.
#[derive(Debug)]
pub enum Started {
    /// It is done.
    Done(Completion),
    /// The kernel must do it: give it to an I/O engine.
    Kernel(KernelOp),
    /// The store does it, and completes it by its [`crate::Completer`], from any thread. Until then it cannot be called back.
    Pending(Pending),
    /// Nothing happens for a while; then [`Delayed::resume`].
    Later(Delayed),
    /// Layers wait for the ends of such: see [`Started::then`] and [`Started::join`]. A driver has a [`crate::Course`] for it.
    Layered(Box<Layered>),
}

/// A request for the kernel on an open file or block device. The engine keeps `file` open until it is done.
#[derive(Debug)]
pub struct KernelOp {
    /// What to work on.
    pub file: Arc<File>,
    /// Whether `file` is a block device (discards and zeroes take other calls than on a file).
    pub is_block_device: bool,
    /// What to do, in offsets of the file.
    pub request: Request,
}

/// A request that a layer holds back.
#[derive(Debug)]
pub struct Delayed {
    /// How long from now.
    pub delay: Duration,
    /// The store that goes on with it.
    pub store: Arc<dyn Store>,
    /// What it goes on with.
    pub request: Request,
}

impl Delayed {
    /// Goes on, once the delay has passed.
    #[must_use]
    pub fn resume(self, completions: &CompletionQueue) -> Started {
        self.store.start(self.request, completions)
    }
}

/// A place where blocks live.
///
/// Callers keep offset and length within [`Store::geometry`] and multiples of its block; a store answers
/// [`crate::ErrorKind::OutOfRange`] when they did not. Requests started together may be done in any order.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// What the store is now; its length may change while it runs.
    fn geometry(&self) -> Geometry;

    /// What it can do beside its requests, and what it is.
    fn capabilities(&self) -> Capabilities {
        Capabilities::of(self.geometry())
    }

    /// Begins a request. It never blocks on a medium. What is to be completed later takes its [`crate::Completer`] from
    /// `completions`, the queue of the driver that asks.
    fn start(&self, request: Request, completions: &CompletionQueue) -> Started;

    /// The bytes of a range as they are at one moment, where the store has them in memory: shared, not copied, and never changed by
    /// later writes. `None` means: ask by [`Request::Read`].
    fn share(&self, _offset_bytes: u64, _length_bytes: usize) -> Option<Slices> {
        None
    }

    /// How much space it takes and could take; `None` when it is not thin, or cannot tell. It asks the kernel, but no medium.
    fn space(&self) -> Option<Space> {
        None
    }

    /// What can be done with its copies, where it keeps several.
    fn copies(&self) -> Option<&dyn Copies> {
        None
    }

    /// How it is reached, when it is elsewhere.
    fn remote(&self) -> Option<RemoteCount> {
        None
    }

    /// Nothing will ever be done here again, whoever waits: what it was is gone, or somebody else's. Only another store, opened at the same
    /// place, can have it again.
    fn is_over(&self) -> bool {
        false
    }

    /// The volume is served no longer: what is under way and a flush still end, and nothing else comes. Until the end of the store nothing
    /// else is to be opened where its blocks live.
    fn retire(&self) {}

    /// Nothing more is to be done: the volume is served no longer, and another one may be where its blocks live. What was pending ends,
    /// and nothing of it, nor of what was answered and would be given again to a server that lost it, is sent from now on. What the
    /// kernel has begun ends by itself.
    fn abandon(&self) {}

    /// Makes the store longer; what it holds stays, what is new reads as zeroes. It may block.
    ///
    /// # Errors
    /// [`ResizeError`]: the length stays what it was.
    fn resize(&self, _length_bytes: u64) -> Result<(), ResizeError> {
        Err(ResizeError::Fixed("its store has a fixed size"))
    }
}
